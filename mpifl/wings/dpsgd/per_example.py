"""Norms and weighted sums of per-example gradients by formulas for layers, without computing each gradient.

A layer's input a, and the gradient g of the summed loss for its output, determine the gradients of all
examples. In a linear layer an example's gradient is g a^T, and its squared norm |g|^2 |a|^2 (Goodfellow 2015;
for convolutions and long sequences Rochette et al. 2019, Li et al. 2022). One backward pass is enough for
norms and sums. It ends at the layers' outputs (Bu et al. 2023, "book-keeping").
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mpifl.wings.dpsgd.squares import never_less, of_products

KEPT = 1 << 24
"""How many elements of per-example gradients of one layer may be kept."""
CACHED = 1 << 20
"""How many elements of a convolution's unfolded input are copied at a time: 4 MiB."""


class Gradients(ABC):
    """The gradients of a layer's parameters for each of n examples.

    Args:
        a: Its input, shape [n, ...].
        g: The gradient of the summed loss for its output, shape [n, ...].
    """

    def __init__(self, layer: Any, a: Tensor, g: Tensor) -> None:
        self.layer = layer

    @abstractmethod
    def squares(self) -> Tensor:
        """Return the squared norms, shape [n]."""

    @abstractmethod
    def sum_into(self, sums: Mapping[str, Tensor], factors: Tensor) -> None:
        """Write the sum of the examples' gradients, each times its factor.

        Args:
            sums: The tensors to write to, contiguous, by the names of the trained parameters.
            factors: The factors, shape [n].
        """

    def trains(self, name: str) -> bool:
        """Whether the layer has this parameter and trains it."""
        parameter = getattr(self.layer, name, None)
        return parameter is not None and parameter.requires_grad


