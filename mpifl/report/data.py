"""What the silos of a run hold, from the `federation.json` of its shard folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import InputError, Names
from mpifl.data import FederationSpec, read_federation
from mpifl.report import charts
from mpifl.report.runs import Summary
from mpifl.run import describe, same_data

MOST_SILOS = 200
MOST_NAMED = 20


def data(summary: Summary, environment: dict[str, Any]) -> str:
    """Draw the labels of every silo; say so where the shard folder cannot be read here,
    or holds others now."""
    if "shards" not in summary.job:
        return ""
    try:
        folder, spec = read_shards(str(summary.job["shards"]), environment)
    except InputError as error:
        return charts.titled("The data", f"Not shown: {error}")
    if not same_data(summary.data, describe(spec)):
        return charts.titled(
            "The data", f"Not shown: the shards at {folder} are not those that it was trained on"
        )
    return _drawn(spec)


def read_shards(shards: str, environment: Mapping[str, Any]) -> tuple[Path, FederationSpec]:
    """Return a run's shard folder and what it holds: as seen from where the run was started, or else from
    here.

    Raises:
        InputError: it can be read from neither.
    """
    started = Path(environment.get("directory", ".")) / shards
    try:
        return started, read_federation(started)
    except InputError:
        with contextlib.suppress(OSError):  # a name that is too long
            if Path(shards, "federation.json").exists():
                return Path(shards), read_federation(Path(shards))
        raise


def _drawn(spec: FederationSpec) -> str:
    counts = np.array([entry.labels for entry in spec.silos], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    sizes = np.array([entry.examples["train"] for entry in spec.silos])
    scheme = ", ".join(
        f"{key} {value}" if key != "name" else str(value) for key, value in spec.scheme.items()
    )
    note = f"{spec.name}: {len(sizes):,} silos, {sizes.sum():,} training examples; scheme {scheme}."
    if len(sizes) > MOST_SILOS:
        parts = np.array_split(np.arange(len(sizes)), MOST_SILOS)
        shares, sizes = (np.array([each[part].mean(axis=0) for part in parts]) for each in (shares, sizes))
        note += f" Each of the {MOST_SILOS} columns is the mean of neighbouring silos."
    called = Names([entry.name for entry in spec.silos])
    if called.told and len(sizes) <= MOST_NAMED:
        note += f" From the left: {', '.join(called[silo] for silo in range(len(sizes)))}."
    if spec.classes is None:  # values, of which federation.json counts nothing
        return charts.titled("The data", note)
    names = spec.class_names or [str(label) for label in range(spec.classes)]
    return charts.heat(shares.tolist(), names, [round(size) for size in sizes.tolist()], note)
