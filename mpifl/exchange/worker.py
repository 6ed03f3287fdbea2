"""The silos that one rank hosts: carrying out requests, and what they keep."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from mpifl.aggregation import Rule, WeightedMean, aggregator_of
from mpifl.algorithms import Algorithm, usual_weight
from mpifl.common import InputError, Names, ShardError, SharedVectorChanged, Unwritable, sha256_of
from mpifl.data import Batches, FederationSpec, Shard, open_shard
from mpifl.run import Writer, checkpoint
from mpifl.silo import FlatModel, Silo
from mpifl.transforms import Transform
from mpifl.wire import Header, Memory, Report, Request, Scalar, Update, Verdict, unmarked, wrong_length, wrong_weight


@dataclass(frozen=True)
class Site:
    """What all silos of a run have in common: where things lie, and what is done."""

    folder: Path
    run: Path
    spec: FederationSpec
    algorithm: Algorithm
    transforms: Sequence[Transform]
    seed: int
    weights: str
    models: Sequence[FlatModel]
    public: Batches | None = None
    select: str = "uniform"
    rule: Rule | None = None
    spill: str | None = None


class Worker:
    """Hosts silos: one model that is lent to them in turn, their states, and their shards, opened when first asked."""

    def __init__(self, site: Site, silos: Sequence[int], about: Mapping[str, str], memory: Memory) -> None:
        self.silos = set(silos)
        self._mean = WeightedMean(site.models[0].device, memory)
        self._by_rule = aggregator_of(site.rule, site.spill, site.models[0].device, memory) or self._mean
        self.aggregation = self._by_rule
        """Of the request that is answered: the job's rule in training, the exact mean in all else."""
        self._site, self._model, self._about = site, site.models[0], dict(about)
        self._shards: dict[int, Shard] = {}
        self._states: dict[int, dict[str, Any]] = {}
        self._pending: dict[int, dict[str, Any]] = {}
        self._stamp = (0, 0)
        self._traces: dict[int, str] = {}
        """The tracebacks of what went wrong in the request that was answered last, by silo."""
        self._writer = Writer()
        self._arrived: dict[int, dict[str, Any]] = {}
        self._left = ""
        """The sha256 of the final model that is known to lie in the run folder."""
        self.rank = 0
        self._verbs: dict[str, Callable[[int, Request, dict[str, Tensor]], Header]] = {
            "work": self._work,
            "open": self._open,
            "save": self._save,
            "saved": self._saved,
            "load": self._load,
            "host": self._host,
            "roll": lambda id, request, vectors: Header(silo=id, keeps=self._keeps(id)),
            "finish": self._finish,
        }

    def answer(self, request: Request, vectors: dict[str, Tensor]) -> Report:
        """Carry out a request for each of its silos that is hosted here, one after another."""
        if request.verb != "mirror":  # whose round may still be lost
            self._settle_earlier(request)
        self._traces.clear()
        act = self._verbs.get(request.verb)
        start = time.perf_counter()
        mine = self._asked(request) if act else []
        self.aggregation = self._mean if request.work in ("", "evaluate") else self._by_rule
        self.aggregation.begin(request, vectors, mine)
        self._model.lender = self.aggregation.lend
        headers = [self._guarded(act, silo, request, vectors) for silo in mine] if act else []
        about = self._about if request.verb == "open" else {}
        parts = list(self.aggregation.parts())
        return Report(headers=headers, parts=parts, seconds=time.perf_counter() - start, about=about)

    def settle(self, request: Request, verdict: Verdict) -> None:
        """Forget what the silos kept whose updates do not count; take in those that have moved here, let others go.

        What the server wants explained is printed: it knows what other ranks have said, so that it is said once.
        """
        for silo in self._traces.keys() & set(verdict.explain):
            names = Names([entry.name for entry in self._site.spec.silos])
            print(f"silo {names[silo]} failed:\n{self._traces[silo]}", file=sys.stderr, flush=True)
        for silo in request.homes.keys() & set(verdict.accepted):
            if request.homes[silo] == self.rank:
                self.silos.add(silo)
                if silo in self._arrived:
                    self._states[silo] = self._arrived.pop(silo)
            elif silo in self.silos:
                self.silos.remove(silo)
                for held in (self._states, self._pending, self._shards):
                    held.pop(silo, None)
        for silo in set(request.cohort).difference(verdict.accepted):  # those on their way here, too
            self._pending.pop(silo, None)

    def _asked(self, request: Request) -> list[int]:
        if request.verb == "roll":
            return sorted(self.silos)
        staying = self.silos.intersection(request.cohort).difference(request.homes)
        return sorted(staying.union(silo for silo, rank in request.homes.items() if rank == self.rank))

    def _keeps(self, id: int) -> bool:
        """Whether a silo has something for later rounds; a new server does not know that yet."""
        return bool(self._states.get(id) or self._pending.get(id))

    def _settle_earlier(self, request: Request) -> None:
        """Make true what was kept in an earlier round, forget what a lost attempt of this one kept."""
        if request.round != self._stamp[0]:
            for silo, kept in self._pending.items():
                self._states.setdefault(silo, {}).update(kept)
            self._pending.clear()
        elif request.attempt != self._stamp[1]:
            self._pending.clear()
        self._stamp = (request.round, request.attempt)

    def _guarded(self, act: Callable[..., Header], silo: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        start = time.perf_counter()
        try:
            header = act(silo, request, vectors)
            return header.model_copy(update={"seconds": time.perf_counter() - start})
        except SharedVectorChanged:
            raise
        except InputError as error:
            return Header(silo=silo, fault=str(error), passing=isinstance(error, ShardError))
        except Exception as error:
            return Header(silo=silo, fault=self._explain(silo, error), passing=isinstance(error, OSError | MemoryError))

    def _explain(self, silo: int, error: Exception) -> str:
        """Describe an unforeseen error in a line, and note its traceback from where this file's frames end."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        begin = error.__traceback__
        while begin and begin.tb_next and begin.tb_frame.f_code.co_filename == __file__:
            begin = begin.tb_next
        self._traces[silo] = "".join(traceback.format_exception(type(error), error, begin))
        return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(frame.filename).name}:{frame.lineno})"

    def _work(self, id: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        silo = self._silo(id, request.round)
        examples = self._site.spec.silos[id].examples
        silo.weight = self._site.algorithm.weight(request.work, examples, usual_weight(self._site.weights, examples))
        message: dict[str, Any] = {**request.scalars, **vectors}
        for transform in self._site.transforms:
            message = transform.receive(silo, message)
        before = {name: vector._version for name, vector in vectors.items()}
        algorithm = self._site.algorithm
        update = _checked(algorithm.work(request.work)(silo, **message), algorithm, request.work)
        for name, version in before.items():
            if vectors[name]._version != version:
                raise SharedVectorChanged(
                    f"{request.work} wrote to '{name}', which all silos of the node read; have it write to a clone"
                )
        for transform in reversed(self._site.transforms):
            update = transform.update(silo, update)
        _check(update, request, silo.weight)
        try:
            keeps = bool(silo.kept or silo.state)
            header = Header(silo=id, weight=update.weight, scalars=_defined(update.scalars), keeps=keeps)
            header = header.model_copy(update={"vectors": self.aggregation.accumulate(id, update)})
        except ValueError as error:
            raise InputError(f"its update was refused: {_reason(error)}") from None
        if silo.kept:
            self._pending.setdefault(id, {}).update(silo.kept)
        return header

    def _silo(self, id: int, round: int) -> Silo:
        state = ChainMap(self._pending.get(id, {}), self._states.get(id, {}))
        site, shard = self._site, self._shard(id)
        silo = Silo(id, shard, site.spec.features, site.models, state=state, round=round, seed=site.seed)
        silo.public, silo.objective = site.public, site.algorithm.objective
        silo.reweighed = (site.select, site.weights) == ("examples", "uniform")
        silo.own_objective = site.algorithm.own_objective
        return silo

    def _shard(self, id: int) -> Shard:
        if id not in self._shards:
            self._shards[id] = open_shard(self._site.folder, self._site.spec.silos[id], self._site.spec)
        return self._shards[id]

    def _open(self, id: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        self._shard(id)
        return Header(silo=id)

    def _save(self, id: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        """Begin to write what a silo keeps; nothing is copied, since what is kept is replaced and never changed."""
        if not (state := self._states.get(id)):
            return Header(silo=id)
        self._writer.begin(checkpoint.silo_file(self._site.run, request.round, id), state)
        return Header(silo=id, scalars={"writing": True})

    def _saved(self, id: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        """Say whether the silo's file of a checkpoint, which was begun here, is written, and its sha256 if it is."""
        path = checkpoint.silo_file(self._site.run, int(request.scalars["checkpoint"]), id)
        if self._writer.writing(path) and not request.scalars["wait"]:
            return Header(silo=id, scalars={"writing": True})
        return Header(silo=id, scalars={"sha256": self._writer.digest(path)})

    def _load(self, id: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        self._states.pop(id, None)
        self._states[id] = self._state_of(id, request)
        return Header(silo=id, keeps=bool(self._states[id]))

    def _host(self, id: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        """Open the shard of a silo that is to move here, and read its state from a checkpoint."""
        self._shard(id)
        self._arrived[id] = self._state_of(id, request)
        return Header(silo=id, keeps=bool(self._arrived[id]))

    def _state_of(self, id: int, request: Request) -> dict[str, Any]:
        digest = request.scalars.get(str(id))
        round = int(request.scalars.get("checkpoint", request.round))
        path = checkpoint.silo_file(self._site.run, round, id)
        return checkpoint.read_state(path, str(digest), self._model.device) if digest else {}

    def _finish(self, id: int, request: Request, vectors: dict[str, Tensor]) -> Header:
        """Leave the final model where the silo can use it, and the silo's own if it has one; say if that cannot be."""
        if "statistics" in vectors:
            self._model.statistics.write(vectors["statistics"])
        silo = self._silo(id, request.round)
        own = self._site.algorithm.personal_model(silo, **{k: v for k, v in vectors.items() if k != "statistics"})
        try:
            if own is vectors["w"]:
                self._leave_model(own, str(request.scalars["sha256"]))
            else:
                self._leave_own(silo, own)
        except Unwritable as error:
            return Header(silo=id, scalars={"unwritten": str(error)})
        return Header(silo=id)

    def _leave_own(self, silo: Silo, own: Tensor) -> None:
        silo.model.trained.copy_(own)
        if (statistics := self._site.algorithm.personal_statistics(silo)) is not None:
            silo.model.statistics.write(statistics)
        checkpoint.write_model(self._site.run / "personal" / f"silo_{silo.id:04d}.safetensors", silo.model)

    def _leave_model(self, w: Tensor, sha256: str) -> None:
        """Write the server's model where the run folder is not one with the server's, over one of an earlier end."""
        path = self._site.run / "model.safetensors"
        if self._left != sha256 and not (path.exists() and sha256_of(path) == sha256):
            self._model.shared.copy_(w)
            checkpoint.write_model(path, self._model)
        self._left = sha256


def _check(update: Update, request: Request, weight: float) -> None:
    """See that an update is as the server expects it, before it is added to those of other silos."""
    if request.parameters is None:
        return
    if update.weight != weight:
        raise InputError(f"its update was refused: {wrong_weight(update.weight, weight)}")
    for name, value in update.vectors.items():
        found, expected = unmarked(value).numel(), request.lengths.get(name, request.parameters)
        if found != expected:
            raise InputError(f"its update was refused: {wrong_length(name, found, expected)}")


def _checked(update: Any, algorithm: Algorithm, work: str) -> Update:
    """Return what a silo's half has returned, if it is an update."""
    if not isinstance(update, Update):
        what = "None" if update is None else f"a {type(update).__name__}"
        raise InputError(f"{type(algorithm).__name__}.{work} returned {what}; have it return silo.update(...)")
    return update


def _defined(scalars: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    """Leave out numbers that a silo does not have: None, NaN, and Inf, which JSON does not know either."""
    there = ((name, value) for name, value in scalars.items() if value is not None)
    return {name: value for name, value in there if not isinstance(value, float) or math.isfinite(value)}


def _reason(error: ValueError) -> str:
    """Say in one line what is wrong with an update."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    if first["loc"][0] == "scalars":  # whose values may be of several types: pydantic names the first
        return f"{first['loc'][1]} = {first['input']}: is no number, true or false, or text"
    return f"{first['loc'][-1]} = {first['input']}: {first['msg']}"
