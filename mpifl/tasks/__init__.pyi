from .base import Shards as Shards, Task as Task
from .classification import CLASSIFICATION as CLASSIFICATION, Classification as Classification
from .metrics import ACCURACY as ACCURACY, Metric as Metric, MetricInfo as MetricInfo
from .pooling import pack_states as pack_states, pooled as pooled, state_lengths as state_lengths
from .registry import TASKS as TASKS
from .states import computed as computed
