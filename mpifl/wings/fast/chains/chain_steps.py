"""Steps of a perceptron: along a gradient by formulas, or by one matrix product for each large layer.

The gradient of a large W need not be stored: a plain step W -= lr g^T a is one product that adds to W. Memory
traffic limits a step of a large perceptron, and this saves a quarter of its time.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mpifl.data import rows
from mpifl.silo.steps import (
    Batch,
    Constant,
    Found,
    InPlace,
    Proximal,
    Step,
    Training,
    along,
    by_autograd,
    is_plain,
)
from mpifl.wings.fast.chains import large_layer_step
from mpifl.wings.fast.chains.chain_formulas import Chain, LayerGradient, chain
from mpifl.wings.fast.chains.dense_passes import passes_of

SMALLEST = 1 << 18
"""The least number of weights for which one product is faster: a megabyte, more than a core's cache."""


class ByChain:
    """The gradient of a chain, by formulas."""

    def __init__(self, t: Training, chain: Chain) -> None:
        self._model, self._chain, self._autograd = t.model, chain, by_autograd(t)
        self._passes = passes_of(t.model, chain)
        self.total = self._autograd.total

    def __call__(self, batches: Sequence[Batch]) -> Found | None:
        """Return the gradient; it is flat if formulas have computed it."""
        [batch] = batches
        if self._passes and (loss := self._passes.loss(batch)) is not None:
            self.total.add_(loss, alpha=rows(batch[1]))
            return self._model.grad
        if (found := self._chain.taken(batch)) is None:
            return self._autograd(batches)
        for link, a, g in found.parts:
            link.learn(g, a)  # type: ignore[misc]
        if self._passes:
            self._passes.see(batch, found.loss)
        self.total.add_(found.loss, alpha=rows(batch[1]))
        return self._model.grad


class ChainStep(InPlace):
    """Plain steps of a chain with large layers, each of them by one product.

    If `product` can, a step is one pass over memory. The first then reads the parameters where the training
    starts. The last writes the delta, and no parameters unless someone asks for them.
    """

    optimizer = None

    def __init__(self, t: Training, chain: Chain) -> None:
        self._t, self._model, self._correct, self._chain = t, t.model, t.correct, chain
        self._plain = along(t, by_autograd(t))
        self.total, self._large = self._plain.total, large_of(chain)
        self._data = [p.detach() for p in t.model.parameters]
        self._place = {id(p): i for i, p in enumerate(t.model.parameters)}
        here = {id(p) for layer in set(chain.learning) - self._large for p in layer.parameters()}
        gradients = zip(t.model.parameters, t.model.views(t.model.grad), strict=True)
        self._small = [(self._place[id(p)], gradient) for p, gradient in gradients if id(p) in here]
        self._passes = not chain.front and t.correct is None and large_layer_step.reads(t.start)
        self._away, self._left = self._passes, t.steps
        self._delta: Tensor | None = None

    @property
    def is_limited_by_memory(self) -> bool:
        """Whether nothing comes before the chain on this CPU, and large layers have most of its weights."""
        large: Any = self._large
        weights = sum(layer.weight.numel() for layer in large)
        return self._model.device.type == "cpu" and not self._chain.front and 2 * weights > len(self._t.start)

    def begin(self, t: Training) -> None:
        """Put the parameters at the start into the model, unless the first step reads them elsewhere."""
        if not self._away:
            super().begin(t)

    def __call__(self, batches: Sequence[Batch], lr: float) -> None:
        """Take one step."""
        [batch] = batches
        self._left -= 1
        with self._model.lying_in(self._t.start) if self._away else contextlib.nullcontext():
            found = self._chain.taken(batch)
        passes = found is not None and self._passes and all(map(self._is_known, found.parts))
        if self._away and not passes:
            super().begin(self._t)
            self._away = False
        if found is None:
            self._plain(batches, lr)
            return
        self.total.add_(found.loss, alpha=rows(batch[1]))
        if passes:
            self._pass(found.parts, lr)
            return
        if isinstance(self._correct, Constant | Proximal):
            self._correct.descend(self._model.trained, lr)
        for part in found.parts:
            self._learn(part, lr)
        before = [(data, g) for data, g in zip(self._data, found.before, strict=False) if g is not None]
        for data, gradient in [*((self._data[place], g) for place, g in self._small), *before]:
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

    def _is_known(self, part: LayerGradient) -> bool:
        """Return whether one pass over a layer's weights gives the bits of PyTorch's product."""
        layer: Any = part.link.layer
        return layer not in self._large or large_layer_step.gives_same_bits(
            len(part.g), layer.weight.data, may_overwrite=self._away
        )

    def _pass(self, parts: Sequence[LayerGradient], lr: float) -> None:
        """Take a step in one pass: write the parameters or, in the last step, the delta."""
        start = self._model.views(self._t.start)
        source, self._away = start if self._away else self._data, False
        write = functools.partial(self._write, parts=parts, source=source, lr=lr)
        if self._left or self._t.enough is not None:
            write(self._data)
            return
        delta = self._t.allocate(len(self._t.start), dtype=torch.float32)
        write(self._model.views(delta), base=start)
        self._delta = delta
        self._model.promise(lambda: write(self._data))

    def _write(
        self,
        out: list[Tensor],
        *,
        parts: Sequence[LayerGradient],
        source: list[Tensor],
        lr: float,
        base: list[Tensor] | None = None,
    ) -> None:
        """Write source - lr * gradient, minus a base if there is one."""
        rest = list(self._small)
        for part in parts:
            layer: Any = part.link.layer
            if layer not in self._large:
                part.link.learn(part.g, part.a)  # type: ignore[misc]
                continue
            at = self._place[id(layer.weight)]
            large_layer_step.step(out[at], source[at], part.g, part.a, lr, base[at] if base else None)
            if layer.bias is not None:
                rest.append((self._place[id(layer.bias)], part.g.sum(0)))
        for at, gradient in rest:
            torch.add(source[at], gradient, alpha=-lr, out=out[at])
            if base is not None:
                out[at].sub_(base[at])

    def delta(self, t: Training) -> Tensor:
        """Return the trained parameters minus those at the start, shape [P]."""
        return super().delta(t) if self._delta is None else self._delta


def by_formulas(t: Training) -> Step | None:
    """Return the step by formulas if the model is a chain in float32 with a loss of outputs; else None."""
    if t.loss.of_outputs is None or not t.settings.full or t.settings.accumulate_batches > 1:
        return None
    if (found := chain(t.model, t.loss.of_outputs, t.loss.formula, with_front=is_plain(t))) is None:
        return None
    if is_plain(t) and large_of(found):
        return ChainStep(t, found)
    return None if found.front else along(t, ByChain(t, found))


def large_of(chain: Chain) -> set[nn.Module]:
    """Return the layers for which a step by one product is faster."""
    return {layer for layer in chain.learning if layer.weight.numel() >= SMALLEST}  # type: ignore[operator]
