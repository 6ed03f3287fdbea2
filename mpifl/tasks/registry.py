"""Tasks by the name that a job gives them; a user's own is `package.module:Task`."""

from __future__ import annotations

from mpifl.tasks.base import Task
from mpifl.tasks.binary import Binary
from mpifl.tasks.classification import Classification
from mpifl.tasks.language import Language
from mpifl.tasks.multilabel import Multilabel
from mpifl.tasks.named import Named
from mpifl.tasks.regression import Regression
from mpifl.tasks.segmentation import Segmentation
from mpifl.tasks.survival import Survival

_OWN: list[type[Named]] = [
    Classification,
    Binary,
    Multilabel,
    Regression,
    Segmentation,
    Language,
    Survival,
]
TASKS: dict[str, type[Task]] = {task.kind: task for task in _OWN}
