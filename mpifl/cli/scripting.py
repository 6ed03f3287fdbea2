"""Training by one call in a script or a notebook."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from mpifl.common import InputError, written_after
from mpifl.common.machine import signals, tuning
from mpifl.data.hdf5 import start_parser
from mpifl.data.shards import read_federation
from mpifl.learning import models
from mpifl.report.observers import Progress, Record, judged
from mpifl.report.runs import as_rows, common_target, read_runs, runs_in, varying
from mpifl.run.folder import load_final, read_metrics
from mpifl.run.job import Job, read_job
from mpifl.training import loop
from mpifl.wings import wings_of
from mpifl.wire import Transport
from mpifl.wire.launching import world

OnRound: TypeAlias = Callable[[Record], object]
ALWAYS = ("algorithm.name", "local.lr", "seed")
"""Settings that a sweep tells of even where its runs do not differ in them."""


@dataclass(frozen=True)
class Run:
    """The results of a training in its run folder.

    Attributes:
        folder: The run folder, as for `mpifl report` and `mpifl compare`.
        job: The job with every default filled in.
        finished: Whether nothing is left to train: all rounds are done, or a stop at the target was reached.
    """

    folder: Path
    job: Job
    finished: bool

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> Run:
        """Return the run in a folder. This imports the user's code that the job names.

        Raises:
            InputError: there is no run.
        """
        path = Path(folder)
        job, records = read_job(path / "job.toml"), read_metrics(path)
        if not records:  # no records if [tracking] jsonl = false
            return cls(path, job, written_after(path / "model.safetensors", path / "job.toml"))
        progress = Progress(records[-1]["round"], records[-1])
        return cls(path, job, progress.finished(job, job.build_algorithm().task.main_metric))

    @property
    def metrics(self) -> list[Record]:
        """The record of each round from `metrics.jsonl`; none with `[tracking] jsonl = false`."""
        return read_metrics(self.folder)

    @property
    def best(self) -> Record | None:
        """The first record with the best value of the main metric (see `judged`); None if no round was
        scored."""
        metric = self.job.build_algorithm().task.main_metric
        scored = [(found[1], record) for record in self.metrics if (found := judged(record, metric))]
        if not scored:
            return None
        best = metric.best([value for value, _ in scored])
        return next(record for value, record in scored if value == best)

    def frame(self) -> Any:
        """Return `metrics` as a pandas DataFrame with a row for each round.

        Tables in a record are columns with dots, such as `silos.cleveland.accuracy`.

        Raises:
            InputError: pandas is not installed.
        """
        pandas = _pandas("Run.frame", "Run.metrics")
        found = pandas.json_normalize(self.metrics)
        return found if found.empty else found.set_index("round")

    def model(self, factory: Callable[..., nn.Module] | None = None, last: bool = False) -> nn.Module:
        """Return the trained model: that of the best round where the run keeps it, else of the last one.

        Args:
            factory: Makes the module for the parameters, `factory(shape, classes, **arguments)`; by default
                the job's own.
            last: Return the model of the last round in any case.

        Raises:
            InputError: there is no final model yet, its parameters do not fit the module, or the network is
                split.
        """
        path, other = (self.folder / f"{name}.safetensors" for name in ("model", "last"))
        if self.job.split is not None:
            what = "its network is split: here is the top, and each party has its own bottom"
            raise InputError(f"{self.folder}: {what}; have all answer together by mpifl predict")
        if not self.finished:
            what = "the training is not finished; continue with resume=True for its model"
            raise InputError(f"{self.folder}: {what}")
        module = self._untrained(factory)
        load_final(module, self.job.model, other if last and other.exists() else path)
        return module

    def _untrained(self, factory: Callable[..., nn.Module] | None) -> nn.Module:
        spec, table = read_federation(Path(self.job.shards)), self.job.model
        task = self.job.build_task().for_federation(spec)
        given = (table.arguments, spec.features, task.width(spec), self.job.seed, task)
        return models.build(factory or table.name, *given)


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, or of any folder of runs, side by side.

    Attributes:
        folder: The folder that they lie in.
        runs: The run folders that can be read.
        left_out: The others, and why they cannot be read.
    """

    folder: Path
    runs: tuple[Path, ...]
    left_out: Mapping[Path, str]

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> Sweep:
        """Return the runs in a folder and in folders in it. This imports no code that their jobs name.

        Raises:
            InputError: there is no run that can be read.
        """
        path = Path(folder)
        found, left_out = read_runs(runs_in(path))
        if not found:
            raise InputError("; ".join(left_out.values()))
        return cls(path, tuple(run.run for run in found), left_out)

    def rows(self, target: float | None = None) -> list[dict[str, Any]]:
        """Return what `mpifl compare --csv` writes of each run, and ALWAYS; None is what there is not.

        Args:
            target: A value of the main metric; by default the one that all jobs wait for.
        """
        found, _ = read_runs(self.runs)
        target = common_target(found) if target is None else target
        return as_rows(found, target, ALWAYS) if found else []

    def frame(self, rounds: bool = False, target: float | None = None) -> Any:
        """Return the runs as one pandas DataFrame, by the names of their folders.

        A row is a run. Its columns are `algorithm.name`, `local.lr`, `seed`, the settings in which the runs
        differ, and figures as in `mpifl compare --csv`. `judged` is the figure that judges the run, and
        `judged_by` says of what that is.

        Args:
            rounds: Have a row for each round of each run, with the settings, and with the figures of
                `Run.frame`. The index is then of the run and the round.
            target: A value of the main metric; by default the one that all jobs wait for.

        Raises:
            InputError: pandas is not installed.
        """
        pandas = _pandas("Sweep.frame", "Sweep.rows()")
        rows = [{**row, "run": self._called(row["run"])} for row in self.rows(target)]
        if not rounds:
            return pandas.DataFrame(rows).set_index("run")
        keys, parts = list(dict.fromkeys([*ALWAYS, "setting", *varying(read_runs(self.runs)[0])])), []
        for run, row in zip(self.runs, rows, strict=True):
            part = pandas.json_normalize(read_metrics(run))
            part["run"] = row["run"]
            for key in keys:
                part[key] = [row[key]] * len(part)  # a setting may be a list
            parts.append(part)
        return pandas.concat(parts).set_index(["run", "round"])

    def _called(self, run: Path) -> str:
        """Return the path of a run below the folder, so that those of several sweeps can be told apart."""
        return str(run.relative_to(self.folder)) if run != self.folder else run.absolute().name


