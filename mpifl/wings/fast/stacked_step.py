"""A stack: several silos' parameters as rows of one matrix, and their gradients by one graph of operations.

The graph is that of a single model under `torch.func.vmap`, traced once and then called without vmap. All
shapes are fixed, and all rows begin at aligned places of memory. So the result of a row depends neither on
the other rows nor on the row's place.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mpifl.common.machine import accelerators
from mpifl.silo.parameters import in_precision, scalar
from mpifl.silo.steps import Batch, Training
from mpifl.wings.fast.codegen import NotCompiled, TracedLoss, trace
from mpifl.wings.fast.same_rounding import ALIGNED, by_lines, by_vectors, rounds_by_place

ALIKE = {"fp32": 1e-3, "tf32": 0.01, "bf16": 0.05}
"""By precision, the largest difference of a stack's gradient from the model's own, relative to its norm."""
_aten = torch.ops.aten
_PRODUCTS = {_aten.bmm.default, _aten.baddbmm.default}
_SAME = {_aten.detach.default, _aten.expand.default, _aten.view.default, _aten._unsafe_view.default}
"""Operations that change nothing if the layout of the tensor stays the same."""


class Stack:
    """Several models of one architecture, with one objective, for batches of one shape.

    Attributes:
        size: How many models.
        weighted: Whether examples have weights.
        trained: Their parameters, shape [size, P padded for alignment]; the padding is 0.
        gradient: The gradients that `take` has computed last, of the same shape.
    """

    def __init__(self, asked: Training, batch: Batch, size: int) -> None:
        model = asked.model
        self.size, self.weighted = size, asked.loss.weighted is not None
        self._tf32 = asked.settings.precision == "tf32"
        self._objective = asked.loss.mean  # kept alive, since the stack's key contains an id
        objective = in_precision(asked.settings.precision, asked.loss.weighted or asked.loss.mean)
        self._whole = TracedLoss(model.module, objective)
        self._length, self._shapes = len(model.trained), [p.shape for p in model.parameters]
        width = -(-self._length // ALIGNED) * ALIGNED
        self.trained = torch.zeros(size, width, device=model.device)
        self.gradient = torch.zeros_like(self.trained)
        self._views, self._found = self._cut(self.trained), self._cut(self.gradient)
        frozen = {name: p.detach() for name, p in model.module.named_parameters() if name not in model.names}
        rest = frozen | dict(model.module.named_buffers())
        self._names, self._rest = [*model.names, *rest], [*rest.values()]
        weights = [torch.ones(len(batch[1]), device=model.device)] * self.weighted
        columns = [torch.stack([part] * size) for part in (*batch, *weights)]
        model.module.train()
        with _every_rule():
            graph = trace(self._traced, [*self._views, *self._rest, *columns])
        self._run = _ready(graph, on_cpu=model.device.type == "cpu")

    def row(self, matrix: Tensor, place: int) -> Tensor:
        """Return one silo's row of a matrix like `trained`, shape [P]."""
        return matrix[place, : self._length]

    def take(self, columns: Sequence[Tensor]) -> Tensor:
        """Compute the gradients for each row's batch; return the losses, shape [size].

        Args:
            columns: x, y and further columns of the batches, shape [size, n, ...], then examples' weights.
        """
        with accelerators.rounding(self.trained.device, tf32=self._tf32):
            found: list[Tensor] = self._run(*self._views, *self._rest, *columns)
        torch._foreach_copy_(self._found, found[:-1])
        return found[-1]

    def examine(self, asked: Training, batch: Batch) -> None:
        """Check that a row gets the same gradient as the model itself.

        Raises:
            NotCompiled: it gets another one, for example if the loss is not a mean over examples.
        """
        model, count = asked.model, len(batch[1])
        model.buffers.restore()
        some = max(count - 1, 1) if self.weighted else count  # the last example has weight 0
        model.trained.copy_(asked.start)
        part = tuple(column[:some] for column in batch)
        objective = in_precision(asked.settings.precision, asked.loss.mean)
        expected = model.flatten(model.gradients(scalar(objective(model.module, *part))))
        if wrote := model.buffers.written():
            raise NotCompiled(f"the model writes to its buffer '{wrote[0]}'")
        self.trained[:, : len(asked.start)] = asked.start
        weights = [torch.arange(count, device=model.device).lt(some).float() / some] * self.weighted
        self.take([torch.stack([part] * self.size) for part in (*batch, *weights)])
        gap = torch.linalg.vector_norm(self.row(self.gradient, self.size - 1) - expected)
        size = torch.linalg.vector_norm(expected)
        rows = self.gradient.nan_to_num()  # all rows have the same batch
        if not torch.equal(rows, rows[:1].expand_as(rows)):
            raise NotCompiled("an operation rounds otherwise for one silo of a step than for another")
        if size.isfinite() and not gap <= ALIKE[asked.settings.precision] * size:
            raise NotCompiled("a gradient of several at once is another one than alone")

    def _cut(self, matrix: Tensor) -> list[Tensor]:
        """Return views of a matrix, one for each parameter, shape [size, *the parameter's shape]."""
        parts = torch.split(matrix[:, : self._length], [shape.numel() for shape in self._shapes], dim=1)
        return [part.view(self.size, *shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _traced(self, *inputs: Tensor) -> list[Tensor]:
        """Return the gradients of each row, parameter by parameter, and the losses."""
        count, end = len(self._views), len(self._names)
        leaves = [view.detach().requires_grad_() for view in inputs[:count]]
        rest, columns = inputs[count:end], inputs[end:]

        def one(own: Sequence[Tensor], *batch: Tensor) -> Tensor:
            named = zip(self._names, [*own, *rest], strict=True)
            replaced = {f"module.{name}": tensor for name, tensor in named}
            return scalar(torch.func.functional_call(self._whole, replaced, batch))

        losses = torch.func.vmap(one, randomness="different")(leaves, *columns)
        # rows are independent, so the gradient of the sum is the gradient of each row's loss
        found = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
        return [*found, losses.detach()]


@contextlib.contextmanager
def _every_rule() -> Iterator[None]:
    """Make vmap refuse operations that it would run row by row, since they save no time; raise NotCompiled if
    vmap has refused one."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    except NotCompiled as error:
        if "fallback" in str(error) and (ruleless := re.search(r"aten::(\w+)", str(error))):
            raise NotCompiled(f"torch.func.vmap has no rule for {ruleless[1]}") from error
        raise
    finally:
        functorch._set_vmap_fallback_enabled(before)


def _ready(graph: torch.fx.GraphModule, *, on_cpu: bool) -> Callable[..., Any]:
    """Prepare a traced graph: remove operations that change nothing, a third of all.

    On a CPU also replace operations whose rounding depends on the place in memory.
    """
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    in_place = any(node.target._schema.is_mutable for node in calls if hasattr(node.target, "_schema"))
    for node in calls:
        one = node.target is _aten.mul.Scalar and node.args[1] == 1 and not in_place
        if (one or node.target in _SAME) and _layout(node) == _layout(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
        elif on_cpu and rounds_by_place(node.target):
            node.target = by_vectors(node.target)
        elif on_cpu and node.target in _PRODUCTS:
            node.target = by_lines(node.target)
    graph.recompile()
    return graph


def _layout(node: torch.fx.Node) -> Any:
    """Return shape, strides and dtype of an operation's result."""
    made = node.meta["val"]
    return made.shape, made.stride(), made.dtype
