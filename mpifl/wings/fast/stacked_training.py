"""Trainings of several silos as one: each step is taken for all of them at once.

A silo keeps its own order of batches, its own optimizer and its own number of steps. After its last step its
row is copied out of the stack. Nobody reads the row afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mpifl.common import noted
from mpifl.common.machine import DEBUGGING, debugging
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import (
    OPTIMIZERS,
    OWN_WORK,
    SGD,
    USUAL,
    Batch,
    Constant,
    LocalRun,
    Number,
    Optimizer,
    Proximal,
    Training,
    clip,
    rows_of,
    train,
)
from mpifl.wings.fast.codegen import NotCompiled
from mpifl.wings.fast.compiled import identity
from mpifl.wings.fast.stacked_step import Stack

Outcome: TypeAlias = Callable[[Training], LocalRun]
"""A training's result: call it with the training to get the run, or to raise the error."""
_TOLD: set[str] = set()
_STACKS: WeakKeyDictionary[FlatModel, dict[Hashable, Stack | NotCompiled]] = WeakKeyDictionary()


def train_together(asked: Sequence[Training], size: int) -> list[Outcome]:
    """Train several silos together; return the result of each.

    If a silo's training cannot be batched, its result is `train`, which trains it alone when called. The
    first worker of a node says the reason once.

    Args:
        asked: The training of each silo.
        size: How many silos one step covers; a smaller group is padded.
    """
    outcomes: list[Outcome] = [train] * len(asked)
    groups: dict[Hashable, list[tuple[int, Lane]]] = {}
    for place, one in enumerate(asked):
        try:
            _check(one)
            lane = Lane(one)
            groups.setdefault(lane.key(size), []).append((place, lane))
        except NotCompiled as reason:
            _tell(one.model, reason)
        except Exception as error:
            outcomes[place] = Failed(error)
    for group in groups.values():
        try:
            stack = _stack(group[0][1], size)
        except NotCompiled as reason:
            _tell(asked[0].model, reason)
            continue
        for begin in range(0, len(group), size):
            places, lanes = zip(*group[begin : begin + size], strict=True)
            for place, outcome in zip(places, _trained(stack, lanes), strict=True):
                outcomes[place] = outcome
    return outcomes


def why_apart(asked: Training, size: int) -> str:
    """Return why a silo cannot train together with others; "" if it can."""
    try:
        _check(asked)
        _stack(Lane(asked), size)
    except NotCompiled as reason:
        return str(reason)
    return ""


@dataclass(frozen=True)
class Failed:
    """The result of a training that ended with an error."""

    error: Exception

    def __call__(self, asked: Training) -> LocalRun:
        """Raise the error."""
        raise self.error


@dataclass(frozen=True)
class Ended:
    """The result of a training together with others.

    Attributes:
        end: The trained parameters, shape [P].
        losses: The mean loss of each step's batch.
        rows: How many examples each batch had.
        optimizer: The optimizer, with its state after the last step.
    """

    end: Tensor
    losses: Tensor
    rows: Sequence[int]
    optimizer: Optimizer

    def __call__(self, asked: Training) -> LocalRun:
        """Put the trained parameters into the lent model, as `train` does, and return the run."""
        model, examples = asked.model, sum(self.rows)
        model.trained.copy_(self.end)
        model.module.train()
        loss = float(self.losses.double() @ torch.tensor(self.rows).double()) / examples
        delta = model.delta(asked.start, asked.allocate)
        return LocalRun(delta, model.trained, len(self.rows), examples, loss, self.optimizer)


