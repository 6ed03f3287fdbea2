"""FedAvg without a framework: two processes, plain torch, and an average in shared memory."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor, nn
from torch import multiprocessing as mp
from torch.nn.utils import parameters_to_vector

WORKERS, BATCH, LR = 2, 10, 0.1
PATIENCE = 120.0
"""Seconds after which a process that waits for the other gives up."""


def two_nn() -> nn.Module:
    """Return the 2NN of McMahan et al. 2017 on MNIST."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


def seconds_of_rounds(x: np.ndarray, y: np.ndarray, silos: int, rounds: int) -> list[float]:
    """Train for some rounds and return the seconds that each took."""
    torch.set_num_threads(1)
    size = len(x) // silos
    pixels = torch.tensor(x, dtype=torch.float32).div_(255).split(size)
    shards = list(zip(pixels, torch.tensor(y).split(size), strict=True))
    start = parameters_to_vector(two_nn().parameters()).detach()
    slots = torch.zeros(2, WORKERS, len(start)).share_memory_()
    ends = torch.zeros(rounds + 1, dtype=torch.float64).share_memory_()
    barrier = mp.get_context("spawn").Barrier(WORKERS)
    workers = mp.spawn(_work, (shards, start, slots, ends, barrier), WORKERS, join=False)
    try:
        while not workers.join(PATIENCE):
            pass
    finally:
        for process in workers.processes:
            process.kill()
    seconds: list[float] = ends.diff().tolist()
    return seconds


def _work(rank: int, shards: list[tuple[Tensor, Tensor]], w: Tensor, slots: Tensor, ends: Tensor, barrier) -> None:
    torch.set_num_threads(1)
    model = two_nn()
    total = sum(len(y) for _, y in shards)
    for round in range(len(ends)):
        if rank == 0:
            ends[round] = time.perf_counter()
        mine = slots[round % 2, rank].zero_()  # the other half may still be read from the round before
        for x, y in shards[rank::WORKERS]:
            _train(model, w, x, y)
            mine.add_(parameters_to_vector(model.parameters()).detach(), alpha=len(y) / total)
        barrier.wait(PATIENCE)
        w = slots[round % 2].sum(0)


def _train(model: nn.Module, w: Tensor, x: Tensor, y: Tensor) -> None:
    """Train an epoch from w, shape [P]."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    parameters = list(model.parameters())
    with torch.no_grad():
        for p, part in zip(parameters, w.split([p.numel() for p in parameters]), strict=True):
            p.copy_(part.view_as(p))
    order = torch.randperm(len(y))
    for batch, labels in zip(x[order].split(BATCH), y[order].split(BATCH), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
