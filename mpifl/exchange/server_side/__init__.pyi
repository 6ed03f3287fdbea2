from . import (
    gathering as gathering,
    placement as placement,
)
from .admission import (
    ExpectedUpdates as ExpectedUpdates,
    Knowledge as Knowledge,
    screened as screened,
)
from .cohort import (
    ServerCohort as ServerCohort,
)
from .costs import (
    ExchangeCosts as ExchangeCosts,
    size_of_reply as size_of_reply,
    size_of_request as size_of_request,
)
from .faults import (
    Judge as Judge,
    outcome_of as outcome_of,
)
from .gathering import (
    ReportGathering as ReportGathering,
)
from .membership import (
    Membership as Membership,
)
from .outcome import (
    Outcome as Outcome,
)
from .placement import (
    place as place,
)
from .workload import (
    Workload as Workload,
)
