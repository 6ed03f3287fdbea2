"""The server's decision on silos' faults: whether the round is lost, and which faults are explained."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from mpifl.common import BudgetSpent, Names, RoundLost
from mpifl.exchange.server_side.admission import taking_part
from mpifl.exchange.server_side.outcome import Outcome
from mpifl.sums import Aggregator, Combined, updates_of
from mpifl.transforms import common_name
from mpifl.wire import STOPPED, Combination, Compute, Header, Message, Reply, Report, Request, Verdict

MOST_TOLD = 3
"""Faults that the line on a lost round names at most."""


class Judge:
    """Decides at the server what follows from the faults of a request.

    It remembers which faults were explained, so that one mistake of many silos prints one traceback.
    """

    def __init__(
        self,
        quorum: float,
        names: Names,
        sent: dict[str, dict[str, Combination]] | None = None,
        *,
        varied: bool = False,
    ) -> None:
        """Begin without any explained fault.

        Args:
            quorum: The share of the asked silos that must answer.
            names: The names of the silos.
            sent: Receives the expected vectors of each client method on whose vectors silos disagree.
            varied: Whether silos may send different vectors.
        """
        self._quorum, self._names, self._varied = quorum, names, varied
        self._sent = {} if sent is None else sent
        self._counted: dict[str, dict[str, Combination]] = {}
        """The vectors of the last updates that counted, by client method."""
        self._explained: set[str] = set()

    def decide(
        self,
        request: Request,
        reports: Mapping[int, Report],
        headers: Sequence[Reply],
        aggregation: Aggregator,
    ) -> Verdict:
        """Return which updates count, and what travels.

        Args:
            reports: The reports of the ranks that answered in time.
            headers: The replies of all silos, including silos of ranks that did not answer in time.
            aggregation: The aggregator at the server.
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
        """Return why the round is lost; None if it is not, or if the request averages no updates."""
        if not request.averaged:
            return None
        failed = [header for header in headers if header.fault is not None]
        told = [header for header in failed if header.fault != STOPPED] or failed
        faults = [f"silo {self._names[header.silo]}: {header.fault}" for header in told]
        answered, asked = len(headers) - len(failed), len(request.cohort)
        if alike(headers):
            return f"all {asked} silos failed alike: {faults[0]}"
        if answered < max(math.ceil(self._quorum * asked - 1e-9), 1):
            return f"{answered} of {asked} silos answered ({'; '.join(faults[:MOST_TOLD])})"
        good = updates_of(headers)
        return (None if self._varied else _lacking(good)) or _combined_otherwise(good)

    def _learn(self, request: Compute, good: Sequence[Header], lost: str | None) -> None:
        """Remember which vectors an update of this client method has, if silos disagree.

        These are the vectors that counted last, or those of most silos. In the next attempt each silo with
        other vectors fails by itself, so that one such silo does not cost two attempts. If that attempt is
        lost, too, the majority may have been wrong, and this is forgotten.
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
        """Return, for each kind of fault that is new in this run, the first silo that has it."""
        first = {_kind(header): header.silo for header in reversed(headers) if header.fault is not None}
        found = sorted(first[kind] for kind in first.keys() - self._explained)
        self._explained |= first.keys()
        return found


def _placed(reports: Mapping[int, Report], aggregation: Aggregator) -> tuple[str | None, list[Message]]:
    """Return (why the reports cannot be combined, []), or (None, what travels)."""
    try:
        return None, list(aggregation.place(reports))
    except RoundLost as why:
        return str(why), []


def alike(headers: Sequence[Reply]) -> bool:
    """Return whether several silos were asked and all failed for one reason that does not pass by itself."""
    lasting = all(header.fault is not None and not header.passing for header in headers)
    return lasting and len(headers) > 1 and len({_kind(header) for header in headers}) == 1


def _vectors_of(header: Header) -> dict[str, Combination]:
    return {common_name(name, header.silo): vector.combined for name, vector in header.vectors.items()}


def _kind(header: Reply) -> str:
    """Return a fault without its numbers, which may differ between silos."""
    return re.sub(r"\d+", "#", header.fault or "")


def _lacking(good: Sequence[Header]) -> str | None:
    """Return which vector one silo sent and another did not; None if there is none."""
    for header in good[1:]:
        if other := sorted(_names(header) ^ _names(good[0])):
            first, second = (good[0], header) if other[0] in _names(header) else (header, good[0])
            return f"silo {first.silo} did not send '{other[0]}', silo {second.silo} did"
    return None


def _names(header: Header) -> set[str]:
    """Return the names of a silo's vectors; names with the silo's number become the common name."""
    return {common_name(name, header.silo) for name in header.vectors}


def _combined_otherwise(good: Sequence[Header]) -> str | None:
    """Return which vector two silos combine in different ways; None if there is none."""
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
    """Return the outcome of an exchange.

    Args:
        verdict: The verdict; None on other ranks than the server, which continue after a lost round.
        replies: The replies of all silos.
        combined: The combined vectors.
        aggregation: The aggregator, which combines the numbers.

    Raises:
        RoundLost: the verdict says so, or the vectors could not be combined.
    """
    if verdict and verdict.lost:
        spent = {reply.fault for reply in replies} - {None} == {BudgetSpent.kind}
        some = any(reply.fault is None for reply in replies)
        few = some and any(reply.fault is not None for reply in replies)
        raise RoundLost(verdict.lost, in_vain=alike(replies), spent=spent, few=few)
    if combined.lost:
        raise RoundLost(combined.lost, in_vain=combined.in_vain)
    faults = {reply.silo: reply.fault for reply in replies if reply.fault is not None}
    good = [reply for reply in replies if reply.fault is None]
    return Outcome(good, faults, combined.vectors, aggregation.scalars(updates_of(good)))
