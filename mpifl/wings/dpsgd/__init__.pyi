from . import (
    privacy_plan as privacy_plan,
)
from .budget_room import (
    check_budgets as check_budgets,
    check_site as check_site,
    left_here as left_here,
)
from .dpsgd_wing import (
    OfExamples as OfExamples,
    OfExamplesElsewhere as OfExamplesElsewhere,
    wing as wing,
)
from .privacy_plan import (
    SiloPlan as SiloPlan,
    digest_of as digest_of,
    figures_of_plan as figures_of_plan,
    plans as plans,
    refuse_without as refuse_without,
    run_of as run_of,
)
from .private_rows import (
    PrivateRows as PrivateRows,
)
from .private_silo import (
    Guard as Guard,
    PrivateSilo as PrivateSilo,
)
from .question_ledger import (
    Protection as Protection,
)
from .silo_level_plan import (
    figures_of_rounds as figures_of_rounds,
    loudness as loudness,
    mechanism_of as mechanism_of,
)
