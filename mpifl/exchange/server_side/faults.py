"""What the faults of a round's silos come to: whether it is lost, and what is said of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from mpifl.common import Names, RoundLost
from mpifl.exchange.server_side.admission import taking_part
from mpifl.exchange.server_side.outcome import Outcome
from mpifl.sums import Aggregator, Combined, updates_of
from mpifl.transforms import common_name
from mpifl.wire import STOPPED, Combination, Compute, Header, Message, Reply, Report, Request, Verdict

MOST_TOLD = 3
"""Faults that a lost round's line tells."""


class Judge:
    """Decides at the server what the faults of a request come to.

    It remembers what was explained: one mistake has one traceback, however many silos and ranks meet it.
    """

    def __init__(
        self,
        quorum: float,
        names: Names,
        sent: dict[str, dict[str, Combination]] | None = None,
        *,
        varied: bool = False,
    ) -> None:
        """Have nothing explained yet.

        Args:
            quorum: The share of the silos asked that must answer.
            names: What silos are called.
            sent: Is told what an update of each work has to be, where silos disagree.
            varied: Whether silos may send other vectors than others.
        """
        self._quorum, self._names, self._varied = quorum, names, varied
        self._sent = {} if sent is None else sent
        self._counted: dict[str, dict[str, Combination]] = {}
        """What the updates of each work were that counted last."""
        self._explained: set[str] = set()

    def decide(
        self,
        request: Request,
        reports: Mapping[int, Report],
        headers: Sequence[Reply],
        aggregation: Aggregator,
    ) -> Verdict:
        """Return whose updates count, and what travels.

        Args:
            request: What was asked.
            reports: Of the ranks that answered in time.
            headers: Of all silos, those of ranks that did not among them.
            aggregation: The server's.
        """
        pieces: list[Message] = []
        lost = self.reason_to_lose(request, headers)
        if lost is None:
            lost, pieces = _placed(reports, aggregation)
        if isinstance(request, Compute):
            self._learn(request, updates_of(headers), lost)
        accepted = [] if lost else [header.silo for header in headers if header.fault is None]
        explain, ranks = self.silos_to_explain(headers), taking_part(reports)
        return Verdict(
            serial=request.serial, lost=lost, accepted=accepted, explain=explain, ranks=ranks, pieces=pieces
        )

    def reason_to_lose(self, request: Request, headers: Sequence[Reply]) -> str | None:
        """Return why a round is lost, or None if it is not, or no round."""
        if not request.averaged:
            return None
        failed = [header for header in headers if header.fault is not None]
        told = [header for header in failed if header.fault != STOPPED] or failed
        faults = [f"silo {self._names[header.silo]}: {header.fault}" for header in told]
        answered, asked = len(headers) - len(failed), len(request.cohort)
        if alike(headers):
            return f"none of {asked} silos answered, all alike: {faults[0]}"
        if answered < max(math.ceil(self._quorum * asked - 1e-9), 1):
            return f"{answered} of {asked} silos answered ({'; '.join(faults[:MOST_TOLD])})"
        return _disagreement(updates_of(headers), self._varied)

    def _learn(self, request: Compute, good: Sequence[Header], lost: str | None) -> None:
        """Know from now on which vectors an update of this work has, if silos disagree.

        They are those that counted last, or those of most silos. Each silo with others then fails by itself,
        and the others need not be asked twice. If too few are left, most may have been wrong.
        """
        work, told = request.work, [_vectors_of(header) for header in good]
        if lost is None:
            self._counted[work] = dict(told[0]) if told else {}
        elif request.sent is not None:
            self._sent.pop(work, None)
        elif not self._varied and any(one != told[0] for one in told):
            usual, times = Counter(frozenset(one.items()) for one in told).most_common(1)[0]
            if self._counted.get(work) in told:
                self._sent[work] = self._counted[work]
            elif 2 * times > len(told):
                self._sent[work] = dict(usual)

    def silos_to_explain(self, headers: Sequence[Reply]) -> list[int]:
        """Return the first silo with each kind of fault that there was none of before."""
        first = {_kind(header): header.silo for header in reversed(headers) if header.fault is not None}
        found = sorted(first[kind] for kind in first.keys() - self._explained)
        self._explained |= first.keys()
        return found


def _placed(reports: Mapping[int, Report], aggregation: Aggregator) -> tuple[str | None, list[Message]]:
    """Return why nothing can come of the reports, if so, and else what travels."""
    try:
        return None, list(aggregation.place(reports))
    except RoundLost as why:
        return str(why), []


def alike(headers: Sequence[Reply]) -> bool:
    """Whether several silos were asked, and all failed for one reason, which does not pass by itself."""
    lasting = all(header.fault is not None and not header.passing for header in headers)
    return lasting and len(headers) > 1 and len({_kind(header) for header in headers}) == 1


def _vectors_of(header: Header) -> dict[str, Combination]:
    return {common_name(name, header.silo): vector.combined for name, vector in header.vectors.items()}


def _kind(header: Reply) -> str:
    """Return a fault without its numbers, which differ with the silos' batches."""
    return re.sub(r"\d+", "#", header.fault or "")


def _disagreement(good: Sequence[Header], varied: bool) -> str | None:
    """Say which silos' updates cannot be averaged together, if there are such.

    Args:
        good: Of the updates that count.
        varied: Whether silos may send other vectors than others.
    """
    return (None if varied else _lacking(good)) or _combined_otherwise(good)


def _lacking(good: Sequence[Header]) -> str | None:
    """Say which vector some silo did not send and another did."""
    for header in good[1:]:
        if other := sorted(_names(header) ^ _names(good[0])):
            first, second = (good[0], header) if other[0] in _names(header) else (header, good[0])
            return f"silo {first.silo} did not send '{other[0]}', silo {second.silo} did"
    return None


def _names(header: Header) -> set[str]:
    """Return the names of a silo's vectors, without its number in those that are its own."""
    return {common_name(name, header.silo) for name in header.vectors}


def _combined_otherwise(good: Sequence[Header]) -> str | None:
    """Say which vector some silo has combined otherwise than another."""
    marks: dict[str, dict[Combination, int]] = {}
    for header in good:
        for name, vector in header.vectors.items():
            marks.setdefault(name, {}).setdefault(vector.combined, header.silo)
    for name, silos in sorted(marks.items()):
        if len(silos) > 1:
            (how, silo), (otherwise, another), *_ = sorted(silos.items())
            return f"'{name}' is {how} by silo {silo}, {otherwise} by silo {another}"
    return None


def outcome_of(
    verdict: Verdict | None, replies: Sequence[Reply], combined: Combined, aggregation: Aggregator
) -> Outcome:
    """Return what an exchange brought.

    Args:
        verdict: The server's; None on other ranks, which go on.
        replies: Of all silos.
        combined: What came of their vectors.
        aggregation: What combines their numbers.

    Raises:
        RoundLost: the verdict says so, or no vectors came of it.
    """
    if verdict and verdict.lost:
        raise RoundLost(verdict.lost, in_vain=alike(replies))
    if combined.lost:
        raise RoundLost(combined.lost, in_vain=combined.in_vain)
    faults = {reply.silo: reply.fault for reply in replies if reply.fault is not None}
    good = [reply for reply in replies if reply.fault is None]
    return Outcome(good, faults, combined.vectors, aggregation.scalars(updates_of(good)))
