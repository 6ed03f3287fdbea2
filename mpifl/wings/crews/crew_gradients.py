"""The ranks of a crew take parts of a batch, some each.

Followers keep nothing between two batches. Their models are the leader's parameters, where these lie, and
what they find they write where the leader reads it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, RankLost
from mpifl.data import each
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import Batch, Counted
from mpifl.wings.crews.batch_parts import PartOf, Sums, take_here
from mpifl.wings.crews.crew_world import Crew
from mpifl.wings.crews.parts_training import loss_named
from mpifl.wire import Count, Message

ALIGNED = 64
"""Tensors begin at multiples of so many bytes."""


class Lies(Message):
    """Where a tensor lies in the leader's memory, in bytes from where a batch begins."""

    at: Count
    shape: list[Count]
    dtype: str


class Share(Message):
    """The parts of a batch that a follower takes.

    Attributes:
        loss: The name of the algorithm's method that is minimised; "" for the task's loss.
        serial: Which share, so that no answer is taken for another's.
        model: Which of the algorithm's architectures.
        parameters, batch, sums, gradients: The leader's handles of vectors; a gradient for each part.
        nbytes: Of the batch.
    """

    serial: Count
    model: Count
    loss: str
    precision: Literal["fp32", "bf16"]
    seed: int
    step: Count
    parameters: int
    batch: int
    nbytes: Count
    sums: int
    gradients: dict[int, int]
    parts: dict[int, list[Lies | dict[str, Lies]]]


class Answer(Message):
    """What a follower says: that its share is taken, or why not."""

    serial: Count
    fault: str = ""
    refused: bool = False


