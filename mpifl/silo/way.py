"""How a training draws its batches, and what gradient it takes of one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.data import Batches, rows
from mpifl.silo.flat import FlatModel, Objective, scalar
from mpifl.silo.optimizers import Batch
from mpifl.silo.settings import LocalTraining


class Way:
    """The plain way: shuffled batches, and the gradient of the loss."""

    def batches(
        self, examples: Batches, local: LocalTraining, generator: torch.Generator, beside: Sequence[Tensor]
    ) -> Iterator[tuple[Batch, bool]]:
        """Yield the batches of a training, and of each whether it ends a step: an epoch's last does."""
        last, steps = _in_epoch(local, len(examples)), 0
        for _ in range(local.epochs) if local.epochs is not None else itertools.count():
            drawn = examples.shuffled(local.batch_size, generator, beside, drop_last=local.drop_last)
            for place, batch in enumerate(drawn, 1):
                ends = place % local.accumulate == 0 or place == last
                yield batch, ends
                steps += ends
                if steps == local.steps:
                    return

    def total(self, model: FlatModel) -> Tensor:
        """Return where the losses are added up, each times its batch's examples."""
        return torch.zeros((), device=model.device)

    def gradients(self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor) -> list[Tensor]:
        """Return the gradient for each parameter, and add the loss to the total."""
        return model.gradients(loss_at(model, objective, batch, total))

    def gradient(self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor) -> Tensor:
        """Return the flat gradient, shape [P], and add the loss to the total."""
        return model.flatten(self.gradients(model, objective, batch, total))

    def descent(
        self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor
    ) -> Callable[[float], object]:
        """Return what takes a plain step at a learning rate, and add the loss to the total."""
        return partial(model.descend, self.gradients(model, objective, batch, total))

    def lent(self) -> AbstractContextManager[None]:
        """Take hold of the model until this ends."""
        return contextlib.nullcontext()


PLAIN = Way()


def loss_at(model: FlatModel, objective: Objective, batch: Batch, total: Tensor) -> Tensor:
    """Return the loss of a batch, and add it to the total for each example."""
    loss = scalar(objective(model.module, *batch))
    total.add_(loss.detach(), alpha=rows(batch[1]))
    return loss


def steps_of(local: LocalTraining, examples: int) -> int:
    """Return how many steps a training takes over so many examples."""
    return local.steps or (local.epochs or 1) * -(-_in_epoch(local, examples) // local.accumulate)


def rows_of(local: LocalTraining, examples: int) -> list[int]:
    """Return how many examples each batch of a training over so many has."""
    every = _in_epoch(local, examples)
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    epoch = [size] * (every - 1) + [size if local.drop_last else examples - size * (every - 1)]
    return [epoch[step % every] for step in range(steps_of(local, examples) * local.accumulate)]


def check_batches(local: LocalTraining, examples: int, where: str, layer: str) -> None:
    """See that a model that needs two examples to train on is never given a batch of one.

    Args:
        local: How it is trained.
        examples: How many it is trained on.
        where: What the line calls the model.
        layer: What in it needs two examples; "" if nothing does.

    Raises:
        InputError: it is; the line says what would do.
    """
    if layer and (what := why_one_row(local, examples)):
        to_do = "take another size" if what.startswith("each") else "take drop_last = true, or another size"
        to_do = "leave that silo out" if local.batch_size == "full" else to_do
        said = f"{what}, and {where} cannot train on one row ({layer}); {to_do}"
        raise InputError(f"[local] batch_size = {local.batch_size}: {said}")


def why_one_row(local: LocalTraining, examples: int) -> str:
    """Say which batch of so many examples has one row; "" if none has that is trained on."""
    if not examples:
        return ""
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    if size == 1:
        return "each batch has one row"
    reached = steps_of(local, examples) * local.accumulate > examples // size
    last = examples % size == 1 and not local.drop_last
    return f"of {examples:,} rows the last batch has one" if last and reached else ""


def _in_epoch(local: LocalTraining, examples: int) -> int:
    """Return how many batches an epoch has."""
    size = examples if local.batch_size == "full" else min(local.batch_size, examples)
    return examples // size if local.drop_last else -(-examples // size)
