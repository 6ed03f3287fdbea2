"""Agreement of all ranks before a training: on the job, and that no rank has a problem."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from mpifl.common import InputError, Misled, Names
from mpifl.data.shards import Alignment
from mpifl.wire import Message, Report, Text, Transport


class Readiness(Message):
    """A rank's message before a training.

    Attributes:
        problem: Why the rank cannot take part; "" if it can.
        alignments: The tag of the alignment in the file of each of its silos.
    """

    problem: Text = ""
    alignments: dict[int, Alignment] = {}  # noqa: RUF012 - pydantic copies it


def agree(transport: Transport, prepare: Callable[[], dict[str, str]]) -> dict[str, Any]:
    """Prepare something on rank 0 and send it to all ranks; if rank 0 fails, all ranks fail.

    Raises:
        InputError: rank 0 failed.
    """
    if not transport.is_server:
        told: dict[str, Any] = json.loads(transport.attested(transport.broadcast_record(), 0))
        if "error" in told:
            raise InputError(told["error"])
        return told
    try:
        prepared = prepare()
    except InputError as error:
        _tell(transport, {"error": str(error)})
        raise
    _tell(transport, prepared)
    return prepared


def _tell(transport: Transport, told: Mapping[str, str]) -> None:
    """Send it to all ranks, and attest it to each. A job names code, and ranks that forward it could change
    the names."""
    record = json.dumps(told).encode()
    transport.broadcast_record(record)
    transport.attest(record, range(1, transport.size))


def agree_on(transport: Transport, problem: str, alignments: Mapping[int, str], names: Names) -> None:
    """Raise InputError on all ranks if any rank has a problem, or if shards have different alignments.

    Otherwise all ranks have agreed to begin. If a rank dies meanwhile, only some ranks may know that all
    agreed; `Transport.recover` tells the others.

    Args:
        problem: This rank's problem, "" if it has none.
        alignments: The tag of the alignment in the file of each of its silos.
        names: The silos' names.

    Raises:
        InputError: some rank has a problem.
        Misled: what was relayed is no text.
    """
    own = Readiness(problem=problem, alignments=dict(alignments))
    if transport.is_server:
        found = _found([own, *(_read(said) for _, said in transport.reports(_is_of_before))], names)
        transport.broadcast_record(found.encode())
    else:
        transport.report(own.encode())
        found = _text(transport.broadcast_record())
    if found:
        raise InputError(found)
    transport.agreed += 1


def _is_of_before(said: bytes) -> bool:
    """Return whether a record is a late report of an earlier training in this world."""
    try:
        return bool(Report.model_validate_json(said).serial)
    except ValidationError:
        return False


def _text(said: bytes) -> str:
    try:
        return said.decode()
    except UnicodeDecodeError:
        what = "whether all ranks are ready comes in bytes that are no text"
        raise Misled(f"{what}; the rank that relays it is broken, of another version, or lies") from None


def _read(said: bytes) -> Readiness:
    try:
        return Readiness.model_validate_json(said)
    except ValidationError:
        return Readiness(problem="a rank said what no rank of this version says; start all with the same")


def _found(said: list[Readiness], names: Names) -> str:
    """Return the first problem of any rank, or which silos have different alignments; "" if there is no
    problem."""
    if first := next((one.problem for one in said if one.problem), ""):
        return first
    tags: dict[str, list[int]] = {}
    for silo, tag in sorted((silo, tag) for one in said for silo, tag in one.alignments.items()):
        tags.setdefault(tag, []).append(silo)
    if len(tags) < 2:
        return ""
    each = [f"{_named(silos, names)} of '{tag[:8]}...'" for tag, silos in tags.items()]
    return f"the shards are of different alignments, {', '.join(each)}; align again, all parties together"


def _named(silos: list[int], names: Names) -> str:
    return f"silo{'s' * (len(silos) > 1)} {' and '.join(names[silo] for silo in silos)}"
