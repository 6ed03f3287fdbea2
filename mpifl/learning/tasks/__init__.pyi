from . import (
    losses as losses,
    multilabel as multilabel,
)
from .classification import (
    CLASSIFICATION as CLASSIFICATION,
    Classification as Classification,
)
from .federation_view import (
    TaskFacts as TaskFacts,
)
from .losses import (
    Summed as Summed,
    mean as mean,
)
from .model_answers import (
    tensor_of as tensor_of,
)
from .named import (
    PackageTask as PackageTask,
)
from .survival import (
    NO_EVENT as NO_EVENT,
    Survival as Survival,
    times_and_events as times_and_events,
)
from .task import (
    Task as Task,
)
from .task_registry import (
    TASKS as TASKS,
)
