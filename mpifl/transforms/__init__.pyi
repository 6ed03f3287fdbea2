from .base import Transform as Transform
from .compression import CompressionSettings as CompressionSettings
from .statistics import RunningStatistics as RunningStatistics
