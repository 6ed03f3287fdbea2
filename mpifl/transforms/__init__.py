"""What changes messages on their way, where no algorithm sees it."""

from mpifl.transforms.base import Message, Transform
from mpifl.transforms.compression import Compression, CompressionSettings
from mpifl.transforms.statistics import RunningStatistics

__all__ = ["Compression", "CompressionSettings", "Message", "RunningStatistics", "Transform"]
