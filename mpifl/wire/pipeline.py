"""Pipelines of pieces of vectors between nodes: while a rank works on one piece, others travel.

Each exchange has its own tag, so that a late piece is never mistaken for one of another exchange.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mpifl.wire.stamped_vectors import StampedPointToPoint

FIRST_TAG, TAGS = 64, 1 << 14
"""The tags of pieces; MPI guarantees tags up to 32767."""
KEPT = 11
"""Tag: whether a rank, or a whole node, has received its pieces of a vector."""
_KEPT = struct.Struct("<q?")
AHEAD = 3
"""Pieces that a rank has under way at a time, at most."""


class Pipelines(StampedPointToPoint):
    """Sends and receives pieces for a `Pipeline`."""

    def send_piece(self, piece: Tensor, rank: int, serial: int) -> Any:
        """Begin to send a piece, which must not change meanwhile, and return MPI's request."""
        self.sent += piece.nbytes
        return self._started(self._comm.Isend, piece, rank, _tag_of(serial))

    def receive_piece(self, into: Tensor, rank: int, serial: int, until: float) -> Any:
        """Begin to receive the next piece from a rank; see `receive_into`."""
        return self.receive_into(into, rank, _tag_of(serial), until)

    def tell_kept(self, serial: int, *, whole: bool) -> None:
        """Tell the node's leader whether this rank has its pieces of a vector."""
        self._send_all(_KEPT.pack(serial, whole), [self.nodes.leader], KEPT)

    def await_kept(self, ranks: Sequence[int], serial: int) -> dict[int, bool]:
        """Return whether these ranks of the node have their pieces; leave out ranks that do not tell in time.

        The node's leader calls this.
        """
        until = self.platform.clock() + self.part_of_limit(3 / 4)  # these ranks wait for others, too
        told = {rank: self._kept(rank, serial, until) for rank in ranks}
        return {rank: whole for rank, whole in told.items() if whole is not None}

    def _kept(self, rank: int, serial: int, until: float) -> bool | None:
        for told in self._messages(rank, KEPT, until):
            if len(told) == _KEPT.size and _KEPT.unpack(told)[0] == serial:
                return bool(_KEPT.unpack(told)[1])
        return None

    def spread_kept(self, *, whole: bool) -> None:
        """Tell the node's other ranks whether the whole vector is there; the node's leader calls this."""
        self._send_all(bytes([whole]), self.nodes.followers, KEPT)

    def heard_kept(self) -> bool:
        """Return whether the node's leader says that the whole vector is there."""
        return self._receive(self.nodes.leader, KEPT) == b"\1"

    def part_of_limit(self, part: float) -> float:
        """Return a part of the time that a rank gets to receive a message, in seconds.

        It is only a part because other ranks wait for this one meanwhile.
        """
        return part * (self._limit() - self.platform.clock())


@dataclass(frozen=True)
class ExpectedPiece:
    """A piece to receive.

    Attributes:
        rank: The rank that sends it.
        length: Its number of elements.
        dtype: Their type.
        seconds: How long to wait for it.
        room: The vector to receive it in; None for a new one.
    """

    rank: int
    length: int
    dtype: torch.dtype
    seconds: float
    room: Tensor | None = None

    @classmethod
    def into(cls, room: Tensor, rank: int, seconds: float) -> ExpectedPiece:
        """Return a piece that is received in this vector."""
        return cls(rank, len(room), room.dtype, seconds, room)


class Pipeline:
    """Sends and receives the pieces of one exchange, at one rank.

    Attributes:
        serial: The serial number of the exchange.
        missing: Ranks whose pieces did not come in time; this rank no longer waits for them.
    """

    def __init__(self, wire: Pipelines, serial: int) -> None:
        self._wire, self.serial = wire, serial
        self._underway: deque[tuple[int, Any, Tensor]] = deque()
        self._coming: tuple[Any, Tensor] | None = None
        self._stuck: set[int] = set()
        self.missing: set[int] = set()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Abandon the pieces that are under way: those to come, and after an error those sent, too."""
        if kind is not None:
            self._wire.abandon(*self._underway)
        if self._coming:
            self._wire.abandon(*self._coming)
            self._coming = None

    def post(self, piece: Tensor, rank: int) -> None:
        """Wait until fewer than `AHEAD` pieces are under way, then send one, which must not change."""
        self.send_off(AHEAD - 1)
        self._underway.append((rank, self._wire.send_piece(piece, rank, self.serial), piece))

    def send_off(self, left: int = 0) -> None:
        """Wait until at most `left` pieces are under way; abandon those that a rank does not take in time."""
        while len(self._underway) > left:
            rank, request, piece = self._underway[0]
            patience = 0.0 if rank in self._stuck else self._wire.part_of_limit(1 / 2)
            if not self._wire.wait(request, self._wire.platform.clock() + patience):
                self._stuck.add(rank)
                self._wire.abandon(request, piece)
            self._underway.popleft()

    def receive(self, expected: Sequence[ExpectedPiece]) -> Iterator[Tensor]:
        """Yield the pieces in this order; the next one travels while the caller works on one.

        A piece is NaN if it did not come in time, or had another length.
        """
        following: list[ExpectedPiece | None] = [*expected[1:], None]
        for piece, after in zip(expected, following, strict=True):
            until = self._wire.platform.clock() + piece.seconds
            self._coming = self._coming or self._begun(piece, until)
            landed = self._landed(piece, until)
            self._coming = self._begun(after, 0.0) if after else None
            yield landed

    def _begun(self, piece: ExpectedPiece, until: float) -> tuple[Any, Tensor] | None:
        if piece.rank in self.missing:
            return None
        into = torch.empty(piece.length, dtype=piece.dtype) if piece.room is None else piece.room
        request = self._wire.receive_piece(into, piece.rank, self.serial, until)
        return None if request is None else (request, into)

    def _landed(self, piece: ExpectedPiece, until: float) -> Tensor:
        coming, self._coming = self._coming, None
        if coming and self._wire.wait(coming[0], until):
            return coming[1]
        if coming:
            self._wire.abandon(*coming)
        self.missing.add(piece.rank)
        return torch.full((piece.length,), math.nan, dtype=piece.dtype)


def _tag_of(serial: int) -> int:
    return FIRST_TAG + serial % TAGS
