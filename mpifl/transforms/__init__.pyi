from .attacks import AttackSettings as AttackSettings
from .base import Transform as Transform
from .clipping import Clipping as Clipping
from .compression import CompressionSettings as CompressionSettings
from .reference import reference_of as reference_of
from .statistics import STATISTICS as STATISTICS, RunningStatistics as RunningStatistics
