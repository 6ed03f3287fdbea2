"""DP-SGD (Abadi et al. 2016, Algorithm 1): the secret batch, the clipped sum and the noise of each step.

Each step draws examples in secret, each with the same probability. It clips each example's gradient, and adds
noise to the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mpifl.data import rows
from mpifl.data.batches import Batches, ahead
from mpifl.silo.parameters import FlatModel, Objective
from mpifl.silo.steps import Batch, Method, OfOutputs, Step, Training, along
from mpifl.wings.dpsgd.clipped import chosen, clipped_sum
from mpifl.wings.privacy import Draws

MOST_ROWS = 1024
"""The most examples of one pass."""
TRIED = 4
"""How many examples the formulas of layers are tried on."""


@dataclass(frozen=True)
class Drawn(Sequence[Any]):
    """A batch whose first `real` examples were drawn; the others pad it to a fixed size."""

    parts: tuple[Any, ...]
    real: int

    def __getitem__(self, i: Any) -> Any:
        return self.parts[i]

    def __len__(self) -> int:
        return len(self.parts)


@dataclass
class DPSGD(Method):
    """Noised sums of clipped gradients over batches that are drawn in secret.

    Attributes:
        secret: The site's secret, from which draws follow.
        purpose: The purpose of the draws.
        clip: C, the clip norm.
        noise: z, the noise multiplier.
        rate: q, the probability that an example is drawn.
        steps: How many steps there are.
        expected: B, the expected number of drawn examples. Sums are divided by it.
        alone: Whether noise is added here; if not, it is added to the sum over all silos.
        of_outputs: The objective as a loss of outputs, if it is one.
        drawn, clipped: How many examples were drawn so far, and how many of their gradients were clipped.
    """

    secret: bytes
    purpose: str
    clip: float
    noise: float
    rate: float
    steps: int
    expected: float
    alone: bool = True
    of_outputs: OfOutputs | None = None
    drawn: int = 0
    clipped: int = 0
    _few: Batch = field(default=(), repr=False)
    _size: int = 1
    _taken: int = 0
    _flat: Tensor = field(default_factory=lambda: torch.empty(0), repr=False)
    _views: list[Tensor] = field(default_factory=list, repr=False)
    """The gradient of a step: `_flat` as one vector, `_views` as views of it for each parameter."""

    def batches(self, t: Training) -> Iterator[Sequence[Batch]]:
        """Yield the batch of each step."""
        return ((batch,) for batch in self.drawn_from(t.data, t.beside))

    def drawn_from(self, examples: Batches, beside: Sequence[Tensor] = ()) -> Iterator[Batch]:
        """Yield a batch of drawn examples for each step, padded to a multiple of a fixed size.

        Ragged examples are padded to the longest possible length, not to the batch's longest. Otherwise the
        longest example could affect the gradients of all others.
        """
        examples = examples.of_one_length()
        count, size = len(examples), self.expected
        self._size = min(count, MOST_ROWS, math.ceil(size + 2 * math.sqrt(size)))
        self._few = self._gathered(examples, torch.arange(count)[:TRIED], beside)

        def batch(step: int) -> Batch:
            drawn = Draws(self.secret, self.purpose, step, "batch").chosen(count, self.rate)
            passes = max(-(-len(drawn) // self._size), 1)
            filled = torch.cat([drawn, drawn.new_zeros(passes * self._size - len(drawn))])
            return Drawn(self._gathered(examples, filled, beside), len(drawn))  # type: ignore[return-value]

        steps = list(zip(range(self.steps), strict=True))
        yield from ahead(batch, steps, by_a_thread=examples.travels)

    def step(self, t: Training) -> Step:
        """Return the step along noised gradients."""
        self.of_outputs = t.loss.of_outputs if t.settings.full else None
        return along(t, _Noised(self, t))

    def noised(self, model: FlatModel, objective: Objective, batch: Any) -> list[Tensor]:
        """Return the noised mean of the clipped gradients for each parameter; the next call overwrites it."""
        found = self.clipped_mean(model, objective, batch)
        if self.alone:
            draws = Draws(self.secret, self.purpose, self._taken, "noise")
            draws.add_normal(self._flat, self.noise * self.clip / self.expected)
            self._taken += 1
        return found

    def clipped_mean(self, model: FlatModel, objective: Objective, batch: Any) -> list[Tensor]:
        """Return the sum of the clipped gradients divided by B for each parameter, without noise."""
        by = clipped_sum(model, objective, _key(objective), self._few, self.clip, self.of_outputs)
        if len(self._flat) != len(model.trained):
            self._flat = torch.empty_like(model.trained)
            self._views = model.views(self._flat)
        for first in range(0, rows(batch[1]), self._size):
            real = min(max(batch.real - first, 0), self._size)
            into = None if first else self._views
            sums, norms = by(self._pass(batch, first), real, self.clip, into, 1 / self.expected)
            self.clipped += int((norms > self.clip).sum())
            if first:
                torch._foreach_add_(self._views, sums)
        self.drawn += batch.real
        return self._views

    def _pass(self, batch: Batch, first: int) -> Batch:
        """Return the examples of one pass, beginning at `first`; mostly this is the whole batch."""
        if rows(batch[1]) == self._size:
            return batch
        return tuple(chosen(one, slice(first, first + self._size)) for one in batch)

    @staticmethod
    def _gathered(examples: Batches, indices: Tensor, beside: Sequence[Tensor]) -> tuple[Any, ...]:
        return (*examples.take(indices), *(one[indices] for one in beside))


@dataclass(frozen=True)
class SumsOnce:
    """A release of sums over all rows as one step, which draws no examples."""

    noise: float
    clip: float = 1.0
    rate: float = 1.0
    steps: int = 1
    drawn: int = 0
    clipped: int = 0


class _Noised:
    """The gradient of each step. Its total loss is NaN: a loss is a query that no noise protects."""

    def __init__(self, way: DPSGD, t: Training) -> None:
        self._way, self._t = way, t
        self.total = torch.full((), math.nan, device=t.model.device)

    def __call__(self, batches: Sequence[Batch]) -> list[Tensor]:
        """Return the gradient for each parameter."""
        [batch] = batches
        return self._way.noised(self._t.model, self._t.objective, batch)


def _key(objective: Any) -> Any:
    """Return a key for an objective: its code, and the object whose method it is."""
    function = getattr(objective, "__func__", objective)
    return getattr(function, "__code__", function), id(getattr(objective, "__self__", None))
