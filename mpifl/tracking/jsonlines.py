"""`metrics.jsonl`: one object a round."""

from __future__ import annotations

from pathlib import Path

from mpifl.run import encode_record
from mpifl.tracking.base import Observer, Record


class JsonLines(Observer):
    """Append each round to `metrics.jsonl` and flush it, so that a killed run has lost no line."""

    def __init__(self, run: Path) -> None:
        self._path = run / "metrics.jsonl"

    def round(self, record: Record) -> None:
        """Append one line."""
        with self._path.open("ab") as file:
            file.write(encode_record(record))
