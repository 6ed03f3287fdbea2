"""Run on every rank: train each job by crews of 4, 2 and 1 of five ranks; one goes on with another crew."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from scenarios import job
from torch import nn

from mpifl.common import InputError
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wire.launching.joining import world
from mpifl.wire.transport import Transport

ADAM = {"optimizer": "adam", "lr": 0.01, "batch_size": 30, "clip_norm": 1.0}
JOBS = {
    "fedavg": {},
    "momentum": {"local": {"lr": 0.1, "momentum": 0.9, "batch_size": 9}, "data": {"augment": "flip-crop"}},
    "adam": {"local": ADAM, "model": {"name": "crewed:dropping"}, "cohort": {"fraction": 0.5}},
    "weighted": {"task": {"name": "classification", "weights": [float(i) for i in range(1, 11)]}},
    "scored": {"evaluate": {"at": "workers", "batch_size": 50}},
    **{name: {"algorithm": {"name": name}} for name in ("scaffold", "fedprox", "fednova", "ditto", "moon")},
}
CREWS = (4, 2, 1)


def dropping(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, classes))


def jobs(shards: Path, ranks: int, parts: int = 4) -> Iterator[dict[str, Any]]:
    """Yield each job, by so many ranks a silo."""
    for name, tables in JOBS.items():
        small = {"rounds": 2, "local": {"lr": 0.1, "batch_size": 30}, **tables}
        yield {**job(name, str(shards), **small), "silo": {"ranks": ranks, "parts": parts}}


def refusal(transport: Transport, given: dict[str, Any], out: Path) -> str:
    try:
        train(given, out, (), False, transport, wings_of=wings_of)
    except InputError as error:
        return str(error)
    return ""


def main(shards: Path, out: Path) -> None:
    transport = world()
    for ranks in CREWS:
        for given in jobs(shards, ranks):
            train(given, out / f"{given['name']}-{ranks}", (), False, transport, wings_of=wings_of)
    for ranks, rounds in ((2, 1), (4, 2)):
        (given,) = (one for one in jobs(shards, ranks) if one["name"] == "adam")
        train({**given, "rounds": rounds}, out / "resumed", (), ranks == 4, transport, wings_of=wings_of)
    first = next(jobs(shards, 3, 3))
    batchnorm = {**first, "silo": {"ranks": 2}, "model": {"name": "scenarios:normalised"}}
    refused = [refusal(transport, given, out / "refused") for given in (first, batchnorm)]
    if transport.is_server:
        (out / "refused.json").write_text(json.dumps(refused))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