class Lane:
    """One silo's training, as one row of a stack.

    Attributes:
        asked: The training.
        batch: The batch of the next step; after the last step, the last batch.
        rows: How many examples the batch of each step has.
        optimizer: The silo's optimizer, with its state.
        end: The trained parameters after the last step; None before.
        error: The error that ended the training, if there was one.
    """

    def __init__(self, asked: Training) -> None:
        self.asked = asked
        self.rows = rows_of(asked.settings, len(asked.data))
        self.end: Tensor | None = None
        self.error: Exception | None = None
        self._drawn = USUAL.batches(asked)
        self.batch = self._next()
        self.optimizer = OPTIMIZERS[asked.settings.optimizer](asked.settings, torch.empty(0))

    def key(self, size: int) -> Hashable:
        """Return the key of a group of silos that can share steps: their stack, settings and correction."""
        local, correct = self.asked.settings, self.asked.correct
        mu = correct.mu if isinstance(correct, Proximal) else None
        return self.stack_key(size), type(correct), mu, str(local.model_dump(exclude=OWN_WORK))

    def stack_key(self, size: int) -> Hashable:
        """Return the key of the stack that the training needs."""
        shapes = tuple((tuple(part.shape), part.dtype) for part in self.batch)
        loss = self.asked.loss
        about = identity(loss.mean), loss.weighted is not None, self.asked.settings.precision
        return id(self.asked.model), size, shapes, *about

    def sit(self, stack: Stack, place: int, state: Sequence[Tensor]) -> None:
        """Begin the training in one row of a stack and of the optimizer's state."""
        stack.row(stack.trained, place).copy_(self.asked.start)
        self.optimizer.state = [stack.row(matrix, place) for matrix in state]
        if self.asked.kept is not None:
            self.optimizer.resume(*self.asked.kept)

    def advance(self, step: int, stack: Stack, place: int) -> None:
        """Continue after a step, counted from 1: draw the next batch, or after the last step copy the row."""
        if step < len(self.rows) and self.error is None:
            try:
                with noted(lambda: self.asked.place(step)):
                    self.batch = self._next()
            except Exception as error:
                self.error = error
        elif step == len(self.rows):
            self.end = stack.row(stack.trained, place).clone()
            kept = self.optimizer.state if self.asked.settings.keep_optimizer_state else []
            self.optimizer.state = [vector.clone() for vector in kept]

    def outcome(self, losses: Tensor) -> Outcome:
        """Return the result, given the mean losses of the steps' batches."""
        if self.error is not None:
            return Failed(self.error)
        assert self.end is not None
        return Ended(self.end, losses[: len(self.rows)], self.rows, self.optimizer)

    def _next(self) -> Batch:
        """Return the next batch, padded with examples of weight 0."""
        [batch] = next(self._drawn)
        if not all(isinstance(part, Tensor) for part in batch):
            raise NotCompiled("arrays with names are for the plain way")
        size = self.asked.settings.batch_size
        lacks = 0 if size == "full" else size - len(batch[1])
        if not lacks:
            return batch
        return tuple(torch.cat([part, part[:1].expand(lacks, *part.shape[1:])]) for part in batch)


def _check(asked: Training) -> None:
    """Check that a training can be batched with others; raise NotCompiled if it cannot."""
    model, of_itself = asked.model, not isinstance(asked.correct, Constant | Proximal | None)
    learns = len(model.statistics) + len(model.personal_statistics)
    uneven = any(rows != asked.settings.batch_size for rows in rows_of(asked.settings, len(asked.data)))
    whys = {
        f"{DEBUGGING} is set": debugging(),
        "gradients are taken in a way of their own": asked.method is not None,
        "examples have unequal lengths, and batches no one shape": asked.data.ragged,
        "the model learns running statistics (BatchNorm)": learns,
        "the algorithm corrects gradients by a function of its own": of_itself,
        "a silo's batches are of unequal sizes, and the loss is not a mean over examples": uneven
        and asked.loss.weighted is None,
    }
    if why := next((why for why, holds in whys.items() if holds), ""):
        raise NotCompiled(why)


def _stack(lane: Lane, size: int) -> Stack:
    """Return the stack that a silo's training needs; it is made when it is first needed. Raise NotCompiled if
    such a stack cannot be made."""
    stacks = _STACKS.setdefault(lane.asked.model, {})
    key = lane.stack_key(size)
    if key not in stacks:
        try:
            stack = stacks[key] = Stack(lane.asked, lane.batch, size)
            stack.examine(lane.asked, lane.batch)
        except NotCompiled as reason:
            stacks[key] = reason
    found = stacks[key]
    if isinstance(found, NotCompiled):
        raise found
    return found


