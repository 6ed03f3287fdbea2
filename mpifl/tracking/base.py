"""What an observer is told."""

from __future__ import annotations

from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]
"""One round as it stands in `metrics.jsonl`."""


class Observer:
    """Told of a run as it goes; by itself it reports nothing."""

    def begin(self, round: int, title: str) -> None:
        """Hear that the run starts after `round` rounds done."""

    def round(self, record: Record) -> None:
        """Hear what a round brought."""

    def note(self, text: str) -> None:
        """Hear a line that the user should see."""

    def end(self) -> None:
        """Hear that the run is over, whatever its end."""
