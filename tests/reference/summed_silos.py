"""Sums of silos' answers: an algorithm's rounds over rows in memory, without ranks or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mpifl.algorithms import Algorithm, Server
from mpifl.data import Targets
from mpifl.data.shards.shards import Features, FederationSpec, Shard, ShardEntry, Split
from mpifl.learning.tasks import TASKS
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.silo import Silo
from mpifl.wire import Mean

Rows = tuple[np.ndarray, np.ndarray]


@dataclass
class SummedSilos:
    """All silos, asked one after another. Their vectors are whole numbers, which float64 adds up exactly."""

    silos: list[Silo]

    @property
    def population(self) -> int:
        return len(self.silos)

    def mean(self, work: Any, /, **message: Any) -> Mean:
        updates = [work(silo, **message) for silo in self.silos]
        names = updates[0].vectors
        vectors = {name: torch.stack([one.vectors[name].vector for one in updates]).sum(0) for name in names}
        return Mean(
            vectors, {}, {silo.id: one.scalars for silo, one in zip(self.silos, updates, strict=True)}
        )


def spec_of(parts: Sequence[Rows], names: Sequence[str], task: str) -> FederationSpec:
    """Return what silos have in common, without files."""
    x, _ = parts[0]
    shape = {"survival": (2,)}.get(task, ())
    of: dict[str, Any] = {"classes": 2} if task == "binary" else {"classes": None}
    if task != "binary":
        of["targets"] = Targets(shape=shape, dtype="float32")
    entries = [
        ShardEntry(
            silo=k,
            name=f"silo {k}",
            file=f"{k}.h5",
            examples={"train": len(part)},
            bytes=1,
            sha256="0" * 64,
            labels=np.bincount(y, minlength=2).tolist() if task == "binary" else [],
        )
        for k, (part, y) in enumerate(parts)
    ]
    told: dict[str, Any] = {"name": "rows", "seed": 0, "scheme": {"name": "cut"}, "source": {}, **of}
    features = Features(shape=x.shape[1:], dtype="float32")
    version = 1 if task == "binary" else 2
    return FederationSpec(
        format_version=version, silos=entries, features=features, feature_names=tuple(names), **told
    )


def told_after(
    kind: type[Algorithm], parts: Sequence[Rows], names: Sequence[str], task: str, rounds: int, **keys: Any
) -> dict[str, Any]:
    """Return what an algorithm tells after so many rounds over silos with these rows."""
    spec = spec_of(parts, names, task)
    algorithm: Any = kind(task=TASKS[task](), **keys).for_federation(spec)
    model = FlatModel(nn.Linear(parts[0][0].shape[1], 1))
    silos = [
        Silo(k, Shard(None, {"train": Split(x, y, str(y.dtype))}), spec.features, [model], state={})
        for k, (x, y) in enumerate(parts)
    ]
    server, cohort = Server([model]), SummedSilos(silos)
    algorithm.begin(server)
    figures: dict[str, Any] = {}
    for server.round in range(1, rounds + 1):
        figures = algorithm.round(server, cohort)
    return {**figures, **algorithm.told(server)}


def cut(rows: Rows, draw: np.random.Generator, most: int) -> list[Rows]:
    """Return the rows, shuffled, as up to `most` silos of one row or more."""
    n = len(rows[0])
    order = draw.permutation(n)
    places = np.sort(draw.choice(np.arange(1, n), draw.integers(0, min(most, n)), replace=False))
    return [*zip(*(np.split(column[order], places) for column in rows), strict=True)]
