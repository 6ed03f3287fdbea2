"""The jobs that are trained on the fake accelerator."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
from scenarios import YES_OR_NO, job
from torch import Tensor
from vertical import split

from mpifl import FedAvg, Silo, Update
from mpifl.report.observers import Record
from mpifl.wire.launching import survivable
from mpifl.wire.transport import Transport

Job = dict[str, Any]
NAMES = ["adam", "feddf", "normalised", "qsgd", "median", "batched", "scored", "fails", "mirror"]
NAMES += ["newton", "tableone"]
FAILS = "fails"
"""Of three ranks the last one's accelerator fails in the second round."""
SPLIT = "split"
"""On one rank alone, since no rank may take a party's place; it stops after a round and continues."""
ODD = ["adam", "feddf", "scored"]
"""These train, too, while the accelerator rounds otherwise than the CPU, as a GPU does."""
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
        compression={"upload": "qsgd", "download": "qsgd", "bits": 5, "bucket": 100},
        cohort={"fraction": 0.6},
    ),
    job(
        "batched",
        rounds=2,
        shards="many",
        algorithm={"name": "feddyn"},
        local={"lr": 0.1, "momentum": 0.9, "batch_size": 16, "batch_silos": True, "silos_per_step": 4},
    ),
    job(
        "scored",
        rounds=2,
        task={"name": "classification", "metrics": ["accuracy", "auroc", "calibration_error"]},
        evaluate={"where": "workers", "batch_size": 50},
    ),
    job("median", rounds=2, aggregation={"rule": "median"}),
    job("newton", rounds=2, **YES_OR_NO, algorithm={"name": "newton", "ridge": 0.5}, local={}),
    job("tableone", rounds=1, **YES_OR_NO, algorithm={"name": "tableone"}, local={}),
    job(FAILS, rounds=2, algorithm={"name": "worlds:Fails"}),
    job("mirror", rounds=3, checkpoint={"every": 9, "mirror": True}),
]


def dies(job: Job, transport: Transport) -> bool:
    """Whether this rank is to die in a job: the server of several, which has a mirror."""
    return job["name"] == "mirror" and transport.size > 1 and transport.is_server and survivable()


def death_in(record: Record) -> bool:
    """Die after the second round."""
    if record["round"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return False


class Fails(FedAvg):
    """FedAvg with an index out of range, which only a device does not survive."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        if silo.round == 1 and survivable() and os.environ.get("OMPI_COMM_WORLD_RANK") == "2":
            w.index_select(0, torch.tensor([len(w)], device=w.device))
        return super().train(silo, w)
