from .base import Transform as Transform
from .clipping import Clipping as Clipping
from .codecs import CODECS as CODECS
from .lines import (
    LONGEST as LONGEST,
    PLAIN_LINES as PLAIN_LINES,
    LineCodecs as LineCodecs,
    Writing as Writing,
)
from .noising import Noising as Noising
from .protection import LEFT as LEFT, STEPS as STEPS, Protection as Protection
from .reference import reference_of as reference_of
from .settings import (
    OWN_KEYS as OWN_KEYS,
    AttackSettings as AttackSettings,
    CompressionSettings as CompressionSettings,
)
from .statistics import (
    STATISTICS as STATISTICS,
    RunningStatistics as RunningStatistics,
    common_name as common_name,
    is_own as is_own,
    length_name as length_name,
    own_name as own_name,
    statistics_lengths as statistics_lengths,
)
