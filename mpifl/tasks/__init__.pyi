from .base import Shards as Shards, Task as Task
from .classification import CLASSIFICATION as CLASSIFICATION, Classification as Classification
from .metrics import ACCURACY as ACCURACY, Metric as Metric, MetricInfo as MetricInfo
from .registry import TASKS as TASKS
