"""Lines of a dialogue: typed bytes between the server and a silo, each with the request, silo and number that
it belongs to.

Between ranks of a node a long line stays in the shared memory of the rank that says it, and only its place is
sent. MPI would have both sides meet for it, and each would wait for the other's next look.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from mpifl.wire import EAGER, MOST_STALE, Transport

_HEAD = struct.Struct("<QIIQQ")
"""Serial of the request, silo, number of the line or a mark, bytes of the payload, and the handle by which
its rank's memory has the payload: 0 where it follows."""
LONGEST = (1 << 31) - 1 - _HEAD.size
"""Bytes of a payload at most; Open MPI 5 cannot count to 2^31."""


class MessageMark(IntEnum):
    """Numbers that no line has: what is said in place of one."""

    STOP = 0xFFFFFFFF
    """I stop; the report says why."""
    END = 0xFFFFFFFE
    """I have said all."""


@dataclass(frozen=True)
class SplitMessage:
    """What one side said.

    Attributes:
        silo: Whose dialogue it belongs to.
        number: Counts the lines of the dialogue, or a `MessageMark`.
        payload: The line itself.
    """

    silo: int
    number: int
    payload: memoryview


class SplitMessages:
    """The lines of one request, as one rank says and hears them.

    MPI keeps the order of what goes from one rank to another, so that the silos of a rank share one channel.
    Each rank says the lines of its silos in the order of their numbers. The two sides of a silo's dialogue
    take turns: who says a line has taken the other side's before. So the memory of a line is free for the
    next.

    Args:
        transport: This rank's end of the wire.
        serial: The request's.
    """

    def __init__(self, transport: Transport, serial: int) -> None:
        self._transport, self._serial = transport, serial
        self._places: dict[int, Tensor] = {}

    def say(self, rank: int, silo: int, number: int, payload: bytes | memoryview = b"") -> None:
        """Begin to send a line of a silo's dialogue to a rank.

        Raises:
            ValueError: it is too long for MPI.
        """
        if len(payload) > LONGEST:
            what = f"a line of {len(payload)} bytes, MPI takes {LONGEST}"
            raise ValueError(f"{what}; lower [local] batch_size or [split] cut_width")
        handle = self._placed(rank, silo, payload)
        head = _HEAD.pack(self._serial, silo, number, len(payload), handle)
        self._transport.say(head if handle else head + payload, rank)

    def _placed(self, rank: int, silo: int, payload: bytes | memoryview) -> int:
        """Copy a line to where a rank of this node reads it; return its handle, 0 if it is to be sent."""
        length, memory = len(payload), self._transport.memory
        if length <= EAGER or rank not in self._transport.nodes.neighbours:
            return 0
        place = self._places.get(silo)
        if place is None or len(place) < length:
            place = self._places[silo] = memory.empty(length, torch.uint8)
        if handle := memory.handle(place):
            place.numpy()[:length] = np.frombuffer(payload, np.uint8)
            self._transport.sent += length
        return handle

    def hear(self, rank: int, limit: int) -> SplitMessage:
        """Return the next line of this request that a rank says.

        Args:
            rank: Who says it.
            limit: Bytes of the payload at most.

        Raises:
            ValueError: it is no line, or longer.
        """
        for _ in range(MOST_STALE):
            record = self._transport.hear(rank, _HEAD.size + limit)
            if len(record) < _HEAD.size:
                raise ValueError(f"a line that is no line, or of more than {limit} bytes")
            serial, silo, number, length, handle = _HEAD.unpack_from(record)
            if serial < self._serial:  # of a request that was given up
                continue
            if serial != self._serial or length > limit:
                raise ValueError(f"a line of {length} bytes, at most {limit}, of request {serial}")
            payload = self._found(rank, handle, length) if handle else memoryview(record)[_HEAD.size :]
            if length != len(payload):
                raise ValueError(f"a line of {len(payload)} bytes that says {length}")
            return SplitMessage(silo, number, payload)
        raise ValueError("line after line of requests that are over")

    def _found(self, rank: int, handle: int, length: int) -> memoryview:
        """Return a copy of the line that a rank of this node has: what was checked cannot change."""
        if rank not in self._transport.nodes.neighbours:
            raise ValueError("a line in the memory of another node")
        try:
            place = self._transport.read(rank, handle, length, torch.uint8)
        except OSError as error:
            raise ValueError(f"a line that is not where it says: {error}") from None
        self._transport.received += length
        return memoryview(bytearray(place.numpy()))

    def settle(self) -> None:
        """Wait until all lines that were said have been taken."""
        self._transport.await_taken()


def floats(payload: memoryview, rows: int, width: int) -> Tensor:
    """Return a payload as float32 numbers, shape [rows, width], in the memory where it came.

    Raises:
        ValueError: it has another size.
    """
    if len(payload) != 4 * rows * width:
        raise ValueError(
            f"a line of {len(payload)} bytes; {rows} rows of {width} numbers take {4 * rows * width}"
        )
    return torch.from_numpy(np.frombuffer(payload, np.float32)).view(rows, width)
