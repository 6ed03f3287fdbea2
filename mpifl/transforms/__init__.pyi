from .base import Transform as Transform
from .clipping import Clipping as Clipping
from .compression import CompressionSettings as CompressionSettings
from .statistics import RunningStatistics as RunningStatistics
