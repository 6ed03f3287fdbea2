"""Plain steps whose dense layers move by the very product that is their gradient.

Of a dense layer that was given a and whose answer has the gradient g, a row an example in both, the weights'
gradient is g^T a. Here it is not multiplied out, written to memory and read again: W -= lr g^T a is one
product of matrices, which adds to W. A step of a large perceptron is memory traffic, and this takes a
quarter of its time away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F

from mpifl.data import rows
from mpifl.silo.flat import FlatModel, Objective, backward, scalar
from mpifl.silo.optimizers import Batch
from mpifl.silo.way import Way

SMALLEST = 1 << 18
"""Weights of a layer from which on that pays: a megabyte, which leaves a core's own cache."""


class Call(NamedTuple):
    """What a layer was given once, and where the gradient of its answer is to be had."""

    weight: Tensor
    bias: Tensor | None
    given: Tensor
    version: int
    edge: Any


class Dense(Way):
    """The plain way, of a model with large dense layers.

    Layers answer by weights that autograd does not see. So whatever else a model does with its parameters,
    the gradient of that is found as ever, and added.
    """

    def __init__(self, model: FlatModel) -> None:
        self._module, self._parameters = model.module, tuple(model.parameters)
        self._data = [p.detach() for p in model.parameters]
        self._one = (torch.ones((), device=model.device),)
        trained = {id(p) for p in model.parameters}
        self.layers = [layer for layer in dense_layers(model.module) if _pays(layer, trained)]
        self._calls: list[Call] = []
        self._noting = self._again = False

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Have the layers note what they are given, if they are asked for it, until this ends."""
        for layer in self.layers:
            layer.forward = self._forward_of(layer)  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            for layer in self.layers:
                del layer.forward

    def descent(
        self, model: FlatModel, objective: Objective, batch: Batch, total: Tensor
    ) -> Callable[[float], object]:
        """Return what takes a plain step at a learning rate, and add the loss to the total.

        Where the gradient is no sum of such products, that is PyTorch's own.
        """
        self._calls, self._again, self._noting = [], False, True
        try:
            loss = scalar(objective(self._module, *batch))
            calls = list(self._calls)  # what is recomputed in the backward pass is noted behind these
            one = self._one if loss.dtype == torch.float32 else (torch.ones_like(loss),)
            found = backward(loss, one, (*[call.edge for call in calls], *self._parameters))
        finally:
            self._noting = False
        if self._again or any(call.given._version != call.version for call in calls):
            return super().descent(model, objective, batch, total)
        total.add_(loss.detach(), alpha=rows(batch[1]))
        return lambda lr: self._descend(calls, found, lr)

    def _descend(self, calls: list[Call], found: Sequence[Tensor | None], lr: float) -> None:
        data, gradients = [], []
        for one, gradient in zip(self._data, found[len(calls) :], strict=True):
            if gradient is not None:
                data.append(one)
                gradients.append(gradient)
        for call, gradient in zip(calls, found, strict=False):
            if gradient is None:
                continue
            g, a = (t if t.dim() == 2 else t.reshape(-1, t.shape[-1]) for t in (gradient, call.given))
            call.weight.addmm_(g.t(), a, alpha=-lr)
            if call.bias is not None:
                call.bias.add_(g.sum(0), alpha=-lr)
        if data:
            torch._foreach_add_(data, gradients, alpha=-lr)

    def _forward_of(self, layer: nn.Linear) -> Callable[[Tensor], Tensor]:
        own_weight, own_bias, parameters = layer.weight, layer.bias, layer._parameters
        weight, bias = own_weight.detach(), None if own_bias is None else own_bias.detach()

        def forward(x: Tensor) -> Tensor:
            now = parameters["weight"], parameters["bias"]
            if self._noting and now[0] is own_weight and now[1] is own_bias and _plainly():
                given = x.detach()
                answer = F.linear(x if x.requires_grad else x.detach().requires_grad_(), weight, bias)
                if answer.dtype == torch.float32:
                    self._note(Call(weight, bias, given, given._version, get_gradient_edge(answer)))
                    return answer
            return F.linear(x, *now)  # type: ignore[arg-type]

        return forward

    def _note(self, call: Call) -> None:
        call.edge.node.register_prehook(self._differentiated)
        self._calls.append(call)

    def _differentiated(self, gradients: tuple[Tensor, ...]) -> None:
        """Note that a layer's gradient is itself differentiated: the weights have a part in that, too."""
        self._again |= torch.is_grad_enabled()


def dense_layers(module: nn.Module) -> Iterator[nn.Linear]:
    """Yield the layers that are plain dense ones, which nobody has changed."""
    for layer in module.modules():
        if type(layer) is nn.Linear and "forward" not in vars(layer) and "weight" in layer._parameters:
            yield layer


def _pays(layer: nn.Linear, trained: set[int]) -> bool:
    """Whether a layer is large enough, and all its parameters are trained."""
    own = [p for p in layer._parameters.values() if p is not None]
    return layer.weight.numel() >= SMALLEST and all(id(p) in trained for p in own)


def _plainly() -> bool:
    """Whether only autograd's backward pass follows what is computed now."""
    return (
        torch.is_grad_enabled()
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
    )
