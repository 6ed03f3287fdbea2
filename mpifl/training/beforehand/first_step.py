"""A trial step of a model before round 1, on made-up examples of the shards' shapes.

The step is a silo's own, on a copy of the model, taken twice from one state. It finds errors that would end
round 1, and models whose result depends on the silo that trained before.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from mpifl.common import InputError, Names, one_line
from mpifl.data import Inputs
from mpifl.data.batches import Batches, Change
from mpifl.data.shards import Shard, Split
from mpifl.learning.tasks import CLASSIFICATION, Task, tensor_of
from mpifl.silo import Silo
from mpifl.silo.parameters import FlatModel, Objective
from mpifl.silo.steps import LocalRun, LocalTraining, Training, check_batches, has_one_row, train
from mpifl.training.beforehand.made_up_examples import Aim, made_up
from mpifl.training.beforehand.model_copies import copied

SEED = 0
"""The seed of the made-up examples and of the draws in the two steps."""
DEEPEST = 6
"""How many nested containers of an attribute are read, since a container may hold itself."""
_OWN = {*vars(nn.Module()), "training"}
"""Attributes of every module."""


@dataclass(frozen=True)
class Learner:
    """A model, and how silos train it.

    Attributes:
        where: The model's name in error messages.
        module: The model, which is not changed.
        features: The format of an example.
        aim: The format of its target.
        width: How many outputs the task needs for each target.
        local: How a silo trains the model.
        own: The objective that training minimises, or None if it is the task's loss.
        augment: The augmentation of batches, or None.
        remake: Builds the model again, in case it cannot be copied.
        personal: The names of parameters and buffers that stay at the silos.
        rules: The rules of buffers that training writes, by names or patterns.
        apart: Whether nobody averages the model, so that it keeps all its buffers.
        by_example: Whether `[privacy]` trains on each example by itself; then no buffer may be written.
        rounds: The number of rounds.
    """

    where: str
    module: nn.Module
    features: Inputs
    aim: Aim
    width: int
    local: LocalTraining
    remake: Callable[[], nn.Module]
    task: Task = CLASSIFICATION
    own: Objective | None = None
    augment: Change | None = None
    personal: Collection[str] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False
    by_example: bool = False
    rounds: int = 1


def check_first_step(learner: Learner, examples: Sequence[int], names: Names | None = None) -> None:
    """Check that a model can take a training step, and that two steps from one state give the same bits.

    A batch of one row is also tried, if the training has one.

    Args:
        learner: The model.
        examples: Each silo's number of examples; 0 for a silo that does not train this model.
        names: The silos' names; None if errors name `where` only.

    Raises:
        InputError: it cannot, or the bits differ; the line says what to do.
    """
    if not any(p.requires_grad for p in learner.module.parameters()):
        what = "has no parameter that is trained; leave requires_grad of one or more as it is"
        raise InputError(f"{learner.where}: {what}")
    steps = _Steps(learner)
    layer, why = steps.tried(examples)
    if why and steps.places:
        layer, why = _Steps(learner, steps.places).tried(examples)
    if why:
        raise InputError(f"{learner.where}: {why}")
    for silo, count in enumerate(examples):
        where = learner.where if names is None else f"the model of silo {names[silo]}"
        check_batches(learner.local, count, where, layer, rounds=learner.rounds)


def check_server_step(learner: Learner, public: int, key: str) -> None:
    """Check that the server can train a model on its public examples: no batch has one row, if the model
    refuses such batches.

    Args:
        learner: The model, and how the server trains it.
        public: The number of public examples.
        key: The job's key for the size of a batch.

    Raises:
        InputError: a batch has one row; the line says what to do.
    """
    if has_one_row(learner.local, [public], learner.rounds):
        layer, _ = _Steps(learner).tried([public])
        where = "the server's model, on public examples,"
        check_batches(learner.local, public, where, layer, key, learner.rounds)


class _Steps:
    """Trial steps of a copy of a model.

    Attributes:
        places: The shape of an example's class numbers that the model's outputs imply, if the federation does
            not give that shape.

    Args:
        learner: The model.
        places: The shape of an example's class numbers.
    """

    def __init__(self, learner: Learner, places: tuple[int, ...] = ()) -> None:
        self._learner = learner
        self._places = places
        self.places: tuple[int, ...] = ()
        try:
            module = copied(learner.module)
        except (RuntimeError, TypeError, AttributeError):  # such as for a tensor that is no leaf, or a lock
            module = learner.remake()
        personal, rules, apart = learner.personal, learner.rules, learner.apart
        self._model = FlatModel(module, personal=personal, is_reporter=False, rules=rules, apart=apart)
        self._start = self._model.trained.clone()

    def tried(self, examples: Sequence[int]) -> tuple[str, str]:
        """Return what prevents training on one row, and why the model cannot train at all; "" if nothing."""
        local = self._learner.local
        layer = self._refuses_one_row() if has_one_row(local, examples, self._learner.rounds) else ""
        return layer, self._problem(rows=1 if local.batch_size == 1 and not layer else 2)

    def _problem(self, rows: int) -> str:
        """Return why a step fails, or what differs between two steps from one state; "" if nothing."""
        before = _traces(self._model.module)
        try:
            first, second = self._taken(rows), self._taken(rows)
        except InputError as error:
            return str(error)
        except Exception as error:  # the user's code may raise anything
            return f"cannot take a step of training: {self._explained(error, rows)}"
        if not (differs := [name for name in first if not _same(first[name], second.get(name))]):
            return ""
        after = _traces(self._model.module)
        changed = [name for name in before if after.get(name) != before[name]]
        to_do = (
            "what a model remembers belongs in a buffer (register_buffer), which is put back for each silo"
        )
        cause = (
            f"training changes its {changed[0]}; {to_do}"
            if changed
            else "it draws from a generator of its own, or goes by the time or by what lies outside of it"
        )
        what = f"two trainings from one state on one batch end at other {differs[0]}"
        return f"{what}, and silos on one rank would train otherwise than apart: {cause}"

    def _refuses_one_row(self) -> str:
        """Return what prevents training on one row, "" if nothing does."""
        try:
            self._taken(1)
        except Exception as error:  # the user's code may raise anything
            norms = [part for part in self._model.module.modules() if isinstance(part, _BatchNorm)]
            return type(norms[0]).__name__ if norms else _told(error)
        return ""

    def _taken(self, rows: int) -> dict[str, Any]:
        """Take a step from the start; return all its results, by their names in messages."""
        self._model.put_back()
        answers: list[Any] = []
        watch = self._model.module.register_forward_hook(lambda _, x, out: answers.append(tensor_of(out)))
        try:
            silo, local = self._silo(rows), self._learner.local
            run = silo.train_locally(self._start, one_step(local, rows))
        finally:
            watch.remove()
            self._see_places(answers)
        tensors = [leaf.detach().clone() for leaf in tree_leaves(answers) if torch.is_tensor(leaf)]
        found: dict[str, Any] = {"answers": tensors, "losses": run.loss}
        buffers = self._model.module.named_buffers()
        found |= {f"values of the buffer '{name}'": buffer.detach().clone() for name, buffer in buffers}
        return {**found, "parameters": run.end.clone()}

    def _see_places(self, answers: Sequence[Any]) -> None:
        classes, targets = self._learner.aim
        plain = classes is not None and targets is None and self._learner.task.aligned
        if plain and answers and isinstance(answers[0], Tensor):
            self.places = tuple(answers[0].shape[2:])

    def _silo(self, rows: int) -> Silo:
        of = self._learner
        return Silo(
            0,
            Shard(Path(), {"train": self._split(rows)}),
            of.features,
            [self._model],
            state={},
            seed=SEED,
            task=of.task,
            objective=of.own,
            own_objective=of.own,
            augment=of.augment,
            trains=self._trained,
        )

    def _trained(self, asked: Training) -> LocalRun:
        run = train(asked)
        if self._learner.by_example and (wrote := self._model.buffers.written()):
            what = f"training wrote to the buffer '{wrote[0]}', and by [privacy] none may learn"
            raise InputError(f"{what}; use a layer without it, or leave [privacy] out")
        return run

    def _split(self, rows: int) -> Split:
        return Split(*made_up(self._learner.features, self._learner.aim, rows, SEED, self._places))

    def _explained(self, error: Exception, rows: int) -> str:
        """Return why a step failed: a fault of the model's outputs, if any, else the error's own text."""
        of = self._learner
        if of.own is None:
            x, _ = next(Batches(self._split(rows), of.features, self._model.device).in_order(rows))
            try:
                of.task.check_outputs(of.task.outputs(self._model.module.train(), x), rows, of.width)
            except ValueError as wrong:
                return f"in training mode {wrong}"
            except Exception as again:
                return _told(again)
        return _told(error)


def one_step(local: LocalTraining, rows: int) -> LocalTraining:
    """Return the settings of one plain step by a job's optimizer."""
    plain = {
        "deadline": None,
        "keep_optimizer_state": False,
        "compile": False,
        "batch_silos": False,
        "precision": "fp32",
    }
    return local.lasting(steps=1).model_copy(update={**plain, "batch_size": rows, "accumulate_batches": 1})


