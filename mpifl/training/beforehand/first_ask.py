"""A trial of an algorithm of the user's own before round 1: its first client method, on a few rows."""

from __future__ import annotations

import ast
import inspect
import textwrap
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from mpifl.algorithms import Algorithm, Lead, Server, Work, usual_weight
from mpifl.common import InputError, Names, one_line
from mpifl.data.batches import Batches
from mpifl.data.shards import FederationSpec, Shard, open_shard
from mpifl.exchange.worker_side import as_update
from mpifl.run.job import Job
from mpifl.silo import Silo
from mpifl.silo.steps import LocalRun, Training, train
from mpifl.training.beforehand.first_step import one_step
from mpifl.training.beforehand.lent_models import models_of
from mpifl.training.beforehand.run_checks import augment_of
from mpifl.wire import Mean, Scalar

ROWS = 4
"""Rows of each split that the trial has."""


class _Asked(BaseException):
    """The first client method has been tried; what follows in the round is not."""


def check_first_ask(job: Job, spec: FederationSpec, here: Collection[int]) -> None:
    """Run the first client method that an algorithm of the user's own asks for, as in round 1.

    Args:
        job: The job; nothing is tried of an algorithm of the package.
        spec: The shards.
        here: The silos whose shards can be read here; without any nothing is tried.

    Raises:
        InputError: the method failed, or returned no update; the line names its file and line.
    """
    if "algorithm" not in job.plugins or not here:
        return
    algorithm, device = job.build_algorithm().for_federation(spec), torch.device("cpu")
    if said := _set_on_itself(type(algorithm)):
        raise InputError(f"[algorithm] name = '{job.algorithm['name']}': {said}")
    models = models_of(job, spec, algorithm, device, is_reporter=False)
    server = Server(models, job.seed, own_objective=algorithm.own_objective, task=algorithm.task)
    cohort = _Trial(job, spec, algorithm, server, min(here))
    try:
        server.state = server.begun(algorithm.begin)
        algorithm.round(server, cohort)
    except _Asked:
        pass
    except Exception as error:
        if _is_proof(error, algorithm):
            cohort.fault = f"round failed: {cohort.place(error, 'round')}"
    if cohort.fault:
        raise InputError(f"[algorithm] name = '{job.algorithm['name']}': {cohort.fault}")


@dataclass
class _Trial:
    """A cohort of one silo that tries the first client method; see `mpifl.algorithms.Cohort`."""

    job: Job
    spec: FederationSpec
    algorithm: Algorithm
    server: Server
    silo: int
    fault: str = ""

    def __post_init__(self) -> None:
        self.silos, self.population = [self.silo], len(self.spec.silos)
        self.weight = usual_weight(self.job.cohort.weights, self.spec.silos[self.silo].examples)

    def mean(self, work: Work, /, **message: Tensor | Scalar) -> Mean:
        """Try the method, and end the round."""
        given = {key: one.clone() if isinstance(one, Tensor) else one for key, one in message.items()}
        name = work.__name__
        try:
            as_update(self.algorithm.work(name)(self._lent(name), **given), self.algorithm, name)
            wrote = [key for key, one in given.items() if isinstance(one, Tensor) and one._version]
            if wrote:
                self.fault = f"{name} wrote to '{wrote[0]}', which all silos read; have it write to a clone"
        except InputError as error:
            self.fault = str(error)
        except Exception as error:  # the user's code may raise anything
            called = Names([entry.name for entry in self.spec.silos])[self.silo]
            self.fault = f"{name} failed on {ROWS} rows of silo {called}: {self.place(error, name)}"
        raise _Asked

    def of(self, silos: Sequence[int]) -> _Trial:
        """Return this cohort, which has one silo."""
        return self

    def dialogue(self, part: Work, lead: Lead, /, **message: Tensor | Scalar) -> Mean:
        """End the round: a dialogue is not tried."""
        raise _Asked

    def _lent(self, work: str) -> Silo:
        entry, algorithm = self.spec.silos[self.silo], self.algorithm
        shard = open_shard(Path(self.job.shards), entry, self.spec, checksum=False)
        few = Shard(shard.path, {name: split[:ROWS] for name, split in shard.splits.items()})
        return Silo(
            self.silo,
            few,
            self.spec.features,
            self.server.models,
            state={},
            work=work,
            seed=self.job.seed,
            task=algorithm.task,
            objective=algorithm.objective,
            own_objective=algorithm.own_objective,
            weight=algorithm.weight(work, {name: len(one) for name, one in few.splits.items()}, self.weight),
            public=self._public(),
            augment=augment_of(self.job, self.spec),
            trains=_one_step_of,
        )

    def _public(self) -> Batches | None:
        if self.spec.public is None:
            return None
        split = open_shard(Path(self.job.shards), self.spec.public, self.spec, checksum=False)["public"]
        return Batches(split[:ROWS], self.spec.features, self.server.model.device)

    def place(self, error: Exception, method: str) -> str:
        """Say what an error is, and where in the user's file it came up: at least in which method."""
        frames, own = traceback.extract_tb(error.__traceback__), inspect.getfile(type(self.algorithm))
        code = getattr(type(self.algorithm), method).__code__
        places = [(one.filename, one.lineno) for one in reversed(frames) if one.filename == own]
        file, line = (*places, (code.co_filename, code.co_firstlineno))[0]
        what = one_line(str(error).strip().splitlines()[0] if str(error).strip() else "")
        said = f"{type(error).__name__}: {what}" if what else type(error).__name__
        return f"{said} ({file}, line {line})"


def _is_proof(error: Exception, algorithm: Algorithm) -> bool:
    """Return whether an error of `round` would come in round 1, too.

    The trial's server has not all of it, such as public examples. So only names that are nowhere, keys that
    `begin` has not made, and attributes that the algorithm lacks prove anything.
    """
    lacks = f"'{type(algorithm).__name__}' object has no attribute"
    if isinstance(error, AttributeError):
        return str(error).startswith(lacks)
    frames = traceback.extract_tb(error.__traceback__)
    own = frames[-1].filename == inspect.getfile(type(algorithm)) and frames[-1].name != "begin"
    return own and isinstance(error, NameError | KeyError)


def _set_on_itself(kind: type[Algorithm]) -> str:
    """Say where a method outside of the package sets an attribute of the algorithm, which is frozen; "" where
    none does."""
    for one in kind.__mro__:
        own = [] if one.__module__.partition(".")[0] in ("mpifl", "pydantic") else vars(one).values()
        for method in filter(inspect.isfunction, own):
            if not (arguments := inspect.getfullargspec(method).args):
                continue
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
            except (OSError, SyntaxError):  # no source, as of a notebook that is gone
                continue
            for node in ast.walk(tree):
                match node:
                    case ast.Attribute(ast.Name(name), attribute, ast.Store()) if name == arguments[0]:
                        if attribute not in kind.__private_attributes__:
                            line = method.__code__.co_firstlineno + node.lineno - 1
                            what = f"{method.__name__} sets {name}.{attribute}, and an algorithm is frozen"
                            to_do = "a key of server.state is remembered, and what a silo keeps"
                            return f"{what}; {to_do} ({inspect.getfile(kind)}, line {line})"
    return ""


def _one_step_of(asked: Training) -> LocalRun:
    """Train by one plain step, however long the settings train."""
    return train(replace(asked, settings=one_step(asked.settings, ROWS), kept=None))
