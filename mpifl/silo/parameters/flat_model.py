"""A module's parameters and gradients as flat vectors, and its running statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from mpifl.common import InputError
from mpifl.silo.parameters.buffers import Buffers, Statistics
from mpifl.silo.parameters.dtypes import check_tensors
from mpifl.silo.parameters.wrapped_names import plain_names

Objective = Callable[..., Tensor]
"""(module, x, y, ...) -> mean loss over the batch, a scalar tensor."""
Found = TypeVar("Found")


def scalar(loss: Any) -> Tensor:
    """Return an objective's result, after a check that it is a tensor without dimensions.

    Raises:
        InputError: it is not such a tensor.
    """
    if isinstance(loss, Tensor) and loss.dim() == 0:
        return loss
    what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
    to_do = "have it return the mean loss over the batch, as torch's losses do by default"
    raise InputError(f"the objective returned {'None' if loss is None else what}; {to_do}")


def in_precision(precision: str, objective: Callable[..., Found]) -> Callable[..., Found]:
    """Return the objective. For "bf16" and "fp16" torch's autocast chooses where passes use them."""
    if precision in ("fp32", "tf32"):
        return objective
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16

    def mixed(module: Any, x: Tensor, *rest: Tensor) -> Found:
        with torch.autocast(x.device.type, dtype=dtype):
            return objective(module, x, *rest)

    return mixed


Allocate = Callable[..., Tensor]
"""(length, dtype=) -> an uninitialised vector on the CPU."""
_ENGINE: Any = torch.autograd.Variable._execution_engine
"""The engine behind torch.autograd.grad. A direct call skips checks that take a tenth of a small model's
step."""


def backward(loss: Tensor, times: tuple[Tensor], inputs: Sequence[Any]) -> Sequence[Tensor | None]:
    """Return the gradients of a multiple of a loss; None for an input that the loss does not depend on.

    Args:
        times: The factor of the loss, in a tuple of one.
        inputs: Tensors, or edges of the graph.
    """
    found: Sequence[Tensor | None] = _ENGINE.run_backward(
        (loss,), times, False, False, inputs, allow_unreachable=True, accumulate_grad=False
    )
    return found


