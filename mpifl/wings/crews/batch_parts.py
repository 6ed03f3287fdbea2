"""A batch's gradient by parts: each part by itself, by whomever, and all added up in one fixed order.

So its bits depend on how many parts there are, and not on who has taken which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from mpifl.common import rng
from mpifl.data import each, rows
from mpifl.silo.parameters import FlatModel, in_precision, scalar
from mpifl.silo.steps import Batch, Counted, Method, Step, Training, along, counted_of

Added = TypeVar("Added")


@dataclass(frozen=True)
class PartOf:
    """Which parts are taken: of which step of which training.

    Attributes:
        precision: What passes compute in.
        seed: The training's own, which what is random in the model is derived from.
        loss: The name by which other ranks know what is minimised; see `loss_named`.
        step: The batch's number in the training, from 0.
    """

    precision: str
    seed: int
    loss: str = ""
    step: int = 0


Sums: TypeAlias = tuple[float, float]
"""The sum of a part's losses, and what it is to be divided by."""
Takes: TypeAlias = Callable[[FlatModel, Counted, PartOf, Mapping[int, Batch], Sequence[Tensor]], list[Sums]]
"""(model, counted, which, {part: its examples}, a vector of shape [P] for each part's gradient) -> the sums
of each part."""


@dataclass(frozen=True)
class Parts(Method):
    """Trains along gradients of batches by parts.

    Attributes:
        count: How many parts a batch is cut into; fewer, if it has fewer examples.
        takes: Who takes them.
        which: The training, at its first step.
        vectors: A vector for each part, shape [P].
    """

    count: int
    takes: Takes
    which: PartOf
    vectors: Sequence[Tensor]

    def step(self, t: Training) -> Step:
        """Return what takes the steps."""
        return along(t, ByParts(self, t))


class ByParts:
    """The gradient of each step, by parts."""

    def __init__(self, by: Parts, t: Training) -> None:
        self._by, self._model, self._which = by, t.model, by.which
        self._counted = counted_of(t.loss)
        self.total = torch.zeros((), device=t.model.device)

    def __call__(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Return it for each parameter, and add the loss to the total."""
        [batch] = batches
        parts, vectors = cut(batch, self._by.count), self._by.vectors
        sums = self._by.takes(self._model, self._counted, self._which, parts, vectors)
        self._which = replace(self._which, step=self._which.step + 1)
        whole, many = (by_tree(list(one), lambda a, b: a + b) for one in zip(*sums, strict=True))
        gradient = by_tree(list(vectors[: len(parts)]), torch.Tensor.add_)
        self.total.add_(whole / (many or 1.0) * rows(batch[1]))
        return self._model.views(gradient.div_(many or 1.0))


def take_here(
    model: FlatModel,
    counted: Counted,
    which: PartOf,
    parts: Mapping[int, Batch],
    vectors: Sequence[Tensor],
) -> list[Sums]:
    """Take parts one after another; write the gradient of each one's sum, and return the sums."""
    counted = in_precision(which.precision, counted)
    sums = []
    for part, examples in parts.items():
        # in memory of its own: some operations round otherwise where numbers lie otherwise
        batch = [each(torch.clone, column) for column in examples]
        with rng.inside(which.seed, "part", part, which.step, device=model.device):
            whole, many = counted(model.module, *batch)
            found = model.gradients(scalar(whole))
            torch.cat([one.reshape(-1) for one in found], out=vectors[part])
            sums.append((float(whole.detach()), float(many)))
    return sums


def cut(batch: Batch, count: int) -> dict[int, Batch]:
    """Cut a batch into parts of consecutive examples, as equal as can be and none empty, as views."""
    many = rows(batch[1])
    ends = [many * (part + 1) // count for part in range(count)] if many >= count else [*range(1, many + 1)]
    begins = [0, *ends[:-1]]
    return {
        part: tuple(each(lambda one, where=slice(begin, end): one[where], column) for column in batch)
        for part, (begin, end) in enumerate(zip(begins, ends, strict=True))
    }


def by_tree(found: list[Any], add: Callable[[Any, Any], Any]) -> Any:
    """Add up by a binary tree over the places, which is the same whoever has brought what."""
    step = 1
    while step < len(found):
        for place in range(0, len(found) - step, 2 * step):
            found[place] = add(found[place], found[place + step])
        step *= 2
    return found[0]
