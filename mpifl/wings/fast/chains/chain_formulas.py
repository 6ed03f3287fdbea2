"""Perceptrons: the gradient of a chain of dense layers, by the formulas of backpropagation.

A layer computes z = a W^T + b from its input a, with one row for each example. Let g be the gradient for z.
The gradients are g^T a for W, the sum of g over examples for b, and g W for a (Rumelhart et al. 1986). Those
for W and b are written directly into the flat gradient. PyTorch's autograd would record each operation and
copy the gradients. The operations and their order are the same as in autograd, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.common.machine import debugging
from mpifl.silo.parameters import FlatModel, backward, scalar
from mpifl.silo.steps import Batch, Formula, OfOutputs, without

_aten = torch.ops.aten
ALIGNED = 16
"""Bytes. MKL's product may round otherwise where its result does not lie at a multiple of these."""


class Link(NamedTuple):
    """One layer of a chain, with its formulas.

    Attributes:
        layer: The layer itself.
        forward: a, shape [n, ...] -> z.
        backward: (g, a, z) -> the gradient for a.
        learn: (g, a) -> None; writes the gradients of its parameters. None for a layer without parameters.
    """

    layer: nn.Module
    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]
    learn: Callable[[Tensor, Tensor], None] | None = None


class LayerGradient(NamedTuple):
    """A layer's input a and the gradient g for its output, one row for each example."""

    link: Link
    a: Tensor
    g: Tensor


class Taken(NamedTuple):
    """A batch's loss, and what the gradients follow from.

    Attributes:
        parts: Input and gradient of each layer that learns, the last layer first.
        before: The gradients that go through the front of a chain, one for each parameter; empty without a
            front that learns.
    """

    loss: Tensor
    parts: Sequence[LayerGradient]
    before: Sequence[Tensor | None]


