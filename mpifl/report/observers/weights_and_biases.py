"""Weights & Biases: a run in the project by the job's name; with WANDB_MODE=offline in RUN/wandb alone."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import wandb

from mpifl.common import InputError, write_atomic
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.observers.observer import Observer, Record, numbers, step_points
from mpifl.report.observers.progress import Progress
from mpifl.run.folder import read_environment, read_metrics
from mpifl.run.job import Job, flat

NOTE = "wandb_run.json"
"""The file in the run folder with the run's id and the last round that was logged."""


def check_login() -> None:
    """See that figures can go somewhere, so that no rank waits for an answer to a question.

    Raises:
        InputError: no key is stored, and the mode is not offline.
    """
    if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.login(prompt=False, verify=False):
        to_do = "log in by `wandb login`, or set WANDB_MODE=offline"
        raise InputError(f"[tracking] wandb = true: no key is stored; {to_do}")


class WeightsAndBiases(Observer):
    """Log every number of a round under its own name, at its round; the job's keys are the configuration."""

    def __init__(self, job: Job, run: Path, metric: MetricInfo = ACCURACY) -> None:
        self._job, self._run, self._metric = job, run, metric
        self._live: Any = None
        self._logged, self._done = -1, False

    def begin(self, round: int, title: str) -> None:
        """Start a run, or continue with the one that this run folder has started."""
        last = (read_metrics(self._run) or [{}])[-1]
        self._done = Progress(round, last).finished(self._job, self._metric)
        note, known = self._run / NOTE, {}
        if note.exists():
            known = json.loads(note.read_text())
        quiet = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False)
        self._live = wandb.init(
            project=self._job.name,
            name=self._run.absolute().name,
            id=known.get("id"),
            resume="allow",
            dir=str(self._run),
            notes=title,
            config=flat(self._job.model_dump(mode="json", exclude_none=True)),
            settings=quiet,
        )
        self._logged = int(known.get("round", -1))
        self._live.define_metric("*", step_metric="round")
        if changes := read_environment(self._run).get("changes"):
            self._live.summary["changed_by_force"] = "; ".join(map(str, changes))
        self._write_note()

    def before(self, record: Record) -> None:
        """Log how pretrained weights score, at round 0."""
        self._log(record)

    def round(self, record: Record) -> None:
        """Log the numbers of one round, and how many silos were left out of it."""
        self._done = Progress(record["round"], record).finished(self._job, self._metric)
        self._log(record)

    def _log(self, record: Record) -> None:
        """Log the numbers of a record at its round, unless that was done before."""
        if self._live is None or record["round"] <= self._logged:
            return
        figures = {name: float(value) for name, value in numbers(record).items() if math.isfinite(value)}
        for at, losses in step_points(record):
            self._live.log({**losses, "round": at})
        figures["silos_left_out"] = len(record.get("faults") or {})
        self._live.log({**figures, "round": record["round"]})
        self._logged = record["round"]
        self._write_note()

    def end(self) -> None:
        """Mark the run as finished, or as failed where rounds are left to do."""
        if self._live is not None:
            self._live.finish(exit_code=0 if self._done else 1)

    def _write_note(self) -> None:
        told = {"id": self._live.id, "round": self._logged}
        write_atomic(self._run / NOTE, json.dumps(told).encode() + b"\n")
