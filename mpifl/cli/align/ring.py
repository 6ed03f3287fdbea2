"""Passes masked ids round the ring of all parties in pieces, so that all parties work in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mpifl.cli.align.align_phases import AlignmentStopped
from mpifl.cli.align.curve import POINT
from mpifl.common import InputError
from mpifl.wire import Transport

PIECE = 2000 * POINT
"""Bytes that a party masks and passes on at a time."""


def pieces(size: int) -> Iterator[slice]:
    """Yield the slices of the pieces of `size` bytes."""
    return (slice(at, min(at + PIECE, size)) for at in range(0, size, PIECE))


def pass_round(
    transport: Transport,
    sizes: Sequence[int],
    own: bytes,
    mask: Callable[[bytes], bytes],
    told: Callable[[int], None] = lambda points: None,
) -> None:
    """Mask the points of all parties: this rank's own first, then those of the rank before it, and so on.

    Points with the masks of all parties go to rank 0. After a fault, empty pieces replace all later ones. So
    nobody waits for missing pieces, and all ranks learn of the fault.

    Args:
        transport: This rank's end of the wire.
        sizes: The number of each party's ids.
        own: This party's points, in a random order.
        mask: Masks points with this party's secret.
        told: Called with the number of points after each piece.

    Raises:
        InputError: a piece is wrong, here or at an earlier rank.
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
    """Mask a piece; refuse a wrong length, and points that no honest party sends."""
    if not piece:
        raise AlignmentStopped(f"rank {sender} has stopped")
    if len(piece) != length:
        raise InputError(f"rank {sender} has sent {len(piece):,} bytes where {length:,} were due")
    try:
        return mask(piece)
    except InputError as error:
        raise InputError(f"rank {sender} has sent {error}") from None


def last_before(party: int, parties: int) -> int:
    """Return the rank that masks the ids of a party (0, 1, ...) last, and sends them to rank 0."""
    return (party - 1) % parties + 1


def collect(transport: Transport, sizes: Sequence[int], senders: Sequence[int]) -> list[bytes] | None:
    """Receive the points with all masks at rank 0, by party; None if a piece is missing.

    Args:
        transport: This rank's end of the wire.
        sizes: The number of each party's ids.
        senders: The rank that sends each party's masked ids.
    """
    found: list[bytes] = []
    whole = True
    for size, sender in zip(sizes, senders, strict=True):
        parts = [(where, transport.take(sender)) for where in pieces(POINT * size)]
        whole &= all(len(part) == where.stop - where.start for where, part in parts)
        found.append(b"".join(part for _, part in parts))
    return found if whole else None


def send_whole(transport: Transport, rank: int, content: bytes) -> None:
    """Send bytes whose number the other rank knows."""
    for where in pieces(len(content)):
        transport.post(rank, content[where])


def take_whole(transport: Transport, rank: int, size: int) -> bytes:
    """Receive `size` bytes; raise InputError if fewer or more come."""
    found = b"".join([transport.take(rank) for _ in pieces(size)])
    if len(found) != size:
        raise InputError(f"rank {rank} has sent {len(found):,} bytes where {size:,} were due")
    return found
