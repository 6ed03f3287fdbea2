from . import (
    gathering as gathering,
    placement as placement,
)
from .admission import (
    Expected as Expected,
    Knowledge as Knowledge,
)
from .cohort import (
    Cohort as Cohort,
)
from .costs import (
    Ledger as Ledger,
)
from .faults import (
    Judge as Judge,
    outcome_of as outcome_of,
)
from .gathering import (
    Gathering as Gathering,
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
