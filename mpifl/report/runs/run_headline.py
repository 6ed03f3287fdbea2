"""What a run is, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpifl.common import one_line


def headline(job: Mapping[str, Any]) -> list[str]:
    """Return a job's algorithm, model, shards and seed, as far as it has them, as terminals can show."""
    words = [_named(job.get("algorithm")), _model(job), job.get("shards")]
    words += [f"seed {job['seed']}"] if "seed" in job else []
    return [one_line(word) for word in words if word]


def _model(job: Mapping[str, Any]) -> str:
    """Name a job's model; both halves of one that is split."""
    name, split = _named(job.get("model")), job.get("split")
    if not isinstance(split, Mapping):
        return name
    top = split.get("top", "none")
    return f"{top.get('name') if isinstance(top, Mapping) else 'sum'} over {name}"


def _named(table: object) -> str:
    return str(table.get("name", "")) if isinstance(table, Mapping) else ""
