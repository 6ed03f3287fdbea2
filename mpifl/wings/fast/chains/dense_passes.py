"""The forward and the backward pass of a perceptron as two calls of C, with the loss between them.

A step on a small batch is some forty operations of PyTorch. Each costs microseconds before it computes
anything. `dense_passes.c` calls the matrix product of PyTorch's own BLAS, with the same arguments. It serves
only batches of a size with which it has given PyTorch's bits in this process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from mpifl.common.machine import native
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import Batch
from mpifl.wings.fast.chains.chain_formulas import ALIGNED, Chain

SOURCE = Path(__file__).with_name("dense_passes.c")
PRODUCTS = "SGEMM", "sgemm_"
"""Names of the matrix product in PyTorch's library, with Fortran's arguments."""
Compiled: TypeAlias = tuple[Any, Any, int]
"""The forward pass, the backward pass, and the address of PyTorch's product."""
_ALIKE: dict[tuple[Any, ...], bool] = {}
"""Whether the passes gave PyTorch's bits, by the number of examples and the layers."""


class Dense(NamedTuple):
    """A dense layer: its sizes, whether a ReLU follows, and where its parameters lie in the flat vector.

    Without a bias, `bias` is -1.
    """

    inputs: int
    outputs: int
    weight: int
    bias: int
    relu: bool = False


class OfBatch(NamedTuple):
    """What the passes over batches of one size write to.

    Attributes:
        table: Each layer's sizes, places and memory, as `dense_passes.c` has them.
        z: Each layer's outputs, behind its ReLU, shape [n, outputs].
        g: The gradient for the inputs of each layer but the first, shape [n, inputs].
        products: The gradient of each layer's weights, if its own place is not aligned.
    """

    table: Any
    z: Sequence[Tensor]
    g: Sequence[Tensor]
    products: Sequence[Tensor | None]


class DensePasses:
    """The passes of a perceptron on a CPU.

    Args:
        model: The model.
        layers: Its layers, the first one first.
        flattens: Whether an example may be more than a row of numbers.
        at_outputs: (outputs, y) -> the mean loss, and its gradient for the outputs.
        passes: The compiled passes.
    """

    def __init__(
        self,
        model: FlatModel,
        layers: Sequence[Dense],
        flattens: bool,
        at_outputs: Callable[[Tensor, Any], tuple[Tensor, Tensor]],
        passes: Compiled,
    ) -> None:
        self._model, self._layers, self._flattens, self._at_outputs = model, layers, flattens, at_outputs
        self._trained, self._grad = model.parameters[0], model.grad
        self._biases = [self._grad[at.bias : at.bias + at.outputs] if at.bias >= 0 else None for at in layers]
        self._compiled, self._memory = passes, dict[int, OfBatch]()

    def loss(self, batch: Batch) -> Tensor | None:
        """Return the mean loss of a batch, and write its gradient into the model's; None if PyTorch has to do
        it."""
        x, y = batch[0], batch[1]
        return self._taken(x, y) if self._fits(x) and _ALIKE.get(self._key(x)) else None

    def see(self, batch: Batch, loss: Tensor) -> None:
        """Compare the passes with PyTorch's, which gave this loss and the gradient in the model; it stays."""
        x, y = batch[0], batch[1]
        if not self._fits(x) or self._key(x) in _ALIKE or not loss.isfinite():
            return
        expected = self._grad.clone()
        own = self._taken(x, y)
        _ALIKE[self._key(x)] = torch.equal(own, loss) and torch.equal(self._grad, expected)
        self._grad.copy_(expected)

    def _fits(self, x: Any) -> bool:
        if not isinstance(x, Tensor) or not (self._flattens or x.dim() == 2):
            return False
        inputs, plain = self._layers[0].inputs, x.is_cpu and x.dtype == torch.float32 and x.is_contiguous()
        return (
            plain
            and not x.requires_grad
            and x.numel() == len(x) * inputs > 0
            and torch.get_num_threads() == 1
        )

    def _key(self, x: Tensor) -> tuple[Any, ...]:
        return len(x), x.data_ptr() % ALIGNED, *self._layers

    def _taken(self, x: Tensor, y: Any) -> Tensor:
        """Write the gradient, and return the loss."""
        if (memory := self._memory.get(len(x))) is None:
            memory = self._memory[len(x)] = _memory(len(x), self._layers, self._grad)
        forward, backward, product = self._compiled
        given = product, memory.table, len(self._layers), self._trained.data_ptr()
        with torch.no_grad():
            forward(*given, x.data_ptr(), len(x))
            loss, g = self._at_outputs(memory.z[-1], y)
            g = g.contiguous()
            backward(*given, self._grad.data_ptr(), x.data_ptr(), g.data_ptr(), len(x))
            for to_bias, of_outputs in zip(self._biases, [*memory.g, g], strict=True):
                if to_bias is not None:
                    torch.sum(of_outputs, 0, out=to_bias)
        return loss