def _trained(stack: Stack, lanes: Sequence[Lane]) -> list[Outcome]:
    """Train some silos, at most as many as the stack has rows; return the result of each."""
    first = lanes[0]
    local, descend = first.asked.settings, first.optimizer.descend
    seats = [*lanes, *[first] * (stack.size - len(lanes))]
    state = [torch.zeros_like(stack.trained) for _ in range(first.optimizer.vectors(local))]
    for place, lane in reversed([*enumerate(seats)]):  # so that a silo ends in its own row
        lane.sit(stack, place, state)
    correct, losses = _corrections(stack, seats), []
    steps = max(len(lane.rows) for lane in lanes)
    rates, weights = _rates(seats, steps, stack), _weights(seats, steps, stack)
    for step in range(steps):
        columns = [torch.stack(parts) for parts in zip(*(lane.batch for lane in seats), strict=True)]
        losses.append(stack.take([*columns, *weights[step]]))
        if correct is not None:
            correct(stack.gradient, stack.trained, ())
        if local.clip_norm is not None:
            clip(stack.gradient, local.clip_norm)
        descend(stack.trained, stack.gradient, state, rates[step])
        for place, lane in enumerate(lanes):
            lane.advance(step + 1, stack, place)
    found = torch.stack(losses).cpu()
    return [lane.outcome(found[:, place]) for place, lane in enumerate(lanes)]


def _corrections(stack: Stack, seats: Sequence[Lane]) -> Constant | Proximal | None:
    """Return the silos' corrections of gradients as one correction, with a row for each silo."""
    vectors = torch.zeros_like(stack.trained)
    correct = None
    for place, lane in enumerate(seats):
        correct = lane.asked.correct
        if isinstance(correct, Constant):
            stack.row(vectors, place).copy_(correct.vector)
        elif isinstance(correct, Proximal):
            stack.row(vectors, place).copy_(correct.centre)
    if isinstance(correct, Proximal):
        return Proximal(vectors, correct.mu)
    return Constant(vectors) if isinstance(correct, Constant) else None


def _rates(seats: Sequence[Lane], steps: int, stack: Stack) -> Sequence[Sequence[Number]]:
    """Return the optimizer's rates for each step.

    They are numbers if the settings alone make them equal for all silos, else tensors of shape [size, 1].
    """
    local, own = seats[0].asked.settings, {id(lane): lane for lane in seats}
    lrs = {id_: map(lane.asked.schedule.lr, range(len(lane.rows))) for id_, lane in own.items()}
    found = {id_: [*map(lane.optimizer.rates, lrs[id_])] for id_, lane in own.items()}
    if isinstance(seats[0].optimizer, SGD) and local.constant_rate:
        return [(local.lr,)] * steps
    filled = [found[id(lane)] + found[id(lane)][-1:] * (steps - len(lane.rows)) for lane in seats]
    table = torch.tensor(filled).permute(1, 2, 0).unsqueeze(-1).to(stack.trained)
    return [tuple(numbers) for numbers in table]


def _weights(seats: Sequence[Lane], steps: int, stack: Stack) -> Sequence[Sequence[Tensor]]:
    """Return, for each step, a sequence with the weights of examples, shape [size, n].

    The sequence is empty if the stack takes no weights.
    """
    if not stack.weighted:
        return [()] * steps
    rows = torch.tensor([[*lane.rows, *lane.rows[-1:] * (steps - len(lane.rows))] for lane in seats])
    size = len(seats[0].batch[1])
    rows = rows.t().unsqueeze(-1).to(stack.trained.device)
    table = torch.arange(size, device=rows.device).lt(rows) / rows
    return [(weights,) for weights in table]


def _tell(model: FlatModel, reason: NotCompiled) -> None:
    if model.is_reporter and str(reason) not in _TOLD:
        line = f"[local] batch_silos = true: {reason}; such silos train one after another"
        print(line, file=sys.stderr, flush=True)
    _TOLD.add(str(reason))
