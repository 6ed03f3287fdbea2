from .clipping import (
    CLIPPED as CLIPPED,
    Clipping as Clipping,
    norm_of as norm_of,
)
from .running_statistics import (
    STATISTICS as STATISTICS,
    RunningStatistics as RunningStatistics,
    common_name as common_name,
    is_own as is_own,
    length_name as length_name,
    own_name as own_name,
    statistics_lengths as statistics_lengths,
)
from .transform import (
    Message as Message,
    Transform as Transform,
)
