"""MLflow: an experiment by the job's name, in the folder ./mlruns or where MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a training talks to nobody unasked
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 keeps files only if told to

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from mpifl.common import write_atomic
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.observers.observer import Observer, Record, numbers, step_points
from mpifl.report.observers.progress import Progress
from mpifl.run.folder import read_environment, read_metrics
from mpifl.run.job import Job, flat

LONGEST = 500
"""Of a parameter's value, which some stores refuse if it is longer."""
MOST = 1000
"""Metrics that a store takes at once."""
FINE = 1000
"""Parts of a round in which losses of steps are placed: a step is a whole number."""
UNKNOWN = re.compile(r"[^\w\-. /]")
"""Characters that no name of a metric may have."""
EVERY_ROUND = "silos_left_out"
"""The metric that every round has, logged last: a round that has it has all of its metrics."""


class MLflow(Observer):
    """Log every number of a round as a metric under its own name,
    at its round; the job's keys as parameters."""

    def __init__(self, job: Job, run: Path, metric: MetricInfo = ACCURACY) -> None:
        self._job, self._run, self._metric = job, run, metric
        self._client: MlflowClient | None = None
        self._id, self._done = "", False
        self._logged: set[int] = set()
        """Rounds that the store has from before; it would show those that are done again twice."""

    def begin(self, round: int, title: str) -> None:
        """Start a run, or continue with the one that this run folder has started."""
        last = (read_metrics(self._run) or [{}])[-1]
        self._done = Progress(round, last).finished(self._job, self._metric)
        self._begin(title)

    def before(self, record: Record) -> None:
        """Log how pretrained weights score, at round 0."""
        self._log(record, int(1000 * time.time()))

    def round(self, record: Record) -> None:
        """Log the numbers of one round, and how many silos were left out of it."""
        self._done = Progress(record["round"], record).finished(self._job, self._metric)
        self._log(record, int(1000 * record["time"]))

    def _log(self, record: Record, at: int) -> None:
        """Log the numbers of a record at its round, unless the store has them; `at` is in milliseconds."""
        if record["round"] in self._logged:
            return
        figures = {**numbers(record), EVERY_ROUND: len(record.get("faults") or {})}
        told = [(name, value, record["round"]) for name, value in figures.items()]
        points = ((place, *of) for place, losses in step_points(record) for of in losses.items())
        told[:0] = [(name, loss, round(FINE * place)) for place, name, loss in points]
        metrics = [
            Metric(UNKNOWN.sub("_", name), float(value), at, step)
            for name, value, step in told if math.isfinite(value)
        ]  # fmt: skip
        if self._client:
            for begin in range(0, len(metrics), MOST):
                self._client.log_batch(self._id, metrics=metrics[begin : begin + MOST])

    def end(self) -> None:
        """Mark the run as finished, or as killed where rounds are left to do."""
        if self._client:
            self._client.set_terminated(self._id, "FINISHED" if self._done else "KILLED")

    def _begin(self, title: str) -> None:
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or (Path.cwd() / "mlruns").as_uri())
        note = self._run / "mlflow_run_id"
        if note.exists():
            self._id = note.read_text().strip()
            self._go_on(self._client)
            return
        started = self._client.create_run(self._experiment(self._client), run_name=self._run.absolute().name)
        self._id = started.info.run_id
        settings = flat(self._job.model_dump(mode="json", exclude_none=True))
        params = [Param(name, str(value)[:LONGEST]) for name, value in settings.items()]
        tags = [RunTag("mlflow.note.content", title), RunTag("run_folder", str(self._run.absolute()))]
        self._client.log_batch(self._id, params=params, tags=tags)
        write_atomic(note, f"{self._id}\n".encode())

    def _go_on(self, client: MlflowClient) -> None:
        client.update_run(self._id, status="RUNNING")
        self._logged = {metric.step for metric in client.get_metric_history(self._id, EVERY_ROUND)}
        if changes := read_environment(self._run).get("changes"):
            client.set_tag(self._id, "changed_by_force", "; ".join(map(str, changes))[:LONGEST])

    def _experiment(self, client: MlflowClient) -> str:
        """Return the id of the experiment by the job's name; another run may make it in the same moment."""
        found = client.get_experiment_by_name(self._job.name)
        if found is None:
            try:
                return str(client.create_experiment(self._job.name))
            except MlflowException:
                found = client.get_experiment_by_name(self._job.name)
                if found is None:
                    raise
        return str(found.experiment_id)
