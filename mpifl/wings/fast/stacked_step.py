"""Several silos' parameters as one matrix, a row each, and all their gradients by one graph of operations.

The graph is that of a single model under `torch.func.vmap`, traced once and then called without it. All its
shapes are fixed, and rows begin at equal places of memory. So what comes of a row depends neither on the
other rows nor on which row it is.
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
"""What a stack's gradient may differ by from the model's own, of its length."""
_aten = torch.ops.aten
_PRODUCTS = {_aten.bmm.default, _aten.baddbmm.default}
_SAME = {_aten.detach.default, _aten.expand.default, _aten.view.default, _aten._unsafe_view.default}
"""Operations that leave a tensor as it is, where its layout stays."""


class Stack:
    """So many models of one architecture, with one objective, for batches of one shape.

    Attributes:
        size: How many.
        weighted: Whether examples have weights.
        trained: Their parameters, shape [size, P or a few more]; what is behind P is 0.
        gradient: What `take` has found last, of the same shape.
    """

    def __init__(self, asked: Training, batch: Batch, size: int) -> None:
        model = asked.model
        self.size, self.weighted = size, asked.loss.weighted is not None
        self._tf32 = asked.settings.precision == "tf32"
        self._objective = asked.loss.mean  # kept, so that the id in its key stays its own
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
        """Find the gradients of each row's batch; return their losses, shape [size].

        Args:
            columns: x, y and what is beside, shape [size, n, ...]; the examples' weights behind them.
        """
        with accelerators.rounding(self.trained.device, tf32=self._tf32):
            found: list[Tensor] = self._run(*self._views, *self._rest, *columns)
        torch._foreach_copy_(self._found, found[:-1])
        return found[-1]

    def examine(self, asked: Training, batch: Batch) -> None:
        """See that a row has the gradient that the model itself has.

        Raises:
            NotCompiled: it has another, as where a loss is no mean over examples.
        """
        model, count = asked.model, len(batch[1])
        model.buffers.restore()
        some = max(count - 1, 1) if self.weighted else count  # the last one weighs nothing
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
        rows = self.gradient.nan_to_num()  # all of the same batch
        if not torch.equal(rows, rows[:1].expand_as(rows)):
            raise NotCompiled("an operation rounds otherwise for one silo of a step than for another")
        if size.isfinite() and not gap <= ALIKE[asked.settings.precision] * size:
            raise NotCompiled("a gradient of several at once is another one than alone")

    def _cut(self, matrix: Tensor) -> list[Tensor]:
        """Cut a matrix into views of the parameters' shapes, a row each."""
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
        # rows have nothing to do with each other: the sum's gradient is each row's own
        found = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
        return [*found, losses.detach()]


@contextlib.contextmanager
def _every_rule() -> Iterator[None]:
    """Have vmap refuse what it would do row by row, which gains nothing.

    Raises:
        NotCompiled: it does.
    """
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
    """Leave out of a traced graph what changes nothing, a third of its operations; have a CPU round alike
    everywhere."""
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
    """Return shape, strides and kind of what an operation makes."""
    made = node.meta["val"]
    return made.shape, made.stride(), made.dtype
