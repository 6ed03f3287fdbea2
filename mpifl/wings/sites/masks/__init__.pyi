from .coordinator_sums import (
    Share as Share,
    SharesAsked as SharesAsked,
    SumsOfSites as SumsOfSites,
    check_sites as check_sites,
    sums_of_sites as sums_of_sites,
)
from .ledger_marks import (
    LedgerMarks as LedgerMarks,
)
from .site_party import (
    SUMS_FILE as SUMS_FILE,
    SiteParty as SiteParty,
)
from .site_totals import (
    ALL_NUMBERS as ALL_NUMBERS,
    SiteTotals as SiteTotals,
)
from .sum_letters import (
    SumLetters as SumLetters,
)
