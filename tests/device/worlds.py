"""The jobs that are trained on the fake accelerator."""

from __future__ import annotations

from typing import Any

from scenarios import job
from vertical import split

Job = dict[str, Any]
NAMES = ["adam", "feddf", "normalised", "qsgd", "median", "batched", "mirror"]
SPLIT = "split"
"""On one rank alone, since no rank may take a party's place; it stops after a round and goes on."""
ODD = ["adam", "feddf"]
"""These train, too, while the accelerator rounds otherwise than the CPU, as a GPU does."""
LAST = "mirror"
"""Of three ranks the server dies in its second round."""
JOBS = [
    split(SPLIT, rounds=2),
    job(
        "adam",
        rounds=2,
        local={"lr": 0.1, "momentum": 0.9, "steps": 5, "batch_size": 16},
        cohort={"fraction": 0.5, "weights": "uniform"},
        server_optimizer={"name": "adam", "lr": 0.02},
    ),
    job("feddf", rounds=2, shards="many", algorithm={"name": "feddf", "distill_steps": 3}),
    job("normalised", rounds=2, shards="many", model={"name": "scenarios:normalised"}),
    job(
        "qsgd",
        rounds=2,
        shards="many",
        algorithm={"name": "scaffold"},
        compression={"up": "qsgd", "down": "qsgd", "bits": 5, "bucket": 100},
        cohort={"fraction": 0.6},
    ),
    job(
        "batched",
        rounds=2,
        shards="many",
        algorithm={"name": "feddyn"},
        local={"lr": 0.1, "momentum": 0.9, "batch_size": 16, "batched": True, "chunk": 4},
    ),
    job("median", rounds=2, aggregation={"rule": "median"}),
    job("mirror", rounds=3, checkpoint={"every": 9, "mirror": True}),
]
