"""A trial of batched steps on this machine: some silos take a few steps, alone and together, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from mpifl.data.shards import FederationSpec, open_shard
from mpifl.run.job import Job
from mpifl.silo import Silo, learnable
from mpifl.silo.steps import LOCAL, OPTIMIZERS, LocalRun, LocalTraining, Training, train
from mpifl.training import models_of
from mpifl.training.beforehand import augment_of
from mpifl.wings.fast.stacked_training import train_together, why_apart
from mpifl.wire import Message

STEPS, TURNS = 5, 3
ENOUGH = 10.0
"""Seconds after which no further turn begins."""
LARGEST = 2 << 30
"""The most bytes of parameters, gradients and optimizers' states for which a trial is made."""


class Trial(Message):
    """The result of a trial.

    Attributes:
        silos: How many silos were trained.
        per_step: How many silos one batched step covers.
        ratio: The time of batched steps divided by that of single steps; None if no steps were taken.
        why: Why no steps were taken; "" if they were.
    """

    silos: int
    per_step: int
    ratio: float | None = None
    why: str = ""


class _Heard(Exception):
    """Carries the training that a silo has asked for."""

    def __init__(self, asked: Training) -> None:
        super().__init__()
        self.asked = asked


def _hear(asked: Training) -> LocalRun:
    raise _Heard(asked)


def try_batching(job: Job, spec: FederationSpec, hosted: Sequence[int], device: torch.device) -> Trial | None:
    """Train some of a rank's silos by a few steps, one after another and together.

    They minimise the task's loss by the job's optimizer, without an algorithm's corrections of gradients.

    Returns:
        The result; None if there are too few silos, or the job refuses batched steps.

    Raises:
        InputError: the job could not start.
    """
    if job.privacy is not None or LOCAL.why_not("batch_silos", job.local) or len(hosted) < 2:
        return None
    algorithm = job.build_algorithm().for_federation(spec)
    local = algorithm.local.lasting(steps=STEPS).model_copy(update={"keep_optimizer_state": False})
    model, *_ = models_of(job, spec, algorithm, device, is_reporter=False)
    tried = hosted[: local.silos_per_step]
    vectors = 2 + OPTIMIZERS[local.optimizer].vectors(local)
    if (size := 4 * vectors * local.silos_per_step * len(model.trained)) > LARGEST:
        why = f"a batched step holds {size / 1e9:.1f} GB, not tried"
        return Trial(silos=len(tried), per_step=local.silos_per_step, why=why)
    silos = [
        Silo(
            id,
            learnable(open_shard(Path(job.shards), spec.silos[id], spec), algorithm.task),
            spec.features,
            [model],
            state={},
            task=algorithm.task,
            objective=algorithm.objective,
            own_objective=algorithm.own_objective,
            augment=augment_of(job, spec),
            trains=_hear,
        )
        for id in tried
    ]
    start = model.trained.clone()
    return _tried([partial(_asked, silo, start, local) for silo in silos], local)


def _asked(silo: Silo, start: torch.Tensor, local: LocalTraining) -> Training:
    try:
        silo.train_locally(start, local)
    except _Heard as heard:
        return heard.asked
    raise AssertionError("a silo trained by itself")


def _tried(silos: Sequence[Callable[[], Training]], local: LocalTraining) -> Trial:
    """Measure both ways in turns, after one turn for warming up. The least time of each counts."""
    if why := next((why for ask in silos if (why := why_apart(ask(), local.silos_per_step))), ""):
        return Trial(silos=len(silos), per_step=local.silos_per_step, why=why)
    until = time.perf_counter() + ENOUGH

    def singly() -> None:
        for ask in silos:
            train(ask())

    def together() -> None:
        asked = [ask() for ask in silos]
        for one, outcome in zip(asked, train_together(asked, local.silos_per_step), strict=True):
            outcome(one)

    taken: dict[Callable[[], None], list[float]] = {singly: [], together: []}
    for turn in range(1 + TURNS):
        for way, seconds in taken.items():
            began = time.perf_counter()
            way()  # a run has its loss as a number, so the device has finished
            seconds += [time.perf_counter() - began] * (turn > 0 or time.perf_counter() > until)
        if time.perf_counter() > until:
            break
    ratio = min(taken[together]) / min(taken[singly])
    return Trial(silos=len(silos), per_step=local.silos_per_step, ratio=ratio)
