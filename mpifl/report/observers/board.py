"""TensorBoard event files in the run folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.report.observers.observer import Observer, Record

TAGS = {"train_loss": "loss/train", "test_loss": "loss/test", "seconds": "time/round"}
GROUPS = (
    ("silo_loss_", "loss_of_silos/"),
    ("seconds_", "time/"),
    ("bytes_", "bytes/"),
    ("wire_", "wire/"),
)


class TensorBoard(Observer):
    """Write every number of a round as a scalar at its round, and the job as text."""

    def __init__(self, run: Path, metrics: Collection[MetricInfo] = (ACCURACY,)) -> None:
        self._run, self._metrics = run, metrics
        self._writer: SummaryWriter | None = None

    def begin(self, round: int, title: str) -> None:
        """Open the event file; what earlier ones say of rounds that are done again is dropped."""
        self._writer = SummaryWriter(str(self._run / "tensorboard"), purge_step=round + 1)
        self._writer.add_text("job", f"{title}\n\n```\n{(self._run / 'job.toml').read_text()}\n```", round)

    def round(self, record: Record) -> None:
        """Write the numbers of one round, and how many silos were left out of it."""
        if self._writer is not None:
            _write(self._writer, record, self._metrics)

    def end(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


def _write(writer: SummaryWriter, record: Record, metrics: Collection[MetricInfo]) -> None:
    for name, value in record.items():
        if isinstance(value, int | float) and name not in ("round", "time"):
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