class Leader:
    """Has the ranks of a crew take parts, itself among them.

    Args:
        crew: Whose first rank this is.
        models: The algorithm's; their parameters lie where all of the crew read them from now on.
        count: How many parts a batch has.
    """

    def __init__(self, crew: Crew, models: Sequence[FlatModel], count: int) -> None:
        self._crew, self._models = crew, models
        self._each = count // (1 + len(crew.followers))
        self._sums = crew.memory.empty(2 * count, torch.float64)
        self._batch = crew.memory.empty(1 << 16, torch.uint8)
        self._serial = 0
        for model in models:
            model.lie_in(crew.memory.empty(len(model.trained), torch.float32).copy_(model.trained))

    def vectors(self, model: FlatModel, count: int) -> list[Tensor]:
        """Return vectors for as many gradients, where all of the crew read them."""
        return [self._crew.memory.empty(len(model.trained), torch.float32) for _ in range(count)]

    def take(
        self,
        model: FlatModel,
        counted: Counted,
        which: PartOf,
        parts: Mapping[int, Batch],
        vectors: Sequence[Tensor],
    ) -> list[Sums]:
        """Take this rank's parts of a batch while followers take theirs.

        Raises:
            InputError, RuntimeError: a follower's words.
        """
        self._serial += 1
        own = {part: parts[part] for part in parts if part < self._each}
        theirs = {part: parts[part] for part in parts if part >= self._each}
        asked = self._tell(model, which, theirs, vectors) if theirs else []
        sums = take_here(model, counted, which, own, vectors)
        for follower in asked:
            self._await(follower)
        places = [slice(2 * part, 2 * part + 2) for part in theirs]
        return [*sums, *((float(a), float(b)) for a, b in (self._sums[one].tolist() for one in places))]

    def _tell(
        self,
        model: FlatModel,
        which: PartOf,
        parts: Mapping[int, Batch],
        vectors: Sequence[Tensor],
    ) -> list[int]:
        """Have followers begin; return which."""
        memory = self._crew.memory
        lies = self._laid_out(parts)
        common: dict[str, Any] = {
            "serial": self._serial,
            "model": next(nth for nth, one in enumerate(self._models) if one is model),
            "loss": which.loss,
            "precision": which.precision,
            "seed": which.seed,
            "step": which.step,
            "parameters": memory.handle(model.trained),
            "batch": memory.handle(self._batch),
            "nbytes": self._batch.nbytes,
            "sums": memory.handle(self._sums),
        }
        asked = []
        for follower in self._crew.followers:
            mine = [part for part in parts if part // self._each == follower]
            if mine:
                asked.append(follower)
                handles = {part: memory.handle(vectors[part]) for part in mine}
                share = Share(**common, gradients=handles, parts={part: lies[part] for part in mine})
                self._crew.ask(follower, share.encode())
        return asked

    def _laid_out(self, parts: Mapping[int, Batch]) -> dict[int, list[Lies | dict[str, Lies]]]:
        """Write examples where followers read them; return where each lies."""
        end, todo = 0, []

        def place(tensor: Tensor) -> Lies:
            nonlocal end
            at, end = end, end + -(-tensor.nbytes // ALIGNED) * ALIGNED
            todo.append((at, tensor))
            return Lies(at=at, shape=list(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))

        lies = {part: [each(place, column) for column in batch] for part, batch in parts.items()}
        if end > len(self._batch):
            self._batch = self._crew.memory.empty(1 << (end - 1).bit_length(), torch.uint8)
        for at, tensor in todo:
            _at(self._batch, at, tensor.shape, tensor.dtype).copy_(tensor)
        return lies

    def _await(self, follower: int) -> None:
        """Wait until a follower has taken its share.

        Raises:
            InputError, RuntimeError: it could not.
        """
        for _ in range(self._serial):  # earlier ones may not have been waited for
            answer = Answer.model_validate_json(self._crew.await_answer(follower))
            if answer.serial == self._serial:
                break
        else:
            raise RuntimeError("a rank of the crew answers what it was not asked")
        if answer.fault:
            raise (InputError if answer.refused else RuntimeError)(answer.fault)


class Follower:
    """A rank that takes parts of batches for the leader of its crew, and nothing else."""

    def __init__(self, crew: Crew, models: Sequence[FlatModel], algorithm: Algorithm) -> None:
        self._crew, self._models, self._algorithm = crew, models, algorithm
        self._parameters = [0] * len(models)

    def serve(self) -> None:
        """Take shares until the leader wants no more, or has died."""
        with contextlib.suppress(RankLost):
            while record := self._crew.take(0):
                self._crew.post(0, self._answer(Share.model_validate_json(record)).encode())

    def _answer(self, share: Share) -> Answer:
        try:
            self._take(share)
        except InputError as error:
            return Answer(serial=share.serial, fault=str(error), refused=True)
        except Exception as error:
            return Answer(serial=share.serial, fault=f"{type(error).__name__}: {error}")
        return Answer(serial=share.serial)

    def _take(self, share: Share) -> None:
        """Take the parts of a share; write their gradients and sums where the leader reads them."""
        model = self._model(share)
        vectors = [torch.empty(0)] * (1 + max(share.gradients))
        for part, handle in share.gradients.items():
            vectors[part] = self._read(handle, len(model.trained), torch.float32)
        batch = self._read(share.batch, share.nbytes, torch.uint8)
        sums = self._read(share.sums, 2 * len(vectors), torch.float64)
        parts = {part: tuple(_found(batch, one) for one in lies) for part, lies in share.parts.items()}
        which = PartOf(share.precision, share.seed, share.loss, share.step)
        counted = loss_named(self._algorithm, share.loss)
        for part, found in zip(parts, take_here(model, counted, which, parts, vectors), strict=True):
            sums[2 * part : 2 * part + 2] = torch.tensor(found, dtype=torch.float64)

    def _model(self, share: Share) -> FlatModel:
        """Return the model that is asked for, whose parameters are the leader's."""
        model = self._models[share.model]
        if self._parameters[share.model] != share.parameters:
            model.lie_in(self._read(share.parameters, len(model.trained), torch.float32))
            self._parameters[share.model] = share.parameters
            model.module.train()
        return model

    def _read(self, handle: int, length: int, dtype: torch.dtype) -> Tensor:
        return self._crew.memory.attach(self._crew.process_of(0), handle, length, dtype)


def _found(batch: Tensor, lies: Lies | dict[str, Lies]) -> Any:
    """Return a column of examples where the leader has written it."""
    return each(lambda one: _at(batch, one.at, one.shape, getattr(torch, one.dtype)), lies)


def _at(batch: Tensor, at: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    nbytes = torch.Size(shape).numel() * dtype.itemsize
    return batch[at : at + nbytes].view(dtype).view(tuple(shape))
