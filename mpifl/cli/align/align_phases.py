"""The phases of an alignment: after each, rank 0 hears all results, and tells whether to continue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mpifl.cli.align.align_records import Answer, Said, answer_of
from mpifl.common import InputError
from mpifl.wire import Message, Transport

Verdict = TypeVar("Verdict", bound=Message)
HERE, ELSEWHERE = "here", "elsewhere"
"""Where the reason for a party's stop is."""


class AlignmentStopped(InputError):
    """Another rank has stopped the alignment, and reports the reason itself."""


def decide(
    transport: Transport,
    kind: type[Said],
    judge: Callable[[list[Said]], Verdict],
    named: Callable[[int], str],
    ready: Callable[[], None] = lambda: None,
) -> Verdict:
    """Hear all parties at rank 0, and send them the verdict; without a verdict nobody goes on.

    Args:
        transport: Rank 0's end of the wire.
        kind: The kind of the parties' answers.
        judge: Makes the verdict from the answers, in the order of the parties; raises InputError.
        named: Returns a rank's name for messages.
        ready: Raises InputError for a fault at rank 0 itself, which goes before the parties' faults.

    Raises:
        InputError: a party has stopped, or there is no verdict.
    """
    records = dict(transport.reports())
    try:
        ready()
        answers = [_read(named(rank), kind, records[rank]) for rank in sorted(records)]
        _check_none_stopped(answers, [named(rank) for rank in sorted(records)])
        verdict = judge([answer.said for answer in answers if answer.said is not None])
    except InputError as error:
        transport.broadcast_record(Answer(stopped=str(error)).encode())
        raise
    transport.broadcast_record(Answer(said=verdict).encode())
    return verdict


def _read(who: str, kind: type[Said], record: bytes) -> Answer[Said]:
    try:
        return answer_of(kind, record)
    except ValueError:
        raise InputError(f"{who} has sent what is not an answer; see that all run the same mpifl") from None


def _check_none_stopped(answers: Sequence[Answer[Said]], names: Sequence[str]) -> None:
    """Refuse to continue without a party. Parties that only stopped after another are not named."""
    stopped = [(who, answer.stopped) for who, answer in zip(names, answers, strict=True) if answer.stopped]
    if stopped:
        whose = [who for who, where in stopped if where == HERE] or [who for who, _ in stopped]
        have = "has stopped, and says" if len(whose) == 1 else "have stopped, and say"
        raise InputError(f"{' and '.join(whose)} {have} why; nothing is written")


def tell(transport: Transport, act: Callable[[], Message], kind: type[Verdict]) -> Verdict:
    """Do a party's work, report the result to rank 0, and return the verdict.

    Raises:
        AlignmentStopped: another rank has stopped, for the same reason as this one or before it.
        InputError: this rank has stopped; rank 0 is not told why, since the reason may quote the party's
            table.
    """
    fault: InputError | None = None
    try:
        answer = Answer(said=act())
    except InputError as error:
        fault, answer = error, Answer(stopped=ELSEWHERE if isinstance(error, AlignmentStopped) else HERE)
    transport.report(answer.encode())
    try:
        verdict = answer_of(kind, transport.broadcast_record())
    except ValueError:
        raise InputError("rank 0 has sent what is not a verdict; see that all run the same mpifl") from None
    if fault is not None and str(fault) != verdict.stopped:
        raise fault
    if verdict.said is None:
        raise AlignmentStopped(verdict.stopped)
    return verdict.said
