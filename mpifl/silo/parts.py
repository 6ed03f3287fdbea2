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
from mpifl.silo.flat import FlatModel, Objective, in_precision, scalar
from mpifl.silo.optimizers import Batch
from mpifl.silo.steps import Counted, over_examples
from mpifl.silo.way import Way

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


class Parts(Way):
    """Gradients of batches by parts.

    Args:
        counted: The objective as a sum, and what it is to be divided by.
        count: How many parts a batch is cut into; fewer, if it has fewer examples.
        takes: Who takes them.
        which: The training, at its first step.
        vectors: A vector for each part, shape [P].
    """

    def __init__(
        self, counted: Counted, count: int, takes: Takes, which: PartOf, vectors: Sequence[Tensor]
    ) -> None:
        self._counted, self._count, self._takes = counted, count, takes
        self._which, self._vectors = which, vectors

    def gradients(self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor) -> list[Tensor]:
        """Return the gradient for each parameter, and add the loss to the total."""
        parts = cut(batch, self._count)
        sums = self._takes(model, self._counted, self._which, parts, self._vectors)
        self._which = replace(self._which, step=self._which.step + 1)
        whole, many = (by_tree(list(one), lambda a, b: a + b) for one in zip(*sums, strict=True))
        gradient = by_tree(list(self._vectors[: len(parts)]), torch.Tensor.add_)
        total.add_(whole / (many or 1.0) * rows(batch[1]))
        return model.views(gradient.div_(many or 1.0))


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


def counted_of(objective: Objective, counted: Counted | None) -> Counted:
    """Return an objective as a sum with what it is divided by: its own, or as a mean over examples."""
    return counted or over_examples(objective)
