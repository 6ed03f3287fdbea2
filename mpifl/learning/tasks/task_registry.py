"""The package's tasks by their names in jobs; a user's own is `package.module:Task`."""

from __future__ import annotations

from mpifl.learning.tasks.binary import Binary
from mpifl.learning.tasks.classification import Classification
from mpifl.learning.tasks.language import Language
from mpifl.learning.tasks.multilabel import Multilabel
from mpifl.learning.tasks.named import PackageTask
from mpifl.learning.tasks.regression import Counts, Regression
from mpifl.learning.tasks.segmentation import Segmentation
from mpifl.learning.tasks.survival import Survival
from mpifl.learning.tasks.task import Task

_OWN: list[type[PackageTask]] = [
    Classification,
    Binary,
    Multilabel,
    Regression,
    Counts,
    Segmentation,
    Language,
    Survival,
]
TASKS: dict[str, type[Task]] = {task.kind: task for task in _OWN}
