"""FedAvg without a framework (two processes, plain torch,
an average in shared memory) and the jobs it is timed on."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, multiprocessing as mp, nn

WORKERS, BATCH, LR, EXAMPLES = 2, 10, 0.1, 600
PATIENCE = 120.0
"""Seconds after which a process that waits for the other gives up."""


@dataclass(frozen=True)
class Task:
    """A training: silos of 600 MNIST images, a perceptron, how much a drawn silo does in a round."""

    about: str
    silos: int
    drawn: int
    hidden: tuple[int, ...] = (200, 200)
    steps: int | None = None
    """Batches a silo and round, or else an epoch."""

    @property
    def steps_of_worker(self) -> int:
        """Training steps of a worker in a round."""
        return (self.steps or EXAMPLES // BATCH) * self.drawn // WORKERS


TASKS = {
    "J1": Task("10 silos, 2NN, E = 1, all take part", silos=10, drawn=10),
    "J2": Task(
        "4 silos, 11.0 M parameters, one step a round, all take part", 4, 4, hidden=(2943, 2943), steps=1
    ),
    "J3": Task("100 silos, C = 0.1, 2NN, E = 1", silos=100, drawn=10),
}


def two_nn() -> nn.Module:
    """Return the 2NN of McMahan et al. 2017 on MNIST."""
    return perceptron((200, 200))


def perceptron(hidden: Sequence[int]) -> nn.Module:
    """Return 784 pixels, ReLU layers of these widths, 10 classes."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in itertools.pairwise((784, *hidden)):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], 10))


def seconds_of_rounds(
    x: np.ndarray, y: np.ndarray, task: Task, rounds: int, device: str = "cpu"
) -> list[float]:
    """Train for some rounds on silos that share the examples evenly; return the seconds of each round.

    On a device the examples stay there. What the two processes hand over lies in shared memory all the same.
    """
    torch.set_num_threads(1)
    data = torch.tensor(x, dtype=torch.float32).div_(255), torch.tensor(y)
    start = nn.utils.parameters_to_vector(perceptron(task.hidden).parameters()).detach()
    slots = torch.zeros(2, WORKERS, len(start)).share_memory_()
    ends = torch.zeros(rounds + 1, dtype=torch.float64).share_memory_()
    barrier = mp.get_context("spawn").Barrier(WORKERS)
    workers = mp.spawn(work, (task, data, start, slots, ends, barrier, device), WORKERS, join=False)
    try:
        while not workers.join(PATIENCE):
            pass
    finally:
        for process in workers.processes:
            process.kill()
    seconds: list[float] = ends.diff().tolist()
    return seconds


def work(
    rank: int,
    task: Task,
    data: tuple[Tensor, Tensor],
    start: Tensor,
    slots: Tensor,
    ends: Tensor,
    barrier,
    device: str = "cpu",
) -> None:
    """Train one worker's silos in each round from `start`, shape [P]; the end of a round is noted in `ends`.

    A round's mean is the sum over the workers' `slots`, shape [2, WORKERS, P], in whose halves the rounds
    take turns.
    """
    torch.set_num_threads(1)
    x, y = (part.to(device) for part in data)
    shards = list(zip(x.chunk(task.silos), y.chunk(task.silos), strict=True))
    model, w = perceptron(task.hidden).to(device), start.to(device, copy=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    if rank == 0:
        ends[0] = time.perf_counter()
    for round in range(len(ends) - 1):
        drawn = random.Random(round).sample(range(task.silos), task.drawn)  # the same on both sides
        handed = slots[round % 2, rank].zero_()  # the other half may still be read from the round before
        mine = handed.to(device)
        for silo in drawn[rank::WORKERS]:
            _train(model, optimizer, w, *shards[silo], task.steps)
            for part, p in _parts(mine, model):
                part.add_(p, alpha=1 / task.drawn)
        if mine is not handed:
            handed.copy_(mine)
        barrier.wait(PATIENCE)
        if mine is handed:
            torch.add(*slots[round % 2], out=w)
        else:
            w.copy_(torch.add(*slots[round % 2]))
        if rank == 0:
            ends[round + 1] = time.perf_counter()


def _train(
    model: nn.Module, optimizer: torch.optim.SGD, w: Tensor, x: Tensor, y: Tensor, steps: int | None
) -> None:
    """Train an epoch from w, shape [P], or so many steps of one."""
    for part, p in _parts(w, model):
        p.copy_(part)
    order = torch.randperm(len(y))[: steps and steps * BATCH].to(x.device)
    for batch, labels in zip(x[order].split(BATCH), y[order].split(BATCH), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()


def _parts(vector: Tensor, model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each parameter's part of a vector, shape [P], and the parameter, both flat."""
    parameters = [p.detach().view(-1) for p in model.parameters()]
    return zip(vector.split([len(p) for p in parameters]), parameters, strict=True)
