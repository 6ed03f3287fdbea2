"""Fast max pooling on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class MaxPool2x2(nn.Module):
    """The values and the gradient of `nn.MaxPool2d(2)`. On a CPU it takes maxima of columns, then of rows,
    which vectorise.

    PyTorch's own layer reads the four values of each window one by one. There is no second derivative.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return the maxima of the 2x2 windows of [..., height,
        width]; an odd last row or column is left out."""
        height, width = images.shape[-2:]
        if images.device.type != "cpu" or height % 2 or width % 2:
            return F.max_pool2d(images, 2)
        pooled: Tensor = _MaxPool2x2.apply(images)[0]  # type: ignore[no-untyped-call]
        return pooled


class _MaxPool2x2(torch.autograd.Function):
    @staticmethod
    def forward(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        left, right = images[..., 0::2], images[..., 1::2]
        in_right = right > left  # with equal values the gradient goes to the first in rows, as in PyTorch
        columns = torch.maximum(left, right)
        upper, lower = columns[..., 0::2, :], columns[..., 1::2, :]
        in_lower = lower > upper
        return torch.maximum(upper, lower), in_right, in_lower

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        context.mark_non_differentiable(*output[1:])
        context.set_materialize_grads(False)
        context.save_for_backward(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        in_right, in_lower = context.saved_tensors
        return _spread(_spread(gradients[0], in_lower, -2), in_right, -1)

    @staticmethod
    def vmap(info: Any, sides: tuple[int], images: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Pool several models' images as one batch."""
        found: tuple[Tensor, ...] = _MaxPool2x2.apply(images.movedim(sides[0], 0))  # type: ignore[no-untyped-call]
        return found, (0, 0, 0)


def _spread(gradient: Tensor, second: Tensor, side: int) -> Tensor:
    """Double the entries along `side`. In each pair the second entry gets the gradient if `second`, else the
    first."""
    shape = list(gradient.shape)
    shape.insert(len(shape) + side + 1, 2)
    pairs = gradient.new_empty(shape)
    first, last = pairs.unbind(side)
    torch.mul(gradient, second, out=last)
    torch.sub(gradient, last, out=first)
    return pairs.flatten(side - 1, side)
