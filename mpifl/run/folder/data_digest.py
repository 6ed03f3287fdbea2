"""Digests of the data that a run was trained on; comparing them needs no model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from mpifl.data.shards import AnySpec, FederationSpec, by_path, encoding_of


def same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two descriptions (see `describe`) agree on all keys of both; older ones have fewer."""
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def describe(spec: AnySpec) -> dict[str, str]:
    """Return a description of the data: its form, which models and states must fit, and its digests."""
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


def kept_of(spec: AnySpec) -> dict[str, Any]:
    """Return what a run folder keeps of the description of its shards, so that new examples can be predicted
    where the shards are not: what an example is and how it became numbers, and nothing of a silo."""
    if not isinstance(spec, FederationSpec):
        return {}
    encoding = encoding_of(spec.source)
    bare: dict[str, Any] = {"silos": [], "test": None, "public": None, "scheme": {}}
    bare["source"] = {"encoding": encoding} if encoding else {}
    return {"federation": spec.model_copy(update=bare).model_dump(mode="json")}
