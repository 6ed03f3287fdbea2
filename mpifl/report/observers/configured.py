"""The observers that a job's `[tracking]` asks for: those of mpifl, and the user's own."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path

from mpifl.common import InputError, Names, load_plugin
from mpifl.common.machine import floors
from mpifl.report.observers.console import Console
from mpifl.report.observers.jsonlines import JsonLines
from mpifl.report.observers.observer import Observer, Record
from mpifl.report.observers.observer_group import described
from mpifl.run.job import Job


def check_tracking(job: Job) -> None:
    """See that what a job's `[tracking]` asks for is there; the user's own observers are imported.

    Raises:
        InputError: it is not, or a name is no subclass of Observer.
    """
    for name in ("tensorboard", "mlflow", "wandb"):
        if getattr(job.tracking, name):
            if find_spec(name) is None:
                raise InputError(f"[tracking] {name} = true: needs 'pip install mpifl[{name}]'")
            floors.hold(name)
    if job.tracking.wandb:
        from mpifl.report.observers.weights_and_biases import check_login

        check_login()
    for name in job.tracking.observers:
        _class_of(name)


def observers(job: Job, run: Path, names: Names | None = None) -> list[Observer]:
    """Return the observers that a job's `[tracking]` asks for; `names` are the silos'.

    Raises:
        InputError: one of the user's own cannot be made.
    """
    chosen: list[Observer] = []
    task = job.build_task()
    if job.tracking.jsonl:
        chosen.append(JsonLines(run))
    if job.tracking.tensorboard:
        from mpifl.report.observers.board import TensorBoard

        chosen.append(TensorBoard(run, task.infos.values()))
    if job.tracking.mlflow:
        from mpifl.report.observers.mlflow import MLflow

        chosen.append(MLflow(job, run, task.main_metric))
    if job.tracking.wandb:
        from mpifl.report.observers.weights_and_biases import WeightsAndBiases

        chosen.append(WeightsAndBiases(job, run, task.main_metric))
    valid = job.evaluate.split is not None
    chosen.append(Console(job.rounds, job.tracking.console, names, task.main_metric, valid))
    return chosen + [Custom(name, job, run) for name in job.tracking.observers]


class Custom(Observer):
    """An observer of the user's own; it is given copies of the records, so that it can change nothing."""

    def __init__(self, name: str, job: Job, folder: Path) -> None:
        super().__init__(job, folder)
        self._name = name
        try:
            self._own = _class_of(name)(job, folder)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"[tracking] observers: '{name}' cannot be made: {described(error)}") from None

    def __str__(self) -> str:
        return f"[tracking] observers: '{self._name}'"

    def begin(self, round: int, title: str) -> None:
        """Hand this on."""
        self._own.begin(round, title)

    def before(self, record: Record) -> None:
        """Hand on a copy."""
        self._own.before(copy.deepcopy(record))

    def round(self, record: Record) -> None:
        """Hand on a copy."""
        self._own.round(copy.deepcopy(record))

    def note(self, text: str) -> None:
        """Hand this on."""
        self._own.note(text)

    def end(self) -> None:
        """Hand this on."""
        self._own.end()


def _class_of(name: str) -> type[Observer]:
    """Return the class that `package.module:Class` names."""
    key = "[tracking] observers"
    if ":" not in name:
        raise InputError(f"{key}: '{name}' names no class; give 'package.module:Class'")
    kind = load_plugin(name, key, ())
    if not (isinstance(kind, type) and issubclass(kind, Observer)):
        raise InputError(f"{key}: '{name}' is not a mpifl Observer; name a subclass of it")
    return kind
