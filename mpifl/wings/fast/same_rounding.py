"""Replacements for operations whose rounding on a CPU depends on the place in memory.

A kernel takes 16 or 32 numbers at a time, and the rest one by one. If it has its own exponential, the two
ways differ in the last bit. So numbers are passed in full vectors only. A product of matrices may treat
numbers before the first cache line separately. So all matrices of a batch begin at cache lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ALIGNED = 16
"""Rows and matrices begin at multiples of this many float32 numbers, 64 bytes."""
LANES = 32
"""The most numbers that a kernel takes at a time."""
PIECE = 1 << 15
"""How many numbers are passed at a time: PyTorch would divide more among threads, at arbitrary places."""
SAME = frozenset(
    {"add", "sub", "rsub", "mul", "div", "neg", "abs", "sign", "sgn", "sqrt", "rsqrt", "reciprocal", "lerp"}
    | {"square", "addcmul", "relu", "threshold_backward", "leaky_relu", "maximum", "minimum", "clamp"}
    | {"clamp_min", "clamp_max", "where", "masked_fill", "eq", "ne", "lt", "le", "gt", "ge", "isnan"}
    | {"logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "clone"}
    | {"copy", "fill", "zeros_like", "ones_like", "full_like", "empty_like"}
)
"""Elementwise operations that round the same everywhere; `tests/unit/silo/test_vectors.py` checks this."""
UNMARKED = frozenset(
    {"elu_backward", "softplus_backward", "mish_backward", "hardswish", "hardswish_backward"}
    | {"hardsigmoid_backward", "log_sigmoid_backward"}
)
"""Elementwise operations that torch does not mark as such (`torch.Tag.pointwise`)."""


def rounds_by_place(operation: Any) -> bool:
    """Return whether an operation's rounding of a number may depend on its place in memory."""
    if not isinstance(operation, torch._ops.OpOverload):
        return False
    name = operation._schema.name.partition("::")[2]
    return name in UNMARKED or (torch.Tag.pointwise in operation.tags and name.rstrip("_") not in SAME)


def by_vectors(operation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an elementwise operation that takes numbers in full vectors only."""

    def act(*given: Any, **named: Any) -> Tensor:
        tensors = [one for one in given if isinstance(one, Tensor)]
        whole: list[Tensor] = torch.broadcast_tensors(*tensors)  # type: ignore[no-untyped-call]
        count, shape = whole[0].numel(), whole[0].shape
        filled = [F.pad(one.reshape(-1), (0, -count % LANES)) for one in whole]
        pieces = []
        for begin in range(0, len(filled[0]), PIECE):
            parts = iter(one[begin : begin + PIECE] for one in filled)
            taken = (next(parts) if isinstance(one, Tensor) else one for one in given)
            pieces.append(operation(*taken, **named))
        return torch.cat(pieces)[:count].view(shape)

    return act


def by_lines(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a product of matrices for which each matrix of a batch begins at a cache line."""

    def act(*given: Any, **named: Any) -> Tensor:
        return product(
            *(_spaced(one) if isinstance(one, Tensor) and one.dim() == 3 else one for one in given), **named
        )

    return act


def _spaced(batch: Tensor) -> Tensor:
    """Return matrices, shape [size, n, m], whose distance in memory is a multiple of a cache line."""
    if not batch.stride(0) % ALIGNED:
        return batch
    size, rows, columns = batch.shape
    inner = batch.stride()[1:]
    span = 1 + (rows - 1) * inner[0] + (columns - 1) * inner[1]
    stride = -(-span // ALIGNED) * ALIGNED
    return batch.new_empty(size * stride).as_strided(batch.shape, (stride, *inner)).copy_(batch)