class Products(Gradients):
    """For a weight whose per-example gradient is a sum of outer products over places, in groups.

    The factors of the products have shapes [n, groups, outputs or inputs, places].
    """

    def __init__(self, layer: Any, a: Tensor, g: Tensor) -> None:
        super().__init__(layer, a, g)
        self._g = self.outputs(g)
        self._biases = self._g.sum(3).flatten(1) if self.trains("bias") else None
        self._each: Tensor | None = None
        if not self.trains("weight"):
            return
        if self._g.shape[3] > 1 and len(a) * layer.weight.numel() <= KEPT:
            self._each, self._squares = self._multiplied(a)
        else:
            self._a = self.inputs(a)

    def _multiplied(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the weight, shape [n, elements], and their squared norms.

        It takes so few examples at a time that their data fits in the processor's cache.
        """
        n, groups, outputs, places = self._g.shape
        inputs = self.layer.weight.numel() // (groups * outputs)
        each, squares = self._g.new_empty(n, groups, outputs, inputs), []
        at_a_time = max(CACHED // (groups * inputs * places), 1)
        for some, g, found in zip(*(torch.split(t, at_a_time) for t in (a, self._g, each)), strict=True):
            torch.matmul(g, self.inputs(some).transpose(2, 3), out=found)
            squares.append(found.flatten(1).square().sum(1))
        return each.flatten(1), torch.cat(squares)

    @abstractmethod
    def outputs(self, g: Tensor) -> Tensor:
        """Return g by groups and places."""

    @abstractmethod
    def inputs(self, a: Tensor) -> Tensor:
        """Return the part of a that belongs to each place, by groups."""

    def squares(self) -> Tensor:
        """Return the squared norms, shape [n]."""
        found = torch.zeros(len(self._g), device=self._g.device)
        if self._biases is not None:
            found = found + self._biases.square().sum(1)
        if not self.trains("weight"):
            return found
        if self._each is not None:
            return found + self._squares
        if self._g.shape[3] == 1:
            return found + (self._g.square().sum((2, 3)) * self._a.square().sum((2, 3))).sum(1)
        pairs = zip(self._a.unbind(), self._g.unbind(), strict=True)  # one example at a time
        return found + torch.stack([of_products(a, g) for a, g in pairs])

    def sum_into(self, sums: Mapping[str, Tensor], factors: Tensor) -> None:
        """Write the sum of the examples' gradients, each times its factor."""
        if self._biases is not None:
            weighted_sum(sums["bias"], factors, self._biases)
        if not self.trains("weight"):
            return
        if self._each is not None:
            weighted_sum(sums["weight"], factors, self._each)
        elif self._g.shape[1] == self._g.shape[3] == 1:
            g, a = self._g.flatten(1), self._a.flatten(1)
            torch.mm((g * factors[:, None]).T, a, out=sums["weight"].view(g.shape[1], a.shape[1]))
        else:
            whole = torch.einsum("n,ngop,ngip->goi", factors, self._g, self._a)
            sums["weight"].copy_(whole.reshape(self.layer.weight.shape))


class OfVectors(Gradients):
    """For `nn.Linear` with one vector for each example. It needs few operations, which helps small models."""

    def __init__(self, layer: Any, a: Tensor, g: Tensor) -> None:
        super().__init__(layer, a, g)
        self._a, self._g = a, g

    def squares(self) -> Tensor:
        """Return the squared norms, shape [n]."""
        of_bias = self._g.square().sum(1)
        if not self.trains("weight"):
            return of_bias
        of_weight = of_bias * self._a.square().sum(1)
        return of_bias + of_weight if self.trains("bias") else of_weight

    def sum_into(self, sums: Mapping[str, Tensor], factors: Tensor) -> None:
        """Write the sum of the examples' gradients, each times its factor."""
        if self.trains("weight"):
            torch.mm((self._g * factors[:, None]).T, self._a, out=sums["weight"])
        if self.trains("bias"):
            weighted_sum(sums["bias"], factors, self._g)


def of_linear(layer: Any, a: Tensor, g: Tensor) -> Gradients:
    """Return the gradients of `nn.Linear`."""
    return OfVectors(layer, a, g) if a.dim() == 2 else OfLinear(layer, a, g)


class OfLinear(Products):
    """For `nn.Linear`; all dimensions except the first and the last are places."""

    def outputs(self, g: Tensor) -> Tensor:
        """Return g by groups and places."""
        return g.reshape(len(g), 1, -1, g.shape[-1]).transpose(2, 3)

    def inputs(self, a: Tensor) -> Tensor:
        """Return the part of a that belongs to each place, by groups."""
        return self.outputs(a)


class OfConvolution(Products):
    """For `nn.Conv1d`, `nn.Conv2d` and `nn.Conv3d`; a place is a position of the kernel."""

    def outputs(self, g: Tensor) -> Tensor:
        """Return g by groups and places."""
        groups = self.layer.groups
        return g.reshape(len(g), groups, g.shape[1] // groups, -1)

    def inputs(self, a: Tensor) -> Tensor:
        """Return the input under the kernel at each place, by groups."""
        layer, n, channels, spatial = self.layer, len(a), a.shape[1], a.dim() - 2
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        if any(layer._reversed_padding_repeated_twice):
            a = F.pad(a, layer._reversed_padding_repeated_twice, mode=mode)
        for i, (size, stride, apart) in enumerate(
            zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
        ):
            a = a.unfold(2 + i, (size - 1) * apart + 1, stride)[..., ::apart]
        places = range(2, 2 + spatial)
        seen = a.permute(0, 1, *(p + spatial for p in places), *places)
        return seen.reshape(n, layer.groups, channels // layer.groups * math.prod(layer.kernel_size), -1)


class OfEmbedding(Gradients):
    """For `nn.Embedding`: an example may use a row more than once, and its gradients add up."""

    def __init__(self, layer: Any, a: Tensor, g: Tensor) -> None:
        super().__init__(layer, a, g)
        n = len(a)
        self._rows, self._g = a.reshape(n, -1), g.reshape(n, -1, g.shape[-1])
        if layer.padding_idx is not None:
            self._g = self._g * (self._rows != layer.padding_idx).unsqueeze(2)

    def squares(self) -> Tensor:
        """Return the squared norms, shape [n]."""
        n, places, width = self._g.shape
        each = self._rows + torch.arange(n, device=self._rows.device)[:, None] * self.layer.num_embeddings
        rows, which = each.unique(return_inverse=True)
        sums = self._g.new_zeros(len(rows), width, dtype=torch.float64)
        sums.index_add_(0, which.flatten(), self._g.double().flatten(0, 1))
        found = sums.new_zeros(n).index_add_(0, rows // self.layer.num_embeddings, sums.square().sum(1))
        return never_less(found, self._g.norm(dim=2).sum(1), places)

    def sum_into(self, sums: Mapping[str, Tensor], factors: Tensor) -> None:
        """Write the sum of the examples' gradients, each times its factor."""
        weighted = (self._g * factors[:, None, None]).flatten(0, 1)
        sums["weight"].zero_().index_add_(0, self._rows.flatten(), weighted)


class OfNorm(Gradients):
    """For a layer that scales and shifts its normalised input. It computes each example's gradient."""

    def __init__(self, layer: Any, a: Tensor, g: Tensor) -> None:
        super().__init__(layer, a, g)
        self._each: dict[str, Tensor] = {}
        if self.trains("weight"):
            self._each["weight"] = self.gathered(g * self.normalised(a)).flatten(1)
        if self.trains("bias"):
            self._each["bias"] = self.gathered(g).flatten(1)

    @abstractmethod
    def normalised(self, a: Tensor) -> Tensor:
        """Return the normalised input, of the shape of a."""

    @abstractmethod
    def gathered(self, each: Tensor) -> Tensor:
        """Return the sum over all places that share a parameter, shape [n, ...]."""

    def squares(self) -> Tensor:
        """Return the squared norms, shape [n]."""
        return torch.stack([one.square().sum(1) for one in self._each.values()]).sum(0)

    def sum_into(self, sums: Mapping[str, Tensor], factors: Tensor) -> None:
        """Write the sum of the examples' gradients, each times its factor."""
        for name, one in self._each.items():
            weighted_sum(sums[name], factors, one)


class OfGroupNorm(OfNorm):
    """For `nn.GroupNorm`."""

    def normalised(self, a: Tensor) -> Tensor:
        """Return the normalised input, of the shape of a."""
        return F.group_norm(a, self.layer.num_groups, eps=self.layer.eps)

    def gathered(self, each: Tensor) -> Tensor:
        """Return the sum over all places that share a parameter, shape [n, channels]."""
        return each.flatten(2).sum(2) if each.dim() > 2 else each


class OfLayerNorm(OfNorm):
    """For `nn.LayerNorm`."""

    def normalised(self, a: Tensor) -> Tensor:
        """Return the normalised input, of the shape of a."""
        return F.layer_norm(a, self.layer.normalized_shape, eps=self.layer.eps)

    def gathered(self, each: Tensor) -> Tensor:
        """Return the sum over all places that share a parameter, shape [n, ...]."""
        places = range(1, each.dim() - len(self.layer.normalized_shape))
        return each.sum(tuple(places)) if len(places) else each


def weighted_sum(total: Tensor, factors: Tensor, rows: Tensor) -> None:
    """Write the sum of rows, shape [n, elements], each times its factor, into a contiguous tensor."""
    torch.mv(rows.T, factors, out=total.view(-1))


FORMULAS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor], Gradients]] = {
    nn.Linear: of_linear,
    nn.Conv1d: OfConvolution,
    nn.Conv2d: OfConvolution,
    nn.Conv3d: OfConvolution,
    nn.Embedding: OfEmbedding,
    nn.GroupNorm: OfGroupNorm,
    nn.LayerNorm: OfLayerNorm,
}
"""The formulas by a layer's exact class: a subclass may compute something else."""


def why_no_formula(layer: nn.Module) -> str:
    """Return why a layer with trained parameters has no formula; "" if it has one or trains nothing."""
    own = {name for name, p in layer.named_parameters(recurse=False) if p.requires_grad}
    if not own:
        return ""
    known = type(layer) in FORMULAS and own <= {"weight", "bias"}
    plain = not (getattr(layer, "max_norm", None) or getattr(layer, "scale_grad_by_freq", False))
    plain = plain and getattr(layer, "eps", 1.0) > 0  # with eps 0, zeros for an unsound example give NaN
    return "" if known and plain and not getattr(layer, "sparse", False) else type(layer).__name__
