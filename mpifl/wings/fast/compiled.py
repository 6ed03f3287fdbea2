"""A whole local step as machine code: forward, backward, correction and optimizer in one call.

The call is one C++ function, without Python between a step's operations. It has no guards as `torch.compile`
has, since a step is called only for the exact shapes with which it was traced.
"""

from __future__ import annotations

import inspect
import itertools
import socket
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mpifl.common.machine import DEBUGGING, debugging
from mpifl.silo.parameters import FlatModel, Objective, scalar
from mpifl.silo.steps import LOCAL, OWN_WORK, Batch, Constant, Correction, Proximal, Training
from mpifl.wings.fast.codegen import NotCompiled, TracedLoss, compile_graph, trace
from mpifl.wings.fast.cuda_graphs import Graphs, recorded

ALIKE = 0.05
"""The largest difference of a compiled step from the traced one, relative to its norm.

Rounding causes 1e-6, and 1e-2 in bfloat16."""
_TOLD: set[str] = set()
_STEPS: WeakKeyDictionary[FlatModel, dict[Hashable, CompiledStep | None]] = WeakKeyDictionary()
Groups = dict[str, list[Tensor]]


def find(t: Training, batch: Batch) -> CompiledStep | None:
    """Return the compiled step for batches like this one, ready for a training; None if it cannot be made.

    It is made when it is first needed. The first worker of a node says once why it cannot be made.
    """
    try:
        key, steps = _key(t, batch), steps_of(t.model)
        if key not in steps:
            steps[key] = None
            steps[key] = CompiledStep(t, batch)
    except NotCompiled as reason:
        tell(t.model, str(reason))
        return None
    step = steps[key]
    return step and step.begin(t.correct)


def tell(model: FlatModel, reason: str) -> None:
    """Say once, at the first worker of a node, why a plain step runs."""
    if model.is_reporter and reason not in _TOLD:
        line = f"[local] compile = true: {reason}; the plain step runs instead"
        print(line, file=sys.stderr, flush=True)
    _TOLD.add(reason)


def steps_of(model: FlatModel) -> dict[Hashable, CompiledStep | None]:
    """Return a model's compiled steps by their keys; None marks a step that cannot be compiled."""
    return _STEPS.setdefault(model, {})


