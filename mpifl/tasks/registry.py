"""Tasks by the name that a job gives them; a user's own is `package.module:Task`."""

from __future__ import annotations

from mpifl.tasks.base import Task
from mpifl.tasks.classification import Classification

TASKS: dict[str, type[Task]] = {
    "classification": Classification,
}
