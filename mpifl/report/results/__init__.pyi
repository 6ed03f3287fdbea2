from .baseline_folder import (
    read_alone as read_alone,
    told_by_baseline as told_by_baseline,
)
from .days import (
    written as written,
)
from .fit_findings import (
    told_of_fit as told_of_fit,
)
from .histograms import (
    histogram as histogram,
)
from .row_findings import (
    told_of_result as told_of_result,
)
