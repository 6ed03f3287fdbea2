from . import (
    privacy_plan as privacy_plan,
)
from .batch_layers import (
    check_layers as check_layers,
)
from .privacy_plan import (
    Accounting as Accounting,
    SiloPlan as SiloPlan,
    digest_of as digest_of,
    figures_of_plan as figures_of_plan,
    plans as plans,
    refuse_without as refuse_without,
    run_of as run_of,
)
from .private_silo import (
    Guard as Guard,
    PrivateSilo as PrivateSilo,
)
from .question_ledger import (
    Protection as Protection,
)
from .silo_level_plan import (
    SiloAccounting as SiloAccounting,
    coins_of as coins_of,
    figures_of_rounds as figures_of_rounds,
    loudness as loudness,
    mechanism_of as mechanism_of,
    protected as protected,
    warning_of as warning_of,
)
from .site_setup import (
    BOTTOMS as BOTTOMS,
    about_rank as about_rank,
    kept_at_site as kept_at_site,
    user_name as user_name,
)
