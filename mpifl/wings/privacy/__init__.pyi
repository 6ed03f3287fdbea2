from . import (
    accountant as accountant,
    normal as normal,
)
from .accountant import (
    Steps as Steps,
    affordable as affordable,
    check_countable as check_countable,
    epsilon_of as epsilon_of,
    noise_for as noise_for,
)
from .bounded_sums import (
    GRID as GRID,
    BinCounts as BinCounts,
    BoundedColumn as BoundedColumn,
    BoundedSum as BoundedSum,
    LevelCounts as LevelCounts,
    PowerSum as PowerSum,
    RowCount as RowCount,
    is_bounded as is_bounded,
    noise_of_sums as noise_of_sums,
)
from .budgets import (
    Budgets as Budgets,
)
from .draws import (
    EDITION as EDITION,
    Draws as Draws,
)
from .mechanism import (
    SiloMechanism as SiloMechanism,
)
from .released_account import (
    ANSWERS_LEFT as ANSWERS_LEFT,
    Account as Account,
)
from .secret import (
    KEY as KEY,
    Secret as Secret,
    own_secret as own_secret,
)
from .silo_level_noise import (
    Noising as Noising,
)
from .site_budget import (
    LEDGERS as LEDGERS,
    SECRET_BYTES as SECRET_BYTES,
    BudgetEntry as BudgetEntry,
    OfSilo as OfSilo,
    SiteFolder as SiteFolder,
    budget_of as budget_of,
    open_site as open_site,
    why_no_secret as why_no_secret,
)
