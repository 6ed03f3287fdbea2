"""The coordinator's worker: its silos are at sites, which it asks in place of training."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from torch import Tensor

from mpifl.algorithms import usual_weight
from mpifl.common import InputError
from mpifl.exchange.server_side import ExpectedUpdates, screened
from mpifl.exchange.worker_side import Handler, Worker
from mpifl.run.folder import CheckpointError, checkpoint
from mpifl.sums import PartialSum, WeightedMean, is_partial_sum
from mpifl.wings.sites.answers import CameBack, SiteQuestion, expected_of
from mpifl.wings.sites.late import LateAnswer, LateSum, LateSums
from mpifl.wings.sites.masks import SharesAsked, SumsOfSites
from mpifl.wings.sites.singles import HandedOver, check_singles
from mpifl.wire import (
    AnyReply,
    Compute,
    Done,
    FileReply,
    Finish,
    Header,
    Load,
    Open,
    Report,
    Request,
    Save,
    SaveStatus,
    Verdict,
)

STATE = "digest"
"""The key under which the coordinator notes, as the state of a silo, the digest of the state at its site."""


class Questions(SharesAsked, Protocol):
    """Asks sites.

    Attributes:
        silos: The silos of each site, by the site's name, in the order of the roster.
    """

    silos: Mapping[str, frozenset[int]]

    def opened(self) -> Mapping[str, str]:
        """Wait until the sites are here; return why others are not, by the site's name."""

    def asked(self, question: SiteQuestion) -> Iterator[tuple[str, CameBack | str]]:
        """Ask sites, and yield each with what came back, or why nothing did, as soon as that is known."""

    def saved(self, round: int) -> None:
        """Note that a checkpoint of this round begins: what is asked from now on is not in it."""

    def late(self, waiting: Mapping[str, int]) -> Mapping[str, LateAnswer | str]:
        """Return the answers to questions that sites have missed, as far as they are here by now, or why one
        does not count.

        Args:
            waiting: For each site the number of the question that it has missed.
        """

    def missed(self, round: int) -> Mapping[str, int]:
        """Return for each site that misses the question of a round the question's number."""