class FlatModel:
    """A module whose trainable parameters lie in one float32 vector, personal parameters last.

    `personal` names the parameters and buffers that never leave a silo. `rules` are the job's `[model]
    buffers`. A model with `apart` is never averaged. A model with `recalls` keeps a copy of its initial
    values.

    Attributes:
        buffers: All buffers of the module.
        statistics, personal_statistics: The buffers that are averaged or combined by a rule, and those that
            stay at the silo.
        is_reporter: Whether this rank logs messages that are the same for all ranks of its node.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        personal: Collection[str] = (),
        *,
        is_reporter: bool = True,
        saves: Literal["all", "trained"] = "all",
        rules: Mapping[str, str] | None = None,
        apart: bool = False,
        recalls: bool = False,
    ) -> None:
        check_tensors(module)
        self._module = module.to(device)
        self._late: Callable[[], object] = _nothing
        _keep_in_place(module)
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        # a stable sort: shared parameters keep their order
        ordered = sorted(named, key=lambda item: item[0] in personal)
        self.names = [name for name, _ in ordered]
        self.parameters = [p for _, p in ordered]
        size = sum(p.numel() for p in self.parameters)
        self._trained = torch.empty(size, dtype=torch.float32, device=device)
        for p, view in zip(self.parameters, self.views(self._trained), strict=True):
            p.data = view.copy_(p.data)
        self._split = sum(p.numel() for name, p in named if name not in personal)
        self.buffers = Buffers(module, personal, rules, apart=apart)
        self.statistics = Statistics(self.buffers.averaged, self.buffers.taken)
        self.personal_statistics = Statistics(self.buffers.own_numbers, self.buffers.own_others)
        self._data = [p.detach() for p in self.parameters]
        self._places = [p.data_ptr() for p in self.parameters]
        self._inputs = tuple(self.parameters)
        self.initial_personal = self.personal.clone(), self.personal_statistics.read()
        """The personal parameters and statistics of a silo that has not trained yet."""
        self.initial = (self.trained.clone(), self.statistics.read()) if recalls else None
        """The initial parameters, shape [P], and averaged statistics; None unless `recalls`.
        """
        self._grad: Tensor | None = None
        self._one = (torch.ones((), device=device),)
        self.is_reporter = is_reporter
        self._saves = saves

    @property
    def trained(self) -> Tensor:
        """All trainable parameters, shape [P]."""
        self._late, write = _nothing, self._late
        write()
        return self._trained

    @property
    def shared(self) -> Tensor:
        """The part of `trained` that may leave a silo, as a view."""
        return self.trained[: self._split]

    @property
    def personal(self) -> Tensor:
        """The part of `trained` that never leaves a silo, as a view."""
        return self.trained[self._split :]

    @property
    def module(self) -> nn.Module:
        """The module itself; its parameters are views into `trained`."""
        self.trained  # noqa: B018
        return self._module

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._trained.device

    def promise(self, write: Callable[[], object]) -> None:
        """Have `write` write the parameters when someone asks for them; the next pass forgets it."""
        self._late = write

    @contextlib.contextmanager
    def lying_in(self, vector: Tensor) -> Iterator[None]:
        """Have the parameters lie in a vector, shape [P], that is read and not written to."""
        for p, view in zip(self.parameters, self.views(vector), strict=True):
            p.data = view
        try:
            yield
        finally:
            for p, data in zip(self.parameters, self._data, strict=True):
                p.data = data

    @property
    def grad(self) -> Tensor:
        """The flat gradient, shape [P], in the order of `trained`; made when it is first needed."""
        if self._grad is None:
            self._grad = torch.zeros_like(self.trained)
        return self._grad

    def put_back(self, statistics: Tensor | None = None) -> None:
        """Restore all buffers to the server's values, whatever earlier work wrote to them.

        Args:
            statistics: The statistics to begin with; by default the previous ones.
        """
        self._late = _nothing
        self.buffers.restore()
        if statistics is not None:
            self.statistics.write(statistics)

    def learned(self) -> Tensor:
        """Return the statistics after training.

        Raises:
            InputError: training wrote to a tensor that nothing keeps, or moved a parameter to other memory.
        """
        self.buffers.settle()
        for name, p, at in zip(self.names, self.parameters, self._places, strict=True):
            if p.data_ptr() != at:
                to_do = "write into it (copy_)"
                raise InputError(f"training has put other memory in the parameter '{name}' (.data); {to_do}")
        return self.statistics.read()

    def reclaim(self) -> None:
        """Make moved parameters views into `trained` again, and drop the gradients."""
        for p, view in zip(self.parameters, self.views(self.trained), strict=True):
            if p.data_ptr() != view.data_ptr():
                p.data = view.copy_(p.data)
            p.grad = None

    def delta(self, start: Tensor, allocate: Allocate = torch.empty) -> Tensor:
        """Return trained - start, shape [P]; on the CPU, in memory that `allocate` gives."""
        if not self.trained.is_cpu:
            return self.trained - start
        return torch.sub(self.trained, start, out=allocate(len(start), dtype=torch.float32))

    def views(self, vector: Tensor) -> list[Tensor]:
        """Cut a vector of shape [P] into views of the parameters' shapes."""
        parts = torch.split(vector, [p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Return the gradient of a scalar loss for each parameter; zeros for a parameter without influence on
        it."""
        one = self._one if loss.dtype == torch.float32 else (torch.ones_like(loss),)
        found = backward(loss, one, self._inputs)
        pairs = zip(found, self.parameters, strict=True)
        return [g if g is not None else torch.zeros_like(p) for g, p in pairs]

    def flatten(self, gradients: Sequence[Tensor]) -> Tensor:
        """Copy the parameters' gradients into the flat `grad` and return it."""
        return torch.cat([g.reshape(-1) for g in gradients], out=self.grad)

    def flat(self, gradient: Tensor | list[Tensor]) -> Tensor:
        """Return a gradient, given flat or by parameter, as one vector, shape [P]."""
        return gradient if isinstance(gradient, Tensor) else self.flatten(gradient)

    def descend(self, gradient: Tensor | list[Tensor], lr: float) -> None:
        """Take a plain step in place: trained -= lr * gradient, given flat or by parameter."""
        if isinstance(gradient, Tensor):
            self.trained.add_(gradient, alpha=-lr)
        else:
            torch._foreach_add_(self._data, gradient, alpha=-lr)

    def gradient_at(self, vector: Tensor, objective: Objective, batch: Sequence[Tensor]) -> Tensor:
        """Return the gradient at other parameters `vector`, shape [P], and leave the module as it is."""
        leaves = [view.detach().requires_grad_() for view in self.views(vector)]
        replaced = dict(zip(self.names, leaves, strict=True))
        replaced |= {name: buffer.clone() for name, buffer in self.module.named_buffers()}

        def module(*inputs: Tensor) -> Tensor:
            answer: Tensor = torch.func.functional_call(self.module, replaced, inputs)
            return answer

        gradients = torch.autograd.grad(scalar(objective(module, *batch)), leaves, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in gradients])

    @torch.no_grad()
    def take(self, state: Mapping[str, Tensor]) -> None:
        """Copy trained parameters and buffers from a state that `state_dict` has returned.

        Raises:
            KeyError: a parameter is missing.
            RuntimeError: a tensor has another shape.
        """
        named, buffers = plain_names(self.module), self.module.named_buffers()
        for name, parameter in zip(self.names, self.parameters, strict=True):
            parameter.copy_(state[named.get(name, name)])
        for name, buffer in buffers:
            if (value := state.get(named.get(name, name))) is not None:
                buffer.copy_(value)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the module's state on the CPU by PyTorch's names; tensors on the CPU are views.

        If only trained parameters are saved, frozen ones are left out. Names of wrappers are left out.
        """
        every = self.module.named_parameters(remove_duplicate=False)  # a tied parameter has several names
        frozen = {name for name, p in every if not p.requires_grad}
        left_out = frozen if self._saves == "trained" else set()
        state = self.module.state_dict().items()
        named = plain_names(self.module)
        return {named.get(name, name): value.detach().cpu() for name, value in state if name not in left_out}


def _keep_in_place(module: nn.Module) -> None:
    """Keep recurrent layers from moving their weights: on CUDA they would copy them into one block."""
    for part in module.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters = _nothing  # type: ignore[method-assign]


def _nothing() -> None:
    pass
