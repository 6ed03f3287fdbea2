"""One job over a grid of settings: every run one after another, or one of them for a task of a job array."""

from __future__ import annotations

from mpifl.sweep.grid import Task, grid
from mpifl.sweep.running import list_tasks, run_all, run_task, sweep_command

__all__ = ["Task", "grid", "list_tasks", "run_all", "run_task", "sweep_command"]
