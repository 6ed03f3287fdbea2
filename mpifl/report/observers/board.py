"""TensorBoard event files in the run folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.observers.observer import Observer, Record, numbers, step_points

TAGS = {"train_loss": "loss/train", "test_loss": "loss/test", "seconds": "time/round"}
GROUPS = (
    ("silo_loss_", "loss_of_silos/"),
    ("seconds_", "time/"),
    ("bytes_", "bytes/"),
    ("wire_", "wire/"),
)

FINE = 1000
"""Parts of a round in which losses of steps are placed: a step of TensorBoard is a whole number."""


class TensorBoard(Observer):
    """Write every number of a round as a scalar at its round, and the job as text; losses of steps beside
    them, in a folder of their own."""

    def __init__(self, run: Path, metrics: Collection[MetricInfo] = (ACCURACY,)) -> None:
        self._run, self._metrics = run, metrics
        self._writer: SummaryWriter | None = None
        self._of_steps: SummaryWriter | None = None
        self._done = 0

    def begin(self, round: int, title: str) -> None:
        """Open the event file; what earlier ones say of rounds that are done again is dropped."""
        self._done = round
        self._writer = SummaryWriter(str(self._run / "tensorboard"), purge_step=round and round + 1)
        self._writer.add_text("job", f"{title}\n\n```\n{(self._run / 'job.toml').read_text()}\n```", round)

    def before(self, record: Record) -> None:
        """Write how pretrained weights score, at round 0."""
        if self._writer is not None:
            _write(self._writer, record, self._metrics)

    def round(self, record: Record) -> None:
        """Write the numbers of one round, and how many silos were left out of it."""
        if self._writer is not None:
            _write(self._writer, record, self._metrics)
            self._write_steps(record)

    def _write_steps(self, record: Record) -> None:
        if not (points := step_points(record)):
            return
        if self._of_steps is None:
            where = self._run / "tensorboard" / "steps"
            self._of_steps = SummaryWriter(str(where), purge_step=self._done and FINE * self._done + 1)
        for at, losses in points:
            for name, loss in losses.items():
                self._of_steps.add_scalar(name, loss, round(FINE * at))
        self._of_steps.flush()

    def end(self) -> None:
        """Close the event file."""
        for writer in (self._writer, self._of_steps):
            if writer is not None:
                writer.close()


def _write(writer: SummaryWriter, record: Record, metrics: Collection[MetricInfo]) -> None:
    for name, value in numbers(record).items():
        writer.add_scalar(tag(name, metrics), value, record["round"])
    writer.add_scalar("silos/left_out", len(record.get("faults") or {}), record["round"])
    writer.flush()


def tag(name: str, metrics: Collection[MetricInfo] = (ACCURACY,)) -> str:
    """Return the tag of a figure: what belongs together stands under one heading."""
    tags = TAGS | {metric.test: f"{metric.name}/test" for metric in metrics}
    groups = (*((f"{metric.silo}_", f"{metric.name}_of_silos/") for metric in metrics), *GROUPS)
    fitting = [group for group in groups if name.startswith(group[0])]
    before, after = max(fitting, key=lambda group: len(group[0]), default=("", ""))
    return tags.get(name, after + name.removeprefix(before))