class AskingWorker(Worker):
    """Hosts no silo itself: it asks the sites, and adds up their sums as if they were silos' updates.

    What a silo keeps is at its site. Here it is the digest of this state, which becomes final by the same
    rules.
    """

    questions: ClassVar[Questions]
    late: ClassVar[LateSums | None] = None
    """Has late sums count, if they may."""
    singles: ClassVar[HandedOver | None] = None
    """Adds what sites hand over of single silos in training; None where they send sums."""
    budgets: ClassVar[bool] = False
    """Whether silos may report on a privacy budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._named = _of_checkpoints(self._context.run)
        """The digests that each checkpoint names, by round and silo."""
        self._oldest = min(self._named, default=0)

    def _replies(
        self, handler: Handler, mine: Sequence[int], request: Request, vectors: dict[str, Tensor]
    ) -> list[AnyReply]:
        if isinstance(request, Compute | Finish):
            return self._asked_of_sites(mine, request, vectors)
        if isinstance(request, Open):
            return self._opened(mine)
        if isinstance(request, Save):
            self.questions.saved(request.round)
            self._named[request.round], self._oldest = {}, request.oldest
            for round in [one for one in self._named if one < request.oldest]:
                del self._named[round]
        return super()._replies(handler, mine, request, vectors)

    def _opened(self, mine: Sequence[int]) -> list[AnyReply]:
        missing = self.questions.opened()
        why = {silo: text for name, text in missing.items() for silo in self.questions.silos[name]}
        return [Done(silo=silo, fault=why.get(silo), passing=silo in why) for silo in mine]

    def _asked_of_sites(
        self, mine: Sequence[int], request: Compute | Finish, vectors: Mapping[str, Tensor]
    ) -> list[AnyReply]:
        silos = {name: sorted(own.intersection(mine)) for name, own in self.questions.silos.items()}
        base = {name: {k: self._digest(k) for k in own} for name, own in silos.items() if own}
        named = {name: self._named_of(self.questions.silos[name]) for name in base}
        replies: list[AnyReply] = []
        late = self.late if isinstance(request, Compute) and self._trains_by(request) else None
        waiting = None if late is None else late.waiting
        question = SiteQuestion(request, vectors, base, named, self._oldest, waiting)
        for name, came in self.questions.asked(question):
            replies += self._taken(name, came, request, silos[name])
            del came  # before the next answer is read: one may be larger than the model
        if late is not None:
            answers = self.questions.late(late.waiting).items()
            late.came = {name: self._late_sum(name, one, request) for name, one in answers}
            late.missed = self.questions.missed(request.round)
        return sorted(replies, key=lambda reply: reply.silo)

    def _trains_by(self, request: Compute) -> bool:
        return self._context.algorithm.purpose(request.work) == "training"

    def _digest(self, silo: int) -> str:
        return str(self.states.of(silo).get(STATE, ""))

    def _named_of(self, silos: frozenset[int]) -> set[str]:
        """Return the digests of all states of silos that may be asked for again."""
        now = [
            state.get(silo, {}).get(STATE)
            for state in (self.states.kept, self.states.pending)
            for silo in silos
        ]
        before = [files.get(silo) for files in self._named.values() for silo in silos]
        return {digest for digest in [*now, *before] if digest}

    def commit(self, request: Request, verdict: Verdict) -> None:
        """Carry out a verdict; see `Worker.commit`. Forget the sums, of which the mean is made."""
        super().commit(request, verdict)
        if isinstance(self.aggregation, WeightedMean):
            self.aggregation.expect(1)

    def _taken(
        self, name: str, came: CameBack | str, request: Compute | Finish, silos: Sequence[int]
    ) -> Sequence[AnyReply]:
        """Return the replies of a site's silos after its report has been screened, and add its sums."""
        if isinstance(came, str):
            return [Done(silo=silo, fault=came, passing=True) for silo in silos]
        masked = isinstance(self.aggregation, SumsOfSites)
        sums = [PartialSum(name=vector, window=window) for vector, window in came.sums]
        parts = ([] if came.part is None else [came.part]) if masked else sums
        report = came.report.model_copy(update={"parts": parts})
        singly = self.singles is not None and isinstance(request, Compute) and self._trains_by(request)
        way = self._take_share if masked else self._take_singles if singly else self._take
        take = functools.partial(way, name, came)
        report = screened(report, request, f"site '{name}'", silos, self._expected(request, silos), take)
        replies = [self._added(one, came) for one in report.headers] if singly else report.headers
        for reply in replies:
            if reply.fault is None and (digest := came.states.get(reply.silo)):
                self.states.keep(reply.silo, {STATE: digest})
        return replies

    def _added(self, reply: AnyReply, came: CameBack) -> AnyReply:
        """Add the update of a single silo; a fault costs this silo alone."""
        if not isinstance(reply, Header):
            return reply
        assert self.singles is not None
        try:
            return self.singles.added(self.aggregation, reply, came.singles)
        except (InputError, OSError, MemoryError) as error:
            return self.fault(reply.silo, error)

    def _expected(self, request: Compute | Finish, silos: Sequence[int]) -> ExpectedUpdates:
        if isinstance(request, Finish):
            return ExpectedUpdates()
        context, weights = self._context, {}
        for silo in silos:
            examples = context.spec.silos[silo].examples
            usual = usual_weight(context.weights, examples)
            weights[silo] = context.algorithm.weight(request.work, examples, usual)
        return expected_of(request, weights, self.budgets)

    def _take_share(self, name: str, came: CameBack, parts: Sequence[Any], headers: Sequence[Header]) -> None:
        """Check what a site tells of its sum by its headers. Raise ValueError if it does not fit."""
        assert isinstance(self.aggregation, SumsOfSites)
        _check_states(came, headers)
        if came.vectors:
            raise ValueError("it sends vectors, and its sum is asked for later")
        self.aggregation.take(self._transport, [*self.questions.silos].index(name), parts, headers)

    def _take_singles(
        self, name: str, came: CameBack, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Check that a site hands over what its headers tell of. Raise ValueError if it does not."""
        _check_states(came, headers)
        if came.vectors:
            raise ValueError("it sends sums, and single silos' updates are asked for")
        check_singles(came.singles, headers)

    def _take(self, name: str, came: CameBack, parts: Sequence[Any], headers: Sequence[Header]) -> None:
        """Check a site's sums by its headers, and add them. Raise ValueError if they do not fit."""
        mean = self.aggregation
        assert isinstance(mean, WeightedMean)
        mean.take(self._made(mean, came, parts, headers))

    def _made(
        self, mean: WeightedMean, came: CameBack, parts: Sequence[Any], headers: Sequence[Header]
    ) -> dict[tuple[str, int], tuple[Tensor, int]]:
        """Return each sum of a site, and of how many updates it is, by vector and window. Raise ValueError if
        they do not fit the headers."""
        mean.accept(self._transport, self._transport.rank, parts, headers)
        _check_states(came, headers)
        if came.singles:
            raise ValueError("it sends single silos' updates, and sums are asked for")
        made = {}
        for (vector, window), total in zip(came.sums, came.vectors, strict=True):
            told = [one.vectors[vector] for one in headers if vector in one.vectors]
            if any(one.length != len(total) for one in told):
                raise ValueError(f"its sum of '{vector}' has {len(total)} elements, its silos say other")
            made[vector, window] = total, sum(one.window == window for one in told)
        return made

    def _late_sum(self, name: str, answer: LateAnswer | str, request: Compute | Finish) -> LateSum | str:
        """Return the sum of a late answer after its report has been screened, or why it does not count."""
        if isinstance(answer, str):
            return answer
        assert answer.answer is not None
        names, vectors = [(name, window) for window, name in answer.answer.sums], answer.answer.sums.values()
        parts = [PartialSum(name=vector, window=window) for vector, window in names]
        report = Report(headers=list(answer.answer.replies), parts=parts)
        came, found = CameBack(report, names, [*vectors], {}), dict[str, Tensor]()
        expected = self._expected(request, answer.silos)
        take = functools.partial(self._take_late, came, answer.summands, found)
        report = screened(report, request, f"site '{name}'", answer.silos, expected, take)
        if faults := [one.fault for one in report.headers if one.fault is not None]:
            return faults[0]
        weight = math.fsum(one.weight for one in report.headers if isinstance(one, Header))
        return LateSum(answer.n, answer.round, weight, found)

    def _take_late(
        self,
        came: CameBack,
        summands: int,
        into: dict[str, Tensor],
        parts: Sequence[Any],
        headers: Sequence[Header],
    ) -> None:
        """Add up the windows of a late answer, the largest first. Raise ValueError if they do not fit."""
        assert isinstance(self.aggregation, WeightedMean)
        if any(one.keeps for one in headers):
            raise ValueError("a silo keeps something, which counts with its own round alone")
        if odd := [
            n for one in headers for n, vector in one.vectors.items() if vector.combined != "weighted"
        ]:
            raise ValueError(f"'{odd[0]}' is no weighted mean")
        made = self._made(self.aggregation, came, parts, headers)
        for (vector, window), (total, most) in sorted(made.items(), key=lambda one: one[0], reverse=True):
            if not is_partial_sum(total, window, summands, most):
                raise ValueError(f"its sum of '{vector}' in window {window} is none of {most} updates")
            into[vector] = into[vector] + total if vector in into else total

    def _save(self, id: int, request: Save, vectors: dict[str, Tensor]) -> AnyReply:
        if not (state := self.states.kept.get(id)):
            return FileReply(silo=id)
        self._named[request.round][id] = state[STATE]
        return FileReply(silo=id, writing=True)

    def _save_status(self, id: int, request: SaveStatus, vectors: dict[str, Tensor]) -> AnyReply:
        return FileReply(silo=id, sha256=self._named[request.checkpoint][id])

    def _load(self, id: int, request: Load, vectors: dict[str, Tensor]) -> AnyReply:
        self.states.kept.pop(id, None)
        if id in request.files:
            self.states.kept[id] = {STATE: request.files[id]}
        return Done(silo=id, keeps=id in request.files)


def _check_states(came: CameBack, headers: Sequence[Header]) -> None:
    if kept := [one.silo for one in headers if one.keeps and one.silo not in came.states]:
        raise ValueError(f"silo {kept[0]} keeps state, of which it tells no digest")


def _of_checkpoints(run: Path) -> dict[int, dict[int, str]]:
    """Return the digests of silos' states in all checkpoints of a run that can be read, by round."""
    found = {}
    for round in checkpoint.committed(run):
        with contextlib.suppress(CheckpointError):
            found[round] = checkpoint.read(run, round)[1]
    return found
