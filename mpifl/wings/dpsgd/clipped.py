"""Sums of clipped per-example gradients: each gradient is scaled down to a norm, then all are added up.

Formulas of the layers do this in one backward pass, if all layers have one. Otherwise there is a backward
pass for each example. A trial on a few examples checks that both agree.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from mpifl.common import InputError
from mpifl.data import rows
from mpifl.silo.parameters import FlatModel, Objective, backward, scalar
from mpifl.silo.steps import Batch, OfOutputs
from mpifl.wings.dpsgd.per_example import FORMULAS, Gradients, why_no_formula
from mpifl.wings.fast import chain

ALIKE = 5e-3
"""The largest difference between formula and loop, relative to the result's norm; rounding causes 1e-6."""
Passed: TypeAlias = dict[str, tuple[Tensor, Tensor]]
"""By a layer's name: its input, and the gradient of the summed loss for its output."""
_FOUND: WeakKeyDictionary[FlatModel, dict[Hashable, ClippedSum]] = WeakKeyDictionary()


class NoFormula(Exception):
    """A model has no formula for per-example gradients; the message names the layer and the reason."""


class ClippedSum(ABC):
    """The sum of the clipped gradients of some examples.

    Args:
        objective: The mean loss over a batch.
    """

    def __init__(self, model: FlatModel, objective: Objective) -> None:
        self._model, self._objective = model, objective

    def __call__(
        self, batch: Batch, real: int, bound: float, into: list[Tensor] | None = None, weight: float = 1.0
    ) -> tuple[list[Tensor], Tensor]:
        """Return the sum for each parameter, and the norms of the gradients before clipping, shape [real].

        Args:
            batch: The examples. The first `real` count; the others are padding.
            real: How many examples count.
            bound: The largest norm after clipping.
            into: The tensors that the sums are written to; by default new ones.
            weight: The factor of the sums.
        """
        sums = [torch.empty_like(p) for p in self._model.parameters] if into is None else into
        return sums, self._sum_into(sums, batch, real, bound, weight)

    @abstractmethod
    def _sum_into(self, sums: list[Tensor], batch: Batch, real: int, bound: float, weight: float) -> Tensor:
        """Write the sums, and return the norms."""

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(p) for p in self._model.parameters]


class ByFormula(ClippedSum):
    """Sums by the layers' formulas, in one backward pass.

    Args:
        objective: The mean loss over a batch.
        of_outputs: The objective as a loss of outputs, if it is one.

    Raises:
        NoFormula: a layer has no formula.
    """

    def __init__(self, model: FlatModel, objective: Objective, of_outputs: OfOutputs | None = None) -> None:
        super().__init__(model, objective)
        self._chain = chain(model, of_outputs) if of_outputs else None
        self._layers: dict[str, nn.Module] = {}
        places = {id(p): i for i, p in enumerate(model.parameters)}
        owned: list[int] = []
        for name, layer in model.module.named_modules():
            own = {n: p for n, p in layer.named_parameters(recurse=False) if p.requires_grad}
            if why := why_no_formula(layer):
                raise NoFormula(f"{why} ('{name}') has no formula")
            owned += [id(p) for p in own.values()]
            if own:
                self._layers[name] = layer
        if len(owned) != len(set(owned)):
            raise NoFormula("a parameter that two layers share has no formula")
        self._places = {
            name: {n: places[id(p)] for n, p in layer.named_parameters(recurse=False) if p.requires_grad}
            for name, layer in self._layers.items()
        }

    def _sum_into(self, sums: list[Tensor], batch: Batch, real: int, bound: float, weight: float) -> Tensor:
        """Write the sums, and return the norms."""
        passed = self._passed(batch)
        with torch.no_grad():
            each, norms = self._with_norms(passed)
            if not math.isfinite(float(norms.sum())):
                # an example without a finite gradient counts as zero, and must not affect others
                sound = norms.isfinite()
                each, norms = self._with_norms(_only(passed, sound))
                norms = norms.masked_fill(~sound, torch.inf)
            factors = (bound / norms).clamp_(max=1.0).mul_(weight)
            factors[real:] = 0
            if len(each) < len(self._layers):
                torch._foreach_zero_(sums)
            for name, one in each.items():
                places = self._places[name]
                one.sum_into({parameter: sums[place] for parameter, place in places.items()}, factors)
        return norms[:real]

    def _with_norms(self, passed: Passed) -> tuple[dict[str, Gradients], Tensor]:
        """Return the per-example gradients, by layer, and their norms over all layers."""
        layers = self._layers
        each = {name: FORMULAS[type(layers[name])](layers[name], a, g) for name, (a, g) in passed.items()}
        return each, torch.stack([one.squares() for one in each.values()]).sum(0).sqrt()

    def _passed(self, batch: Batch) -> Passed:
        """Return each layer's input and the gradient for its output; omit layers that the loss ignores."""
        if self._chain and (found := self._chain.taken(batch, rows(batch[1]))):
            # the layers of a chain have the chain's order
            return {name: (a, g) for name, (_, a, g) in zip(self._layers, reversed(found.parts), strict=True)}
        return self._noted(batch)

    def _noted(self, batch: Batch) -> Passed:
        """Return them by hooks on the layers and a backward pass of PyTorch to the layers' outputs."""
        taken: list[tuple[str, Tensor, Any]] = []

        def note(name: str) -> Any:
            def hook(layer: nn.Module, given: tuple[Tensor, ...], answer: Tensor) -> None:
                # the edge of the output now, before anything changes it in place
                edge = torch.autograd.graph.get_gradient_edge(answer)
                taken.append((name, given[0].detach(), edge))

            return hook

        handles = [layer.register_forward_hook(note(name)) for name, layer in self._layers.items()]
        try:
            with torch.enable_grad():
                loss = scalar(self._objective(self._model.module, *batch))
        finally:
            for handle in handles:
                handle.remove()
        n, names = rows(batch[1]), [name for name, _, _ in taken]
        if len(names) != len(set(names)) or any(len(a) != n for _, a, _ in taken):
            raise NoFormula("a layer that is asked twice, or of other than the batch, has no formula")
        found = backward(loss, (torch.full_like(loss, n),), tuple(edge for _, _, edge in taken))
        return {name: (a, g) for (name, a, _), g in zip(taken, found, strict=True) if g is not None}


