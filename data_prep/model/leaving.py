"""What `federation.json` says of rows that were left out since they lack a value."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from mpifl.data.shards import FederationSpec, VerticalSpec

MOST_NAMED = 6
"""Columns or silos in a line."""


class Dropped(BaseModel):
    """Rows that were left out.

    Attributes:
        rows: How many.
        of: Of how many.
        columns: How many of them lack a value, by column.
        silos: How many each silo lost, by its name, where that is known.
        test: The same of the server's test set.
    """

    rows: int = 0
    of: int = 0
    columns: dict[str, int] = {}
    silos: dict[str, int] = {}
    test: Dropped | None = None

    def __str__(self) -> str:
        parts = [
            f"{self.rows:,} of {self.of:,} rows were left out, which lack a value: {_listed(self.columns)}"
        ]
        parts += [f"by silo: {_listed(self.silos)}"] if self.silos else []
        parts += [f"of the test set: {self.test}"] if self.test else []
        return "; ".join(parts if self.rows else parts[1:])


def dropped_of(spec: FederationSpec | VerticalSpec) -> Dropped:
    """Return what a folder says of rows that were left out; what others wrote otherwise says nothing."""
    told: Any = spec.source.get("dropped")
    try:
        return Dropped.model_validate(told or {})
    except ValidationError:
        return Dropped()


def _listed(counts: dict[str, int]) -> str:
    named = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    more = f" and {len(named) - MOST_NAMED:,} more" if len(named) > MOST_NAMED else ""
    return ", ".join(f"{name} {count:,}" for name, count in named[:MOST_NAMED]) + more