class CompiledStep:
    """One step of one model with one objective, for batches of one shape.

    Its tensors keep their memory from one training to the next, as a captured CUDA graph needs it.

    Attributes:
        size: How many examples a batch has; a batch of another size needs the plain step.
        optimizer: The optimizer and its state, which plain steps in between also use.
        total: The sum of the losses, each times its batch's number of examples.
    """

    def __init__(self, t: Training, batch: Batch) -> None:
        def number() -> Tensor:
            return torch.zeros((), dtype=torch.float64, device=model.device)

        model, self.size = t.model, len(batch[1])
        self._objective = t.loss.mean  # kept alive, since the step's key contains an id
        self.optimizer = t.optimizer()
        self.total = torch.zeros((), device=model.device)
        self._now: tuple[float, ...] = ()
        self._rates = [number() for _ in self.optimizer.rates(0.0)]
        self._mu, self._vector = number(), torch.zeros_like(model.trained) if t.correct is not None else None
        groups = self._groups(model)
        self._inputs = [tensor for tensors in groups.values() for tensor in tensors]
        step = _step(t, self.optimizer, groups)
        graph = trace(step, [*self._inputs, *batch])
        self._run = compile_graph(graph, [*self._inputs, *batch], model.device)
        self._examine(graph, groups, batch)
        on_cuda = model.device.type == "cuda"
        self._graphs = Graphs(self._run, self._inputs, batch, recorded) if on_cuda else None

    def _groups(self, model: FlatModel) -> Groups:
        """Return the tensors that a step uses; vectors like the model's are cut into its parameters."""
        module = model.module
        frozen = {name: p.detach() for name, p in module.named_parameters() if name not in model.names}
        return {
            "rates": self._rates,
            "mu": [self._mu],
            "total": [self.total],
            "trained": model.views(model.trained),
            **{f"state {i}": model.views(vector) for i, vector in enumerate(self.optimizer.state)},
            "vector": model.views(self._vector) if self._vector is not None else [],
            "rest": [*frozen.values(), *(buffer for _, buffer in module.named_buffers())],
        }

    def _examine(self, graph: Callable[..., object], groups: Groups, batch: Batch) -> None:
        """Take two steps by the machine code and by the graph's own operations; check that the results agree.
        Raise NotCompiled if the results differ, or the code cannot be run. A bug of the compiler would train
        a wrong model.

        The first step starts with an optimizer's state of zero, where the new state shows only the gradient.
        The second starts with the resulting state, moved away from zero, so that Adam's quotient does not
        magnify rounding errors.
        """
        generator = torch.Generator().manual_seed(0)
        start = _drawn(groups, generator)
        examples = [_normal(t, generator) if t.is_floating_point() else t for t in batch]
        states = [name for name in groups if name.startswith("state")]
        for names in (["total", "rest", *states], ["total", "rest", *states, "trained"]):
            expected, found = _copied(start), _copied(start)
            graph(*itertools.chain.from_iterable(expected.values()), *examples)
            self._try([*itertools.chain.from_iterable(found.values()), *examples])
            if not all(_alike(start[name], expected[name], found[name]) for name in names):
                raise NotCompiled(f"the compiler of {socket.gethostname()} made another step of it")
            for name in states:
                typical = _joined(expected[name]).abs().mean()
                start[name] = [t.abs() + typical for t in expected[name]]

    def _try(self, given: list[Tensor]) -> None:
        try:
            self._run(given)
        except RuntimeError as error:
            what = f"the machine code of {socket.gethostname()} cannot be run ({type(error).__name__})"
            raise NotCompiled(what) from error

    def begin(self, correct: Correction | None) -> CompiledStep:
        """Prepare the step for a training: set its correction, and forget the training before."""
        self.optimizer.restart()
        if self._graphs is not None:
            self._graphs.restart()
        self.total.zero_()
        if isinstance(correct, Constant) and self._vector is not None:
            self._vector.copy_(correct.vector)
        elif isinstance(correct, Proximal) and self._vector is not None:
            self._vector.copy_(correct.centre)
            self._mu.fill_(correct.mu)
        return self

    def __call__(self, batch: Batch, lr: float) -> None:
        """Take one step. On CUDA it may wait for more steps, to run as one graph, or for `finish`."""
        self._set_rates(lr)
        if self._graphs is None:
            self._run([*self._inputs, *batch])
        else:
            self._graphs(batch)

    def finish(self) -> None:
        """Run the steps that wait."""
        if self._graphs is not None:
            self._graphs.finish()

    def _set_rates(self, lr: float) -> None:
        """Set the rates of the next step; steps that wait first run with their own rates."""
        if (rates := self.optimizer.rates(lr)) != self._now:
            self.finish()
            for tensor, rate in zip(self._rates, rates, strict=True):
                tensor.fill_(rate)
            self._now = rates


def _drawn(groups: Groups, generator: torch.Generator) -> Groups:
    """Return random parameters and corrections for the trial of a step, the same on every rank.

    The model's own parameters may be at an optimum, where a step is only rounding errors.
    """
    drawn = _copied(groups)
    # rates of different sizes, so that neither Adam's step nor its weight decay hides the other
    drawn["rates"] = [torch.full_like(t, 0.5 / 4**i) for i, t in enumerate(groups["rates"])]
    scales = [(len(t) / t.numel()) ** 0.5 if t.dim() else 1.0 for t in groups["trained"]]
    trained = zip(groups["trained"], scales, strict=True)
    drawn["trained"] = [_normal(t, generator, scale) for t, scale in trained]
    drawn["vector"] = [_normal(t, generator) for t in groups["vector"]]
    drawn["mu"] = [torch.full_like(groups["mu"][0], 0.5)]
    return drawn