def _only(passed: Passed, sound: Tensor) -> Passed:
    """Return inputs and gradients with zeros in place of the examples that are not sound."""

    def kept(part: Tensor) -> Tensor:
        return torch.where(sound.view(-1, *[1] * (part.dim() - 1)), part, torch.zeros_like(part))

    return {name: (kept(a), kept(g)) for name, (a, g) in passed.items()}


class ByLoop(ClippedSum):
    """Sums by a backward pass for each example that counts."""

    def _sum_into(self, sums: list[Tensor], batch: Batch, real: int, bound: float, weight: float) -> Tensor:
        """Write the sums, and return the norms."""
        norms = torch.empty(real)
        torch._foreach_zero_(sums)
        for i in range(real):
            with torch.enable_grad():
                loss = scalar(self._objective(self._model.module, *(part_of(one, i) for one in batch)))
            gradient = self._model.gradients(loss) if loss.requires_grad else self._zeros()
            norm = torch.stack([g.double().square().sum() for g in gradient]).sum().sqrt()
            norms[i] = norm
            if norm.isfinite():
                torch._foreach_add_(sums, gradient, alpha=weight * float((bound / norm).clamp(max=1.0)))
        return norms


def clipped_sum(
    model: FlatModel,
    objective: Objective,
    key: Hashable,
    few: Batch,
    bound: float,
    of_outputs: OfOutputs | None = None,
) -> ClippedSum:
    """Return the way to sum a model's clipped gradients. It is tried once; a slow one is said in a line.

    Args:
        objective: The mean loss over a batch.
        key: Identifies the objective.
        few: Two or more examples for the trial.
        bound: The largest norm after clipping.
        of_outputs: The objective as a loss of outputs, if it is one.

    Raises:
        InputError: the loss of a batch is not the mean of its examples' losses.
    """
    if rows(few[1]) < 2:
        return ByLoop(model, objective)  # one example cannot show whether examples mix
    known = _FOUND.setdefault(model, {})
    if key not in known:
        known[key] = _tried(model, objective, few, bound, of_outputs)
    found = known[key]
    found._objective = objective  # it may be another closure of the same code
    return found


def _tried(
    model: FlatModel, objective: Objective, few: Batch, bound: float, of_outputs: OfOutputs | None
) -> ClippedSum:
    slow = ByLoop(model, objective)
    model.module.eval()  # without dropout, which would draw other masks in each pass
    try:
        _check_mean(model, objective, few)
        fast = ByFormula(model, objective, of_outputs)
        n = rows(few[1])
        first, second = fast(few, n, bound), slow(few, n, bound)
        if all(map(_alike, [*first[0], first[1]], [*second[0], second[1]])):
            return fast
        raise NoFormula("the layers' formulas find other gradients than a pass for each example")
    except NoFormula as why:
        if model.is_reporter:
            line = f"[privacy] {why}: a pass for each example takes its place, which is slow"
            print(line, file=sys.stderr, flush=True)
        return slow
    finally:
        model.module.train()


@torch.no_grad()
def _check_mean(model: FlatModel, objective: Objective, few: Batch) -> None:
    """Check that the loss of a batch is the mean of its examples' losses."""
    n = rows(few[1])
    whole = scalar(objective(model.module, *few)).double()
    singles = [objective(model.module, *(part_of(one, i) for one in few)).double() for i in range(n)]
    mean = torch.stack(singles).mean()
    if whole.isfinite() and mean.isfinite() and not torch.isclose(whole, mean, rtol=1e-3, atol=1e-5):
        what = f"the loss of {n} examples is {float(whole):.6g}, the mean of their losses {float(mean):.6g}"
        raise InputError(f"[privacy]: {what}; use a loss that is a mean over independent examples")


def _alike(one: Tensor, other: Tensor) -> bool:
    size = torch.linalg.vector_norm(other.double())
    return not size.isfinite() or bool(
        torch.linalg.vector_norm((one - other).double()) <= ALIKE * size + 1e-6
    )


def part_of(columns: Any, i: int) -> Any:
    """Return one example of a tensor, as a batch of one; for a dict of tensors, a dict."""
    return chosen(columns, slice(i, i + 1))


def chosen(columns: Any, indices: Any) -> Any:
    """Return some examples of a tensor; for a dict of tensors, a dict."""
    if isinstance(columns, dict):
        return {name: column[indices] for name, column in columns.items()}
    return columns[indices]
