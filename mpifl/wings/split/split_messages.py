"""Messages of a dialogue between the server and a silo: bytes behind a header (request, silo, number).

Inside a node a long message stays in the shared memory of the rank that sends it, and MPI carries only a
handle. MPI would send a long message by rendezvous, and each side would wait until the other polls.
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
"""The header: serial of the request, silo, number of the message or a mark, bytes of the payload, and handle.

The handle finds the payload in the sender's shared memory; it is 0 if the payload follows the header."""
LONGEST = (1 << 31) - 1 - _HEAD.size
"""The most bytes of a payload; Open MPI 5 cannot count to 2^31."""


class MessageMark(IntEnum):
    """Marks in place of a message's number; no message has such a number."""

    STOP = 0xFFFFFFFF
    """The sender stops; its report says why."""
    END = 0xFFFFFFFE
    """The sender's client method has ended."""


@dataclass(frozen=True)
class SplitMessage:
    """A message that was received.

    Attributes:
        silo: The silo whose dialogue it belongs to.
        number: Its number in this dialogue, or a `MessageMark`.
        payload: The encoded tensor.
    """

    silo: int
    number: int
    payload: memoryview


class SplitMessages:
    """One rank's sending and receiving of the messages of one request.

    MPI keeps the order of messages from one rank to another, so the silos of a rank share one channel.
    Each rank sends the messages of its silos in the order of their ids. The two sides of a silo's dialogue
    take turns: a side sends only after it has received. So a message's shared memory is then free again.

    Args:
        transport: This rank's transport.
        serial: The request's serial number.
    """

    def __init__(self, transport: Transport, serial: int) -> None:
        self._transport, self._serial = transport, serial
        self._places: dict[int, Tensor] = {}

    def say(self, rank: int, silo: int, number: int, payload: bytes | memoryview = b"") -> None:
        """Begin to send a message of a silo's dialogue to a rank.

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
        """Copy a long message to shared memory and return its handle; return 0 if MPI is to carry it."""
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
        """Receive the next message of this request from a rank.

        Args:
            rank: The sender.
            limit: The most bytes that the payload may have.

        Raises:
            ValueError: it is not a message of this request, or too long.
        """
        for _ in range(MOST_STALE):
            record = self._transport.hear(rank, _HEAD.size + limit)
            if len(record) < _HEAD.size:
                raise ValueError(f"a line that is not a line, or of more than {limit} bytes")
            serial, silo, number, length, handle = _HEAD.unpack_from(record)
            if serial < self._serial:  # left over from a request that was given up
                continue
            if serial != self._serial or length > limit:
                raise ValueError(f"a line of {length} bytes, at most {limit}, of request {serial}")
            payload = self._found(rank, handle, length) if handle else memoryview(record)[_HEAD.size :]
            if length != len(payload):
                raise ValueError(f"a line of {len(payload)} bytes that says {length}")
            return SplitMessage(silo, number, payload)
        raise ValueError("line after line of requests that are over")

    def _found(self, rank: int, handle: int, length: int) -> memoryview:
        """Return a copy of a message in a neighbour's memory: a copy cannot change after the checks."""
        if rank not in self._transport.nodes.neighbours:
            raise ValueError("a line in the memory of another node")
        try:
            place = self._transport.read(rank, handle, length, torch.uint8)
        except OSError as error:
            raise ValueError(f"a line that is not where it says: {error}") from None
        self._transport.received += length
        return memoryview(bytearray(place.numpy()))

    def settle(self) -> None:
        """Wait until all messages that were sent have been received."""
        self._transport.await_taken()


def floats(payload: memoryview, rows: int, width: int) -> Tensor:
    """Return a payload as float32 numbers, shape [rows, width], without a copy.

    Raises:
        ValueError: it has another size.
    """
    if len(payload) != 4 * rows * width:
        raise ValueError(
            f"a line of {len(payload)} bytes; {rows} rows of {width} numbers take {4 * rows * width}"
        )
    return torch.from_numpy(np.frombuffer(payload, np.float32)).view(rows, width)
