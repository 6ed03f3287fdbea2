"""Perceptrons: the gradient of a chain of dense layers, by the formulas of backpropagation.

A layer makes z = a W^T + b of its input a, a row an example. If g is the gradient of z, that of W is g^T a,
that of b the sum of g over the examples, and that of a is g W (Rumelhart et al. 1986). Those of W and b are
written where the flat gradient has its place for them. PyTorch would note each operation, find its way back
and copy what it found. The operations are its own, in its order, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.data import rows
from mpifl.silo.flat import FlatModel, Objective, backward, scalar
from mpifl.silo.optimizers import Batch
from mpifl.silo.way import Way

OfOutputs: TypeAlias = Callable[[Tensor, Any], Tensor]
"""(outputs, y) -> mean loss over the batch, a scalar tensor."""
_aten = torch.ops.aten


class Link(NamedTuple):
    """One layer: what it makes of its input, and of its output's gradient.

    Attributes:
        layer: The layer itself.
        forward: a, shape [n, ...] -> z.
        backward: (g, a, z) -> the gradient of a.
        learn: (g, a) -> nothing; writes the gradients of its parameters, if it has any.
    """

    layer: nn.Module
    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]
    learn: Callable[[Tensor, Tensor], None] | None = None


class Taken(NamedTuple):
    """A layer's part in a loss: what it was given, a, and the gradient of its output, g, a row an example."""

    link: Link
    a: Tensor
    g: Tensor


class Chain(Way):
    """The plain way, of a model that is a chain, and a loss that sees its outputs and nothing else.

    Args:
        links: The layers, in their order.
        loss: (outputs, y) -> mean loss over the batch.
        device: What the model lies on.
    """

    def __init__(self, links: list[Link], loss: OfOutputs, device: torch.device) -> None:
        self._links, self._loss = links, loss
        self._one = torch.ones((), device=device)
        self._learning = [place for place, link in enumerate(links) if link.learn]

    def gradient(self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor) -> Tensor:
        """Return the flat gradient, shape [P], and add the loss to the total."""
        loss = self._there_and_back(batch, lambda link, a, g: link.learn(g, a))  # type: ignore[misc]
        if loss is None:
            return super().gradient(model, objective, batch, total)
        total.add_(loss, alpha=rows(batch[1]))
        return model.grad

    def descent(
        self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor
    ) -> Callable[[float], object]:
        """Return what takes a plain step at a learning rate, and add the loss to the total."""
        gradient = self.gradient(model, objective, batch, total)
        return lambda lr: model.trained.add_(gradient, alpha=-lr)

    def taken(self, batch: Batch, times: float) -> list[Taken] | None:
        """Return how each layer that learns took part in a batch's loss, in their order.

        Args:
            batch: (x, y).
            times: What the loss is multiplied by before its gradients are taken.

        Returns:
            None where inputs are no matrices, or not of float32.
        """
        found: list[Taken] = []
        loss = self._there_and_back(batch, lambda *taken: found.append(Taken(*taken)), times)
        return None if loss is None else found[::-1]

    def _there_and_back(
        self, batch: Batch, take: Callable[[Link, Tensor, Tensor], None], times: float = 1.0
    ) -> Tensor | None:
        """Return a batch's loss; have `take` see the parts of the layers that learn, the last one first."""
        x, y = batch
        if not isinstance(x, Tensor) or x.dtype != torch.float32:
            return None
        with torch.no_grad():
            passed = self._forward(x)
            if any(passed[place].dim() != 2 for place in self._learning):
                return None
            loss, g = self._at_outputs(passed[-1], y, times)
            for place in range(len(self._links) - 1, self._learning[0] - 1, -1):
                link, a = self._links[place], passed[place]
                if link.learn:
                    take(link, a, g)
                if place > self._learning[0]:
                    g = link.backward(g, a, passed[place + 1])
        return loss

    def _forward(self, x: Tensor) -> list[Tensor]:
        """Return the input of each layer, and the outputs behind them."""
        passed = [x]
        for link in self._links:
            passed.append(link.forward(passed[-1]))
        return passed

    def _at_outputs(self, outputs: Tensor, y: Any, times: float) -> tuple[Tensor, Tensor]:
        """Return the loss, and the gradient of a multiple of it with respect to the outputs."""
        leaf = outputs.detach().requires_grad_()
        with torch.enable_grad():
            loss = scalar(self._loss(leaf.clone(), y))  # a loss may change in place what it is given
        usual = times == 1 and loss.dtype == torch.float32
        [g] = backward(loss, (self._one if usual else torch.full_like(loss, times),), (leaf,))
        return loss.detach(), torch.zeros_like(leaf) if g is None else g


def chain(model: FlatModel, loss: OfOutputs) -> Chain | None:
    """Return the way of a model that is a chain of layers which all are known and trained; None of others."""
    layers = _layers(model.module)
    if layers is None or any(_is_hooked(part) for part in model.module.modules()):
        return None
    places = dict(zip(map(id, model.parameters), model.views(model.grad), strict=True))
    own = [id(p) for layer in layers for p in layer._parameters.values() if p is not None]
    if not own or sorted(own) != sorted(places):  # frozen, tied, asked twice, or outside of all layers
        return None
    return Chain([_KNOWN[type(layer)](layer, places) for layer in layers], loss, model.device)


def _layers(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers that a model asks one after another; None if it does anything else."""
    if type(module) in _KNOWN:
        return [module]
    if type(module) is not nn.Sequential and not vars(type(module)).get("asks_in_turn"):
        return None
    found = [_layers(part) for part in module._modules.values() if part is not None]
    return None if None in found else [layer for layers in found for layer in layers or ()]


def _is_hooked(module: Any) -> bool:
    """Whether something else happens where a module is asked."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return "forward" in vars(module) or any(hooks)


def _dense(layer: Any, places: dict[int, Tensor]) -> Link:
    weight, bias = layer.weight, layer.bias  # themselves, since what they hold may come to lie elsewhere
    to_weight, to_bias = places[id(layer.weight)], None if bias is None else places[id(layer.bias)]

    def learn(g: Tensor, a: Tensor) -> None:
        torch.mm(g.t(), a, out=to_weight)
        if to_bias is not None:
            torch.sum(g, 0, out=to_bias)

    return Link(layer, lambda a: F.linear(a, weight, bias), lambda g, a, z: g.mm(weight), learn)


def _flatten(layer: Any, places: dict[int, Tensor]) -> Link:
    first, last = layer.start_dim, layer.end_dim
    return Link(layer, lambda a: a.flatten(first, last), lambda g, a, z: g.reshape(a.shape))


def _pointwise(
    forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Any, dict[int, Tensor]], Link]:
    """Return what makes a link of an activation, whose derivative follows from its output: (g, z) -> da."""
    return lambda layer, places: Link(layer, forward, lambda g, a, z: backward(g, z))


_KNOWN: dict[type[nn.Module], Callable[[Any, dict[int, Tensor]], Link]] = {
    nn.Linear: _dense,
    nn.Flatten: _flatten,
    nn.Identity: _pointwise(lambda a: a, lambda g, z: g),
    nn.ReLU: _pointwise(torch.relu, lambda g, z: _aten.threshold_backward(g, z, 0)),
    nn.Tanh: _pointwise(torch.tanh, _aten.tanh_backward),
    nn.Sigmoid: _pointwise(torch.sigmoid, _aten.sigmoid_backward),
}
"""Layers by what makes links of them."""
