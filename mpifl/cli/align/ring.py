"""Masked ids on their way round the ring of all parties, in pieces, so that all work at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mpifl.cli.align.align_phases import AlignmentStopped
from mpifl.cli.align.curve import POINT
from mpifl.common import InputError
from mpifl.wire import Transport

PIECE = 2000 * POINT
"""Bytes that are masked and passed on at a time."""


def pieces(size: int) -> Iterator[slice]:
    """Yield where the pieces of so many bytes lie."""
    return (slice(at, min(at + PIECE, size)) for at in range(0, size, PIECE))


def pass_round(
    transport: Transport,
    sizes: Sequence[int],
    own: bytes,
    mask: Callable[[bytes], bytes],
    told: Callable[[int], None] = lambda points: None,
) -> None:
    """Mask the points of all parties, this rank's own first, then those of the one before it, and so on.

    What has the masks of all goes to rank 0. Once something is wrong, empty pieces take the place of all that
    would follow: so nobody waits for what never comes, and all learn of it.

    Args:
        transport: This rank's end of the wire.
        sizes: How many ids each party has.
        own: This party's points, in an order that tells nothing.
        mask: Puts this party's mask on some points.
        told: Called with the number of points after each piece.

    Raises:
        InputError: something is wrong with a piece, here or before.
    """
    parties, me = len(sizes), transport.rank - 1
    fault: InputError | None = None
    before, after = (me - 1) % parties + 1, (me + 1) % parties + 1
    for hop in range(parties):
        for where in pieces(POINT * sizes[(me - hop) % parties]):
            length = where.stop - where.start
            piece = own[where] if hop == 0 else transport.take(before)
            masked = b""
            try:
                masked = _masked(piece, length, before, mask) if fault is None else b""
            except InputError as error:
                fault = error
            transport.post(after if hop < parties - 1 else 0, masked)
            told(length // POINT)
    transport.await_taken()
    if fault is not None:
        raise fault


def _masked(piece: bytes, length: int, sender: int, mask: Callable[[bytes], bytes]) -> bytes:
    """Put the mask on a piece; refuse one of another length than is due, and what no honest party sends."""
    if not piece:
        raise AlignmentStopped(f"rank {sender} has stopped")
    if len(piece) != length:
        raise InputError(f"rank {sender} has sent {len(piece):,} bytes where {length:,} were due")
    try:
        return mask(piece)
    except InputError as error:
        raise InputError(f"rank {sender} has sent {error}") from None


def last_before(party: int, parties: int) -> int:
    """Return the rank that puts the last mask on the ids of a party (0, 1, ...), and sends them to rank 0."""
    return (party - 1) % parties + 1


def collect(transport: Transport, sizes: Sequence[int], senders: Sequence[int]) -> list[bytes] | None:
    """Take at rank 0 what has the masks of all, by party; None if something is missing.

    Args:
        transport: This rank's end of the wire.
        sizes: How many ids each party has.
        senders: The rank that each party's ids come from.
    """
    found: list[bytes] = []
    whole = True
    for size, sender in zip(sizes, senders, strict=True):
        parts = [(where, transport.take(sender)) for where in pieces(POINT * size)]
        whole &= all(len(part) == where.stop - where.start for where, part in parts)
        found.append(b"".join(part for _, part in parts))
    return found if whole else None


def send_whole(transport: Transport, rank: int, content: bytes) -> None:
    """Post bytes whose number the other rank knows."""
    for where in pieces(len(content)):
        transport.post(rank, content[where])


def take_whole(transport: Transport, rank: int, size: int) -> bytes:
    """Take so many bytes; raise InputError if they are not what comes."""
    found = b"".join([transport.take(rank) for _ in pieces(size)])
    if len(found) != size:
        raise InputError(f"rank {rank} has sent {len(found):,} bytes where {size:,} were due")
    return found
