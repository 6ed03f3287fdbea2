"""The step of a dense layer in one pass over memory: W - lr g^T a, from one place to another.

`large_layer_step.c` has the loop. PyTorch's own product adds to a matrix in place, so that W is copied
beforehand. The loop is used only for sizes with which it has given the same bits as PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpifl.common.machine import native
from mpifl.wire import pieces_of

SOURCE = Path(__file__).with_name("large_layer_step.c")
MOST = 32
"""The most examples of a batch. With more, arithmetic limits a step and not memory, and MKL is faster."""
ROWS = 96
"""Rows that are compared at a time, so that a trial needs little memory."""
_ALIKE: dict[tuple[int, ...], bool] = {}
"""Whether the loop gives PyTorch's bits, by the numbers of examples, rows and columns."""


def step(out: Tensor, weights: Tensor, g: Tensor, a: Tensor, lr: float, base: Tensor | None = None) -> None:
    """Write weights - lr g^T a, minus `base` if it is given.

    Args:
        out: The result, shape [n, m]; it may be `weights` itself.
        weights: W, shape [n, m].
        g: The gradients for the layer's outputs, shape [examples, n].
        a: The layer's inputs, shape [examples, m].
        lr: The learning rate.
        base: What is subtracted, shape [n, m].
    """
    library = compiled()
    count, columns = a.shape
    width = library.mpifl_width()
    scaled = a.new_zeros(count, -(-columns // width) * width)
    torch.mul(a, -lr, out=scaled[:, :columns])
    g = g.contiguous()
    places = [one.data_ptr() for one in (out, weights)] + [base.data_ptr() if base is not None else None]
    sizes = scaled.shape[1], count, *weights.shape
    library.mpifl_product_step(*places, g.data_ptr(), scaled.data_ptr(), *sizes)


def reads(start: Tensor) -> bool:
    """Return whether `step` can read these parameters, shape [P], and is faster than PyTorch's product.

    It takes one thread, where PyTorch may take several.
    """
    plain = start.is_cpu and start.dtype == torch.float32 and start.is_contiguous()
    return plain and torch.get_num_threads() == 1 and compiled() is not None


def gives_same_bits(examples: int, weights: Tensor, *, may_overwrite: bool) -> bool:
    """Return whether `step` is known to give the bits of PyTorch's product for these sizes.

    Args:
        examples: The size of the batch.
        weights: The weights of a model, shape [n, m].
        may_overwrite: Whether these may be overwritten. If so, sizes that are not known yet are tried there.
    """
    key = examples, *weights.shape
    if key not in _ALIKE and may_overwrite:
        _ALIKE[key] = 1 < examples <= MOST and _tried(weights, examples)
    return _ALIKE.get(key, False)


def _tried(weights: Tensor, examples: int) -> bool:
    """Take a step of drawn numbers by both, and compare the bits."""
    lr, drawn = 0.1, torch.Generator().manual_seed(0)
    g, a = (torch.randn(examples, size, generator=drawn) for size in weights.shape)

    def start() -> Iterator[tuple[slice, Tensor]]:
        """Yield the weights before the step, some rows at a time."""
        again = torch.Generator().manual_seed(1)
        for where in pieces_of(len(weights), ROWS):
            yield where, torch.randn(weights[where].shape, generator=again)

    for where, own in start():
        weights[where] = own
    weights.addmm_(g.t(), a, alpha=-lr)
    for where, own in start():
        step(own, own, g[:, where], a, lr)
        if not torch.equal(own, weights[where]):
            return False
    return True


@functools.cache
def compiled() -> Any:
    """Return the library of the loop, or None if there is none for this processor."""
    if (library := native.library(SOURCE)) is None:
        return None
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    library.mpifl_width.restype = whole
    library.mpifl_product_step.argtypes = [*[pointer] * 5, *[whole] * 4]
    library.mpifl_product_step.restype = None
    return library if library.mpifl_width() else None
