from .base import Task as Task
from .catalogue import names_in as names_in
from .classification import CLASSIFICATION as CLASSIFICATION, Classification as Classification
from .federation import Facts as Facts, Shards as Shards
from .losses import Summed as Summed, mean as mean
from .metrics import ACCURACY as ACCURACY, Metric as Metric, MetricInfo as MetricInfo
from .named import Named as Named
from .pooling import (
    COUNTS as COUNTS,
    fill as fill,
    pack_states as pack_states,
    pooled as pooled,
    real_states as real_states,
    state_lengths as state_lengths,
)
from .registry import TASKS as TASKS
from .states import (
    computed as computed,
    read_states as read_states,
    summable as summable,
    write_states as write_states,
)