def _pandas(needs: str, instead: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise InputError(f"{needs} needs pandas; pip install pandas, or use {instead}") from None
    return pandas


def train(
    job: Mapping[str, Any] | Job | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    on_round: OnRound | None = None,
    resume: bool = False,
    force: bool = False,
) -> Run | None:
    """Train a model over the silos of a shard folder. Every rank of the world calls this with the same
    arguments.

    Without a launcher, one rank is the whole world: it is the server and hosts all silos. Signal handlers and
    PyTorch's settings are restored afterwards. A signal that asks this process to end takes effect after a
    checkpoint is written.

    Args:
        job: The job as tables, as a `Job`, or its file; rank 0's value counts.
        out: The run folder; `runs/NAME` by default.
        on_round: Called on rank 0 with a copy of each round's record. If it returns True or raises, the
            training stops with a checkpoint. An error then goes to the caller on rank 0. Other return values
            have no effect.
        resume: Continue from the latest checkpoint in `out`, or start if there is none.
        force: Continue even if device, shards, local or cohort have changed.

    Returns:
        The run on rank 0, None on the others.

    Raises:
        InputError: the job, a shard or an argument is wrong, or a file cannot be written.
        RoundLost: too few silos answered in all attempts at a round (a checkpoint is written if possible), or
            the model is not finite.
    """
    given = Path(job) if isinstance(job, str | os.PathLike) else job if isinstance(job, Job) else dict(job)
    folder = Path("runs") / _name_of(given) if out is None else Path(out)
    hook = _Hook(on_round)
    start_parser()
    transport = _joined_world()
    with _state_kept(), signals.kept_back():
        end = loop.train(given, folder, (), resume, transport, force=force, on_round=hook, wings_of=wings_of)
        if hook.error is not None:
            raise hook.error
    if not transport.is_server:
        return None
    return Run(folder, read_job(folder / "job.toml"), end is loop.End.FINISHED)


def _name_of(job: Path | dict[str, Any] | Job) -> str:
    if isinstance(job, Path):
        return job.stem
    return job.name if isinstance(job, Job) else str(job.get("name"))


@functools.cache
def _joined_world() -> Transport:
    """Join the world, once for all trainings of this process."""
    return world()


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """Restore PyTorch's settings that a training changes."""
    threads, deterministic = torch.get_num_threads(), torch.backends.cudnn.deterministic
    try:
        with tuning.subnormals_as_zero():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.deterministic = deterministic


class _Hook:
    """Calls the user's function after each round. All ranks wait for rank 0, so an error in it must not end
    the loop."""

    def __init__(self, on_round: OnRound | None) -> None:
        self._on_round = on_round
        self.error: BaseException | None = None

    def __call__(self, record: Record) -> bool:
        if self._on_round is None:
            return False
        try:
            answer = self._on_round(copy.deepcopy(record))
        except BaseException as error:
            self.error = error
            return True
        return isinstance(answer, bool | np.bool_) and bool(answer)