def _normal(like: Tensor, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    return torch.randn(like.shape, generator=generator).mul_(scale).to(like)


def _copied(groups: Groups) -> Groups:
    return {name: [tensor.clone() for tensor in tensors] for name, tensors in groups.items()}


def _alike(start: Sequence[Tensor], expected: Sequence[Tensor], found: Sequence[Tensor]) -> bool:
    """Whether two results agree; True if the expected change is not finite."""
    before, right, ours = map(_joined, (start, expected, found))
    gap, size = torch.linalg.vector_norm(ours - right), torch.linalg.vector_norm(right - before)
    return not size.isfinite() or bool(gap <= ALIKE * size)


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return the numbers of floating-point tensors in one vector."""
    return torch.cat([t.flatten() for t in tensors if t.is_floating_point()] or [torch.empty(0)])


def _key(t: Training, batch: Batch) -> Hashable:
    """Return the key of the compiled step that a training needs; raise NotCompiled if no compiled step can do
    this training."""
    if debugging():
        raise NotCompiled(f"{DEBUGGING} is set")
    if t.data.ragged:
        raise NotCompiled("examples have unequal lengths, and batches no one shape")
    if why := LOCAL.why_not("compile", t.settings, "~"):
        raise NotCompiled(why)
    if not all(isinstance(part, Tensor) for part in batch):
        raise NotCompiled("arrays with names are for the plain step")
    if t.correct is not None and not isinstance(t.correct, Constant | Proximal):
        raise NotCompiled("the algorithm corrects gradients by a function of its own")
    function, owner = identity(t.loss.mean)
    shapes = tuple((tuple(t.shape), t.stride(), t.dtype) for t in batch)
    settings = t.settings.model_dump(exclude={"lr", *OWN_WORK})
    return function, owner, type(t.correct), shapes, str(settings)


def identity(objective: Objective) -> tuple[Hashable, int]:
    """Return a key for an objective, valid as long as the objective is kept alive.

    Raises:
        NotCompiled: another objective may have the same key.
    """
    owner = getattr(objective, "__self__", None)
    function: Any = getattr(objective, "__func__", objective)
    inside = ("<locals>", "<lambda>")
    if not inspect.isfunction(function) or any(part in function.__qualname__ for part in inside):
        raise NotCompiled("the objective is neither a function of a module nor a method")
    return function, id(owner)


def _step(t: Training, optimizer: Any, groups: Groups) -> Callable[..., tuple[()]]:
    """Return one step as a function of the tensors of `groups` and the batch, which it changes in place."""
    model, correct = t.model, type(t.correct)
    frozen = [name for name, _ in model.module.named_parameters() if name not in model.names]
    names = [*model.names, *frozen, *(name for name, _ in model.module.named_buffers())]
    whole = TracedLoss(model.module, t.objective)

    def step(*inputs: Tensor) -> tuple[()]:
        left = iter(inputs)
        given = {name: list(itertools.islice(left, len(tensors))) for name, tensors in groups.items()}
        batch = tuple(left)
        leaves = [trained.detach().requires_grad_() for trained in given["trained"]]
        replaced = {f"module.{name}": t for name, t in zip(names, [*leaves, *given["rest"]], strict=True)}
        given_to = dict(replaced)
        loss = scalar(torch.func.functional_call(whole, replaced, batch))
        if moved := [name for name, tensor in given_to.items() if replaced[name] is not tensor]:
            raise NotCompiled(f"the model puts another tensor in the place of '{moved[0][7:]}'")
        gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
        with torch.no_grad():
            for i, (trained, gradient) in enumerate(zip(given["trained"], gradients, strict=True)):
                gradient = gradient.clone()
                if correct is Constant:
                    Constant(given["vector"][i])(gradient, trained, batch)
                elif correct is Proximal:
                    Proximal(given["vector"][i], given["mu"][0])(gradient, trained, batch)
                state = [given[f"state {j}"][i] for j in range(len(optimizer.state))]
                optimizer.descend(trained, gradient, state, given["rates"])
            given["total"][0].add_(loss, alpha=len(batch[1]))
        return ()

    return step
