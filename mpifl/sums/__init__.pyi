from . import (
    exact as exact,
    kernels as kernels,
    local_sums as local_sums,
    mean as mean,
    node_sums as node_sums,
    row_sums as row_sums,
)
from .aggregator import (
    REFERENCE as REFERENCE,
    Aggregator as Aggregator,
    Combined as Combined,
    MakesAggregator as MakesAggregator,
    headers_of as headers_of,
    read_records as read_records,
    updates_of as updates_of,
)
from .exact import (
    is_finite as is_finite,
    is_partial_sum as is_partial_sum,
    peak_of as peak_of,
)
from .mean import (
    Averaging as Averaging,
    WeightedMean as WeightedMean,
)
from .planning import (
    PartialSum as PartialSum,
    Rank as Rank,
    ReductionPlan as ReductionPlan,
    Window as Window,
    plan as plan,
)
from .vector_checks import (
    are_readable as are_readable,
    checked_peak as checked_peak,
    header_of as header_of,
    refuse_noise as refuse_noise,
    slice_of as slice_of,
)
