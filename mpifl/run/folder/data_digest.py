"""What a run was trained on, in digests; who compares them needs no model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from mpifl.data.shards import AnySpec, by_path


def same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two descriptions (see `describe`) are of the same shards,
    by what both tell: older ones tell less."""
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def describe(spec: AnySpec) -> dict[str, str]:
    """Return what a model and the silos' states must fit,
    and digests of all that is trained on and judged by."""
    inputs, count = by_path("x", spec.features).values(), len(spec.silos)
    told = [*(one.model_dump_json() for one in inputs), *(entry.sha256 for entry in spec.silos)]
    examples = " and ".join(f"{'x'.join(map(str, one.shape))} {one.dtype}" for one in inputs)
    aim = f" in {spec.classes} classes" if spec.classes else ""
    aim += f", {spec.aim}" if spec.targets else ""
    form = f"{count} silo{'s' * (count > 1)} of {examples}{aim}"
    shared = {
        name: entry.sha256 if entry else "" for name, entry in (("public", spec.public), ("test", spec.test))
    }
    return {"form": form, "sha256": hashlib.sha256("".join(told).encode()).hexdigest(), **shared}