def _told(error: Exception) -> str:
    if "does not require grad" in str(error):
        return "its loss depends on no parameter that is trained; see where it calls detach or torch.no_grad"
    return one_line(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)


def _same(one: Any, other: Any) -> bool:
    """Return whether two results are equal; NaN equals NaN."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Tensor):
        alike = isinstance(other, Tensor) and one.shape == other.shape and one.dtype == other.dtype
        return alike and bool(((one == other) | ((one != one) & (other != other))).all())
    return bool(one == other or (one != one and other != other))


def _traces(module: nn.Module) -> dict[str, str]:
    """Return a text for each attribute that is not restored between silos, by its name in messages."""
    found = {}
    for place, part in module.named_modules():
        for key, value in vars(part).items():
            if key not in _OWN and (told := _trace(value)):
                found[f"attribute '{place + '.' * bool(place)}{key}'"] = told
    return found


def _trace(value: Any, depth: int = 0) -> str:
    """Return a text that changes when a value does; "" for a value of unknown kind or nested too deep.

    Parameters have none either, since they are restored.
    """
    if depth > DEEPEST or isinstance(value, nn.Parameter):
        return ""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        value = value.tolist()
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    if isinstance(value, Tensor):
        values = value.tolist() if value.numel() <= 1000 else (value._version, value.data_ptr())
        return f"{value.dtype} {list(value.shape)} {values}"
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    if type(value).__module__ == "random":
        return repr(value.getstate())
    if isinstance(value, torch.Generator):
        return repr(value.get_state().tolist())
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    several = isinstance(value, list | tuple | set | deque)
    return repr([_trace(one, depth + 1) for one in value]) if several else ""
