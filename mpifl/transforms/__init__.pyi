from .base import Transform as Transform
from .clipping import Clipping as Clipping
from .compression import CompressionSettings as CompressionSettings
from .protection import LEFT as LEFT, STEPS as STEPS, Protection as Protection
from .statistics import RunningStatistics as RunningStatistics
