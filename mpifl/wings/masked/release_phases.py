"""Two phases between a verdict and its sum: all parties are ready, and the server releases it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from mpifl.wire import Digest, Message, Text, Transport

READY, RELEASE, TAIL = ((1 << 41) + nth for nth in range(3))
"""Stamps, beside the serial number of the request."""
RECORD_BYTES = 1 << 12


class Ready(Message):
    """What a party makes of a verdict: what it would mask its sum for, or why it hands none over."""

    context: Digest | None = None
    refused: Text = Field(default="")


class Release(Message):
    """What the server says when all are ready, or not."""

    lost: Text | None = None
    """Why nothing is handed over, if so."""


class Phases:
    """What the parties of one sum and the server tell each other.

    Attributes:
        missing: Parties that did not answer in time, at the server.
        empty: Parties that handed over other than numbers, or had none to hand over.
    """

    def __init__(self, transport: Transport, serial: int, parties: Collection[int]) -> None:
        self._transport, self._serial, self._parties = transport, serial, sorted(parties)
        self.missing: set[int] = set()
        self.empty: set[int] = set()

    def ready(self, own: Ready | None) -> dict[int, Ready]:
        """Tell the server of this rank's readiness if it is a party; return at the server those of all."""
        found = {0: own} if own is not None and self._transport.is_server else {}
        if own is not None and not self._transport.is_server:
            self._transport.hand_over(0, own.encode(), (self._serial, READY))
        for rank, record in self._gathered(READY, RECORD_BYTES).items():
            try:
                found[rank] = Ready.model_validate_json(record)
            except ValidationError:
                found[rank] = Ready(refused="its answer cannot be read")
        return found

    def release(self, told: Release | None, ranks: Collection[int]) -> Release:
        """Tell some ranks, from the server, whether the sum is released; return what was told."""
        transport, stamp = self._transport, (self._serial, RELEASE)
        if transport.is_server:
            assert told is not None
            for rank in ranks:
                transport.hand_over(rank, told.encode(), stamp)
            return told
        until = time.perf_counter() + transport.transfer_timeout
        record = transport.next_share(0, stamp, RECORD_BYTES, until)
        return (
            Release(lost="no release came") if record is None else Release.model_validate_json(bytes(record))
        )

    def tails(self, own: Tensor | None, length: int) -> dict[int, Tensor]:
        """Bring the numbers of all parties, int64 of shape [length], to the server."""
        found = {0: own} if own is not None and self._transport.is_server else {}
        if own is not None and not self._transport.is_server:
            self._transport.hand_over(0, own.numpy().tobytes(), (self._serial, TAIL))
        for rank, record in self._gathered(TAIL, 8 * length).items():
            if len(record) == 8 * length:
                found[rank] = torch.frombuffer(bytearray(record), dtype=torch.int64)
            else:
                self.empty.add(rank)
        return found

    def _gathered(self, beat: int, nbytes: int) -> Mapping[int, bytes]:
        """Return, at the server, what the other parties hand over; those that do not are `missing`."""
        found: dict[int, bytes] = {}
        if not self._transport.is_server:
            return found
        until = time.perf_counter() + self._transport.transfer_timeout
        for rank in self._parties:
            if rank != 0:
                record = self._transport.next_share(rank, (self._serial, beat), nbytes, until)
                if record is None:
                    self.missing.add(rank)
                else:
                    found[rank] = bytes(record)
        return found
