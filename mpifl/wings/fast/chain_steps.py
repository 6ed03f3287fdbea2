"""Steps of a perceptron: along a gradient by formulas, or by one matrix product for each large layer.

The gradient of a large W need not be stored: a plain step W -= lr g^T a is one product that adds to W. Memory
traffic limits a step of a large perceptron, and this saves a quarter of its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from mpifl.data import rows
from mpifl.silo.steps import Batch, Constant, Found, Proximal, Step, Training, along, by_autograd, is_plain
from mpifl.wings.fast.chain_formulas import Chain, LayerGradient, chain

SMALLEST = 1 << 18
"""The least number of weights for which one product is faster: a megabyte, more than a core's cache."""


class ByChain:
    """The gradient of a chain, by formulas."""

    def __init__(self, t: Training, chain: Chain) -> None:
        self._model, self._chain, self._autograd = t.model, chain, by_autograd(t)
        self.total = self._autograd.total

    def __call__(self, batches: Sequence[Batch]) -> Found | None:
        """Return the gradient; it is flat if formulas have computed it."""
        [batch] = batches
        if (found := self._chain.taken(batch)) is None:
            return self._autograd(batches)
        for link, a, g in found.parts:
            link.learn(g, a)  # type: ignore[misc]
        self.total.add_(found.loss, alpha=rows(batch[1]))
        return self._model.grad


class ChainStep:
    """Plain steps of a chain with large layers, each of them by one product."""

    optimizer = None

    def __init__(self, t: Training, chain: Chain) -> None:
        self._model, self._correct, self._chain = t.model, t.correct, chain
        self._plain = along(t, by_autograd(t))
        self.total, self._large = self._plain.total, large_of(chain)
        self._data = [p.detach() for p in t.model.parameters]
        here = {id(p) for layer in set(chain.learning) - self._large for p in layer.parameters()}
        views = zip(t.model.parameters, self._data, t.model.views(t.model.grad), strict=True)
        self._small = [(data, gradient) for p, data, gradient in views if id(p) in here]

    def __call__(self, batches: Sequence[Batch], lr: float) -> None:
        """Take one step."""
        [batch] = batches
        if (found := self._chain.taken(batch)) is None:
            self._plain(batches, lr)
            return
        self.total.add_(found.loss, alpha=rows(batch[1]))
        if isinstance(self._correct, Constant | Proximal):
            self._correct.descend(self._model.trained, lr)
        for part in found.parts:
            self._learn(part, lr)
        before = [(data, g) for data, g in zip(self._data, found.before, strict=False) if g is not None]
        for data, gradient in [*self._small, *before]:
            data.add_(gradient, alpha=-lr)

    def _learn(self, part: LayerGradient, lr: float) -> None:
        """Take a large layer's step; for a small layer write the gradient."""
        layer: Any = part.link.layer
        if layer not in self._large:
            part.link.learn(part.g, part.a)  # type: ignore[misc]
            return
        layer.weight.data.addmm_(part.g.t(), part.a, alpha=-lr)
        if layer.bias is not None:
            layer.bias.data.add_(part.g.sum(0), alpha=-lr)

    def finish(self) -> None:
        """Do nothing, since no steps wait."""


def by_formulas(t: Training) -> Step | None:
    """Return the step by formulas if the model is a chain in float32 with a loss of outputs; else None."""
    if t.loss.of_outputs is None or not t.settings.full or t.settings.accumulate_batches > 1:
        return None
    if (found := chain(t.model, t.loss.of_outputs, with_front=is_plain(t))) is None:
        return None
    if is_plain(t) and large_of(found):
        return ChainStep(t, found)
    return None if found.front else along(t, ByChain(t, found))


def large_of(chain: Chain) -> set[nn.Module]:
    """Return the layers for which a step by one product is faster."""
    return {layer for layer in chain.learning if layer.weight.numel() >= SMALLEST}  # type: ignore[operator]
