"""What a site's rank 0 does with a question: it has its ranks carry it out, and puts the answer together."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from torch import Tensor

from mpifl.common import InputError, RoundLost
from mpifl.exchange import Federation, first_of
from mpifl.exchange.server_side import ExpectedUpdates, Judge, Outcome
from mpifl.sums import Aggregator
from mpifl.wings.masked import SumPlan
from mpifl.wings.sites.answers.kept_answers import KeptAnswers, SiteAnswer
from mpifl.wings.sites.answers.site_share import window_named
from mpifl.wings.sites.singles import single_named
from mpifl.wire import (
    AnyReply,
    Compute,
    Done,
    FileReply,
    FinishReply,
    Header,
    Load,
    Open,
    Reply,
    Report,
    Request,
    Save,
    SaveStatus,
    Verdict,
)

KEPT_AT = 10**9
"""Letter n's states lie in the folder of round KEPT_AT + n: no round of a training has such a number. So each
request to write or to read states also makes final what silos kept before it."""

FAULT = "its site cannot read or keep what silos keep"
"""The fault of all asked silos, of which the site prints the reason."""
UNKNOWN = "unknown"
"""Stands for the digest of a state in memory after an error."""


class Unjudged(Judge):
    """A site's judge: nothing is lost for want of answers, since the coordinator decides.

    Attributes:
        headers: The replies to the latest request.
        verdict: The verdict on the latest request.
    """

    headers: Sequence[AnyReply] = ()
    verdict: Verdict | None = None

    def decide(
        self,
        request: Request,
        reports: Mapping[int, Report],
        headers: Sequence[Reply],
        aggregation: Aggregator,
    ) -> Verdict:
        """Return the verdict, and note it."""
        self.verdict = super().decide(request, reports, headers, aggregation)
        return self.verdict

    def reason_to_lose(self, request: Request, headers: Sequence[Reply]) -> None:
        """Lose nothing, and note the replies."""
        self.headers = [
            header for header in headers if isinstance(header, Done | FileReply | FinishReply | Header)
        ]


class SiteRanks:
    """Carries out questions on a site's ranks.

    Args:
        exchange: The exchange of the site's ranks.
        places: For each known digest of a state the number of the letter to which it was answered first.
        kept: The answers that are given again.
    """

    def __init__(self, exchange: Federation, places: Mapping[str, int], kept: KeptAnswers) -> None:
        self._exchange, self._places, self._answers = exchange, dict(places), kept
        self._judge = exchange.judge = Unjudged(0.0, exchange.names)
        self._own = sorted(exchange.membership.homes)
        self._held: dict[int, str] = {}
        """The digest of the state that each silo has in memory; none has one at the start."""

    @property
    def silos(self) -> list[int]:
        """The site's silos."""
        return self._own

    def open(self) -> dict[int, str]:
        """Open and verify all shards; return why silos cannot take part."""
        outcome = self._exchange.exchange(Open(cohort=self._own))
        assert outcome is not None
        return outcome.faults

    def answer(
        self,
        n: int,
        request: Request,
        vectors: Mapping[str, Tensor],
        base: Mapping[int, str],
        keep_from: int,
        *,
        question: str,
    ) -> SiteAnswer:
        """Answer a question, or give the answer again that it got before.

        Args:
            n: The number of its letter.
            request: The request.
            vectors: The vectors of the request.
            base: The digest of the state that each asked silo begins from; "" for none.
            keep_from: The oldest number whose states and answers must stay.
            question: The question's digest.

        Raises:
            InputError: the answer cannot be kept, or one that is kept is damaged.

        Returns:
            The answer. If a state cannot be read or kept, it has a fault of each asked silo and no sums: the
            sums would have updates in them whose states are lost.
        """
        if (answer := self._answers.of(question)) is None:
            answer = self._worked_for(n, request, vectors, base, keep_from)
            if isinstance(request, Compute):
                self._answers.keep(question, answer)
        self._places |= dict.fromkeys(answer.states.values(), answer.place)
        self._answers.forget(keep_from if isinstance(request, Compute) else n)
        return answer

    def _worked_for(
        self, n: int, request: Request, vectors: Mapping[str, Tensor], base: Mapping[int, str], keep_from: int
    ) -> SiteAnswer:
        """Have the ranks carry out a question."""
        asked = sorted(set(self._own).intersection(request.cohort))
        try:
            self._begin_from({silo: base.get(silo, "") for silo in asked})
            made = self._carried_out(request, vectors)
            replies = [reply for reply in self._judge.headers if reply.silo in asked]
            verdict = self._judge.verdict
            states = self._kept(n, replies, keep_from)
            if not self._exchange.knowledge.averaging.hides:
                singles = {of: one for name, one in made.items() if (of := single_named(name))}
                sums = {window_named(name): one for name, one in made.items() if not single_named(name)}
                return SiteAnswer(n, replies, sums, states, singles=singles)
            plan = SumPlan.model_validate(verdict.pieces[0]) if verdict and verdict.pieces else None
            return SiteAnswer(n, replies, states=states, totals=made, plan=plan)
        except (InputError, RoundLost) as error:
            print(f"letter {n}: {error}", file=sys.stderr, flush=True)
            self._held |= dict.fromkeys(asked, UNKNOWN)
            return SiteAnswer(n, [Done(silo=silo, fault=FAULT, passing=True) for silo in asked])

    def _begin_from(self, wanted: Mapping[int, str]) -> None:
        """Have silos hold these states in memory. Raise InputError if a state is not here, or is another."""
        moves: defaultdict[int, dict[int, str]] = defaultdict(dict)
        for silo, digest in wanted.items():
            if self._held.get(silo, "") != digest:
                if digest and digest not in self._places:
                    raise self._put_back(silo, digest)
                moves[self._places[digest] if digest else 0][silo] = digest
        for place, digests in moves.items():
            files = {silo: digest for silo, digest in digests.items() if digest}
            outcome = self._exchange.exchange(
                Load(round=KEPT_AT + place, cohort=sorted(digests), files=files)
            )
            for silo in outcome.faults if outcome else ():
                raise self._put_back(silo, digests[silo])
            self._held |= digests

    def _put_back(self, silo: int, digest: str) -> InputError:
        latest = max(self._places.values(), default=0)
        here = f"this folder has no such state up to letter {latest}"
        begins = f"silo {self._exchange.names[silo]} is to begin from {digest[:8]}..., and {here}"
        return InputError(f"{begins}; it was put back from a copy, or another `mpifl join` of this site runs")

    def _carried_out(self, request: Request, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Have the ranks carry out a request; return the combined vectors."""
        knowledge, expected = self._exchange.knowledge, ExpectedUpdates()
        if isinstance(request, Compute):
            weights = {silo: knowledge.weight(request.work, silo) for silo in self._own}
            expected = expected_of(request, weights, knowledge.budgets)
        outcome = self._exchange.exchange(request, vectors, expected)
        assert outcome is not None
        return outcome.vectors

    def _kept(self, n: int, replies: Sequence[Reply], keep_from: int) -> dict[int, str]:
        """Have the states written of silos that keep one; return their digests when they are on the disk."""
        keeping = [reply.silo for reply in replies if reply.keeps and reply.fault is None]
        if not keeping:
            return {}
        at, oldest = KEPT_AT + n, KEPT_AT + keep_from
        self._exchanged(Save(round=at, cohort=keeping, oldest=oldest))
        written = self._exchanged(SaveStatus(round=at, cohort=keeping, checkpoint=at, wait=True))
        digests = {silo: reply.sha256 or "" for silo, reply in written.of(FileReply).items()}
        self._held |= digests
        return digests

    def _exchanged(self, request: Request) -> Outcome:
        """Return the outcome of a request about states. Raise InputError if a silo fails."""
        outcome = self._exchange.exchange(request)
        assert outcome is not None
        if outcome.faults:
            raise InputError(first_of(outcome.faults, self._exchange.names))
        return outcome


def expected_of(request: Compute, weights: Mapping[int, float], budgets: bool = False) -> ExpectedUpdates:
    """Return the updates that a question asks for, given the silos' weights."""
    parameters = request.parameters or 0
    return ExpectedUpdates(weights, parameters, request.lengths, budgets, request.sent)
