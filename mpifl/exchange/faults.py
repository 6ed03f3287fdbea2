"""What the faults of a round's silos come to: whether it is lost, and what is said of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from torch import Tensor

from mpifl.aggregation import updates_of
from mpifl.common import Names, RoundLost
from mpifl.exchange.outcome import Outcome
from mpifl.wire import Header, Piece, Reply, Request, Verdict

MOST_TOLD = 3
"""Faults that a lost round's line tells."""


class Judge:
    """Decides at the server what the faults of a request come to.

    It remembers what was explained: one mistake has one traceback, however many silos and ranks meet it.
    """

    def __init__(self, quorum: float, names: Names, *, varied: bool = False) -> None:
        self._quorum, self._names, self._varied = quorum, names, varied
        self._explained: set[str] = set()

    def reason_to_lose(self, request: Request, headers: Sequence[Reply], pieces: Sequence[Piece]) -> str | None:
        """Return why a round is lost, or None if it is not, or no round."""
        if not request.averaged:
            return None
        faults = [f"silo {self._names[header.silo]}: {header.fault}" for header in headers if header.fault is not None]
        answered, asked = len(headers) - len(faults), len(request.cohort)
        if alike(headers):
            return f"none of {asked} silos answered, all alike: {faults[0]}"
        if answered < max(math.ceil(self._quorum * asked - 1e-9), 1):
            return f"{answered} of {asked} silos answered ({'; '.join(faults[:MOST_TOLD])})"
        weightless = [piece.name for piece in pieces if piece.total == 0]
        if weightless:
            return f"all updates weigh 0 in the mean of '{weightless[0]}'"
        return _disagreement(updates_of(headers), self._varied)

    def silos_to_explain(self, headers: Sequence[Reply]) -> list[int]:
        """Return the first silo with each kind of fault that there was none of before."""
        first = {_kind(header): header.silo for header in reversed(headers) if header.fault is not None}
        found = sorted(first[kind] for kind in first.keys() - self._explained)
        self._explained |= first.keys()
        return found


def alike(headers: Sequence[Reply]) -> bool:
    """Whether several silos were asked, and all failed for one reason, which does not pass by itself."""
    lasting = all(header.fault is not None and not header.passing for header in headers)
    return lasting and len(headers) > 1 and len({_kind(header) for header in headers}) == 1


def _kind(header: Reply) -> str:
    """Return a fault without its numbers, which differ with the silos' batches."""
    return re.sub(r"\d+", "#", header.fault or "")


def _disagreement(good: Sequence[Header], varied: bool) -> str | None:
    """Say which silos' updates cannot be averaged together, if there are such.

    Args:
        good: Of the updates that count.
        varied: Whether silos may send other vectors than others.
    """
    for header in good[1:]:
        if other := sorted(header.vectors.keys() ^ good[0].vectors.keys()) if not varied else []:
            first, second = (good[0], header) if other[0] in header.vectors else (header, good[0])
            return f"silo {first.silo} did not send '{other[0]}', silo {second.silo} did"
    marks: dict[str, dict[bool, int]] = {}
    for header in good:
        for name, folded in header.vectors.items():
            marks.setdefault(name, {}).setdefault(folded.uniform, header.silo)
    for name, silos in sorted(marks.items()):
        if len(silos) > 1:
            return f"silo {silos[True]} has '{name}' averaged with equal weights, silo {silos[False]} has not"
    return None


def outcome_of(verdict: Verdict | None, replies: Sequence[Reply], vectors: dict[str, Tensor]) -> Outcome:
    """Return what an exchange brought.

    Raises:
        RoundLost: the verdict says so; ranks other than the server's pass None, and go on.
    """
    if verdict and verdict.lost:
        raise RoundLost(verdict.lost, in_vain=alike(replies))
    faults = {reply.silo: reply.fault for reply in replies if reply.fault is not None}
    return Outcome([reply for reply in replies if reply.fault is None], faults, vectors)
