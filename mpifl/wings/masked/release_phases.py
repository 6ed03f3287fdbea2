"""Two phases between a verdict and its sum: all parties get ready, then the server releases the sum."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from mpifl.wire import Digest, Message, Text, Transport

READY, RELEASE, TAIL = ((1 << 41) + nth for nth in range(3))
"""Stamps of the phases; the request's serial number stands beside them."""
RECORD_BYTES = 1 << 12


class Ready(Message):
    """A party's answer to a verdict: the digest of the question, or why it refuses to send its sum."""

    context: Digest | None = None
    refused: Text = Field(default="")


class Release(Message):
    """The server's decision, once it has heard all parties."""

    lost: Text | None = None
    """Why the sum is not released; None if it is."""


class Phases:
    """The messages between the parties of one sum and the server.

    Attributes:
        missing: At the server, the parties that did not answer in time.
        empty: At the server, the parties that sent no numbers, or bytes of a wrong length.
    """

    def __init__(self, transport: Transport, serial: int, parties: Collection[int]) -> None:
        self._transport, self._serial, self._parties = transport, serial, sorted(parties)
        self.missing: set[int] = set()
        self.empty: set[int] = set()

    def ready(self, own: Ready | None) -> dict[int, Ready]:
        """Send this party's answer to the server; return at the server the answers of all parties."""
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
        """Send the decision from the server to `ranks`; return it on all of them."""
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
        """Send this party's numbers, int64 of shape [length]; return at the server those of all parties."""
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
        """Return, at the server, the messages of the other parties; add those that sent none to `missing`."""
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