def passes_of(model: FlatModel, chain: Chain) -> DensePasses | None:
    """Return the passes of a chain in C; None if it is more than dense layers and ReLUs, or C cannot be
    used."""
    if chain.front or model.device.type != "cpu" or (passes := compiled()) is None:
        return None
    places, layers, flattens = _places(model), list[Dense](), False
    for module in chain.modules:
        match module:
            case nn.Linear():
                bias = -1 if module.bias is None else places[id(module.bias)]
                layers.append(Dense(module.in_features, module.out_features, places[id(module.weight)], bias))
            case nn.ReLU() if layers and not layers[-1].relu:
                layers[-1] = layers[-1]._replace(relu=True)
            case nn.Flatten() if (module.start_dim, module.end_dim) == (1, -1):
                flattens = flattens or not layers
            case nn.Identity():
                pass
            case _:
                return None
    return None if layers[-1].relu else DensePasses(model, layers, flattens, chain.at_outputs, passes)


def _places(model: FlatModel) -> dict[int, int]:
    """Return the place of each parameter in the flat vector, by its id."""
    places, at = {}, 0
    for p in model.parameters:
        places[id(p)], at = at, at + p.numel()
    return places


def _memory(n: int, layers: Sequence[Dense], grad: Tensor) -> OfBatch:
    z = [torch.empty(n, at.outputs) for at in layers]
    g = [torch.empty(n, at.inputs) for at in layers[1:]]
    aligned = [(grad.data_ptr() + 4 * at.weight) % ALIGNED == 0 for at in layers]
    products = [
        None if fits else torch.empty(at.outputs, at.inputs) for fits, at in zip(aligned, layers, strict=True)
    ]
    table: list[int] = []
    for at, *own in zip(layers, z, [None, *g], products, strict=True):
        table += [at.inputs, at.outputs, at.relu, at.weight, at.bias]
        table += [0 if one is None else one.data_ptr() for one in own]
    return OfBatch((ctypes.c_int64 * len(table))(*table), z, g, products)


@functools.cache
def compiled() -> Compiled | None:
    """Return the passes and the address of PyTorch's product; None if one of them is not there."""
    library, product = native.library(SOURCE), _product()
    if library is None or product is None:
        return None
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    forward, backward = library.mpifl_dense_forward, library.mpifl_dense_backward
    forward.argtypes = [pointer, pointer, whole, pointer, pointer, whole]
    backward.argtypes = [pointer, pointer, whole, *[pointer] * 4, whole]
    forward.restype = backward.restype = None
    return forward, backward, product


def _product() -> int | None:
    path = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        torchs = ctypes.CDLL(str(path))
    except OSError:
        return None
    found = (getattr(torchs, name, None) for name in PRODUCTS)
    return next((ctypes.cast(one, ctypes.c_void_p).value for one in found if one is not None), None)
