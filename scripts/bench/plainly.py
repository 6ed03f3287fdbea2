"""Algorithms for `checkpoint.py` whose server writes, where a round asks for it, what a checkpoint would hold
plainly.

PLAIN=FOLDER     where; files stay there as checkpoints do, the oldest goes
VECTORS=N        how many vectors each silo keeps
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import Tensor

from mpifl.algorithms.algorithm import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.scaffold import Scaffold
from mpifl.algorithms.server import Server

EVERY, KEPT = 2, 3
"""A plain write in every other round, the first among them; and how many stay."""


def write_plainly(server: Server, cohort: Cohort) -> dict[str, float]:
    """Write as many bytes as a checkpoint has to one new file and flush it to the disk;
    return the seconds."""
    if "PLAIN" not in os.environ or server.round % EVERY:
        return {}
    state = [value for value in server.state.values() if isinstance(value, Tensor)]
    silos = int(os.environ["VECTORS"]) * cohort.population * server.state["w"].nbytes
    content = torch.ones(sum(tensor.nbytes for tensor in state) + silos, dtype=torch.uint8).numpy().data
    folder = Path(os.environ["PLAIN"])
    folder.mkdir(exist_ok=True)
    began = time.perf_counter()
    with (folder / f"{server.round:06d}").open("wb", buffering=0) as file:
        written = 0
        while written < len(content):
            written += file.write(content[written:])
        os.fsync(file.fileno())
    for old in sorted(folder.iterdir())[:-KEPT]:
        old.unlink()
    return {"plain_seconds": time.perf_counter() - began, "plain_bytes": len(content)}


class PlainFedAvg(FedAvg):
    """FedAvg and a plain write."""

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Run a round of FedAvg."""
        return {**super().round(server, cohort), **write_plainly(server, cohort)}


class PlainScaffold(Scaffold):
    """SCAFFOLD and a plain write."""

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Run a round of SCAFFOLD."""
        return {**super().round(server, cohort), **write_plainly(server, cohort)}
