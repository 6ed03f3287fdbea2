"""Max pooling that a CPU core does fast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class MaxPool2x2(nn.Module):
    """`nn.MaxPool2d(2)`: its values and its gradient, on a CPU by maxima of rows and columns, which
    vectorize.

    PyTorch's own looks at the four values of each window one by one. The gradient's gradient there is none
    of.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return the maxima of the 2x2 windows of [..., height,
        width]; an odd last row or column is left out."""
        height, width = images.shape[-2:]
        if images.device.type != "cpu" or height % 2 or width % 2:
            return F.max_pool2d(images, 2)
        pooled: Tensor = _MaxPool2x2.apply(images)  # type: ignore[no-untyped-call]
        return pooled


class _MaxPool2x2(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, images: Tensor) -> Tensor:
        left, right = images[..., 0::2], images[..., 1::2]
        in_right = right > left  # equal values: the gradient goes to the first in rows, as PyTorch's does
        columns = torch.maximum(left, right)
        upper, lower = columns[..., 0::2, :], columns[..., 1::2, :]
        in_lower = lower > upper
        context.save_for_backward(in_right, in_lower)
        return torch.maximum(upper, lower)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        (gradient,), (in_right, in_lower) = gradients, context.saved_tensors
        return _spread(_spread(gradient, in_lower, -2), in_right, -1)


def _spread(gradient: Tensor, second: Tensor, side: int) -> Tensor:
    """Return twice as many entries along `side`: of each two, the second gets the gradient where `second`."""
    shape = list(gradient.shape)
    shape.insert(len(shape) + side + 1, 2)
    pairs = gradient.new_empty(shape)
    first, last = pairs.unbind(side)
    torch.mul(gradient, second, out=last)
    torch.sub(gradient, last, out=first)
    return pairs.flatten(side - 1, side)
