"""TensorBoard event files in the run folder."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from mpifl.tracking.base import Observer, Record

TAGS = {"train_loss": "loss/train", "test_loss": "loss/test", "test_accuracy": "accuracy/test", "seconds": "time/round"}


class TensorBoard(Observer):
    """Write every number of a round as a scalar at its round."""

    def __init__(self, run: Path) -> None:
        self._writer = SummaryWriter(str(run / "tensorboard"))

    def round(self, record: Record) -> None:
        """Write the numbers of one round."""
        for name, value in record.items():
            if isinstance(value, int | float) and name not in ("round", "time"):
                self._writer.add_scalar(TAGS.get(name, name), value, record["round"])
        self._writer.flush()

    def end(self) -> None:
        """Close the event file."""
        self._writer.close()