class Chain:
    """A model that calls its layers one after another, with a loss of its outputs alone.

    Args:
        front: Modules before the chain, whose result is a matrix for each batch; mostly empty.
        links: The layers of the chain, in their order.
        loss: (outputs, y) -> mean loss over the batch.
        formula: The loss and its gradient for the outputs.
    """

    def __init__(
        self,
        model: FlatModel,
        front: Sequence[nn.Module],
        links: Sequence[Link],
        loss: OfOutputs,
        formula: Formula = without,
    ) -> None:
        self.front, self._links, self._loss, self._formula = front, links, loss, formula
        self._parameters = tuple(model.parameters)
        self._one = torch.ones((), device=model.device)
        self._learning = [place for place, link in enumerate(links) if link.learn]

    @property
    def modules(self) -> list[nn.Module]:
        """The layers, the first one first."""
        return [link.layer for link in self._links]

    @property
    def learning(self) -> list[nn.Module]:
        """The layers that learn."""
        return [self._links[place].layer for place in self._learning]

    def taken(self, batch: Batch, times: float = 1.0) -> Taken | None:
        """Return a batch's loss, and input and gradient of each layer that learns.

        Args:
            batch: (x, y).
            times: A factor of the loss for the gradients.

        Returns:
            The result; None if inputs of layers are not matrices, or not float32.
        """
        x, parts = batch[0], []
        for part in self.front:
            x = part(x)
        if not isinstance(x, Tensor) or x.dtype != torch.float32:
            return None
        onwards = x.requires_grad
        last = 0 if onwards else self._learning[0]
        with torch.no_grad():
            passed = self._forward(x)
            if any(passed[place].dim() != 2 for place in self._learning):
                return None
            loss, g = self.at_outputs(passed[-1], batch[1], times)
            for place in range(len(self._links) - 1, last - 1, -1):
                link, a = self._links[place], passed[place]
                if link.learn:
                    parts.append(LayerGradient(link, a, g))
                if place > last or onwards:
                    g = link.backward(g, a, passed[place + 1])
        return Taken(loss, parts, backward(x, (g,), self._parameters) if onwards else ())

    def _forward(self, x: Tensor) -> list[Tensor]:
        """Return the input of each layer, then the outputs of the model."""
        passed = [x]
        for link in self._links:
            passed.append(link.forward(passed[-1]))
        return passed

    def at_outputs(self, outputs: Tensor, y: Any, times: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return the loss, and the gradient of `times` the loss for the outputs."""
        if times == 1 and (found := self._formula(outputs, y)):
            return found
        leaf = outputs.detach().requires_grad_()
        with torch.enable_grad():
            loss = scalar(self._loss(leaf.clone(), y))  # a loss may change its input in place
        usual = times == 1 and loss.dtype == torch.float32
        [g] = backward(loss, (self._one if usual else torch.full_like(loss, times),), (leaf,))
        return loss.detach(), torch.zeros_like(leaf) if g is None else g


def chain(
    model: FlatModel, loss: OfOutputs, formula: Formula = without, *, with_front: bool = False
) -> Chain | None:
    """Return a model as a chain of known and trained layers; None if it is not such a chain.

    Args:
        loss: (outputs, y) -> mean loss over the batch.
        formula: The loss and its gradient for the outputs.
        with_front: Whether other modules may come before. The chain then begins by flattening their output.
    """
    front, layers = _cut(_layers(model.module))
    if debugging() or (front and not with_front) or any(map(_is_hooked, model.module.modules())):
        return None
    places = dict(zip(map(id, model.parameters), model.views(model.grad), strict=True))
    before = {id(p) for part in front for p in part.parameters() if p.requires_grad}
    own = [id(p) for layer in layers for p in layer._parameters.values() if p is not None]
    # not a chain if a parameter is frozen, shared, used twice, or outside of all layers
    if not own or sorted([*own, *before]) != sorted(places):
        return None
    return Chain(model, front, [_KNOWN[type(layer)](layer, places) for layer in layers], loss, formula)


def _layers(module: nn.Module) -> list[nn.Module]:
    """Return the modules that a model calls one after another; [model] if it does anything else."""
    if type(module) is not nn.Sequential and not vars(type(module)).get("asks_in_turn"):
        return [module]
    return [layer for part in module._modules.values() if part is not None for layer in _layers(part)]


def _cut(layers: list[nn.Module]) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the front and the chain of known layers at the end. After a front it begins by flattening."""
    unknown = [place for place, layer in enumerate(layers) if type(layer) not in _KNOWN]
    if not unknown:
        return [], layers
    behind = range(unknown[-1] + 1, len(layers))
    first = next((place for place in behind if _is_row_of_all(layers[place])), len(layers))
    return layers[:first], layers[first:]


def _is_row_of_all(layer: Any) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _is_hooked(module: Any) -> bool:
    """Whether a call of a module does something besides its class's `forward`."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return "forward" in vars(module) or any(hooks)


def _dense(layer: Any, places: dict[int, Tensor]) -> Link:
    weight, bias = layer.weight, layer.bias  # not their data, whose memory may change
    to_weight, to_bias = places[id(layer.weight)], None if bias is None else places[id(layer.bias)]

    product = to_weight if to_weight.data_ptr() % ALIGNED == 0 else torch.empty_like(to_weight)

    def learn(g: Tensor, a: Tensor) -> None:
        torch.mm(g.t(), a, out=product)
        if product is not to_weight:
            to_weight.copy_(product)
        if to_bias is not None:
            torch.sum(g, 0, out=to_bias)

    return Link(layer, lambda a: F.linear(a, weight, bias), lambda g, a, z: g.mm(weight), learn)


def _flatten(layer: Any, places: dict[int, Tensor]) -> Link:
    first, last = layer.start_dim, layer.end_dim
    return Link(layer, lambda a: a.flatten(first, last), lambda g, a, z: g.reshape(a.shape))


def _pointwise(
    forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Any, dict[int, Tensor]], Link]:
    """Return a maker of links for an activation whose derivative follows from its output: (g, z) -> da."""
    return lambda layer, places: Link(layer, forward, lambda g, a, z: backward(g, z))


_KNOWN: dict[type[nn.Module], Callable[[Any, dict[int, Tensor]], Link]] = {
    nn.Linear: _dense,
    nn.Flatten: _flatten,
    nn.Identity: _pointwise(lambda a: a, lambda g, z: g),
    nn.ReLU: _pointwise(torch.relu, lambda g, z: _aten.threshold_backward(g, z, 0)),
    nn.Tanh: _pointwise(torch.tanh, _aten.tanh_backward),
    nn.Sigmoid: _pointwise(torch.sigmoid, _aten.sigmoid_backward),
}
"""The known layers, and what makes a link of each."""
