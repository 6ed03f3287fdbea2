"""Vectors from rank to rank, stamped with their exchange, so that a late one is not mistaken for another."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.wire.point_to_point import PointToPoint

ROWS, SHARE = 7, 8
"""Tags: columns of silos' vectors; a rank's result for its columns."""
_STAMP = struct.Struct("<qq")
Stamp = tuple[int, int]
"""The serial number of the request, and a count within its exchange."""
SHORTEST_LIMIT = 1 << 16
"""Bytes that a message may always have, however short the expected one is."""


class StampedPointToPoint(PointToPoint):
    """Sends and receives float32 vectors and records with a stamp; every wait has a time limit."""

    def hand_over(self, rank: int, content: bytes | Sequence[Tensor], stamp: Stamp) -> bool:
        """Send a record, or vectors one behind another, to a rank; return whether it took them in time."""
        limit = self.platform.clock() + self.transfer_timeout
        return self._taken(*self._begin(rank, SHARE, content, stamp), limit)

    def next_share(self, rank: int, stamp: Stamp, nbytes: int, until: float) -> memoryview | None:
        """Return the content that a rank hands over with this stamp.

        Return None if none comes by the time `until`, or if it is far longer than `nbytes`.
        """
        return self._stamped(rank, SHARE, stamp, nbytes, until)

    def trade(
        self, outgoing: Mapping[int, Sequence[Tensor]], incoming: Mapping[int, int], stamp: Stamp
    ) -> tuple[dict[int, Tensor], set[int]]:
        """Send float32 vectors to some ranks and receive others from some ranks.

        Args:
            outgoing: The vectors for each rank, sent one behind another.
            incoming: How many elements each rank sends.
            stamp: The stamp of all these messages.

        Returns:
            The received elements by rank, and the ranks that failed. A rank fails if it sends no message of
            its length in time, or does not take ours in time.
        """
        underway = {rank: self._begin(rank, ROWS, vectors, stamp) for rank, vectors in outgoing.items()}
        until = self.platform.clock() + self.transfer_timeout
        found = {}
        for rank, length in incoming.items():
            content = self._stamped(rank, ROWS, stamp, 4 * length, until)
            if content is not None and len(content) == 4 * length:
                found[rank] = torch.frombuffer(content, dtype=torch.float32)
        stuck = {rank for rank, sending in underway.items() if not self._taken(*sending, until)}
        return found, stuck | (incoming.keys() - found.keys())

    def _begin(self, rank: int, tag: int, content: bytes | Sequence[Tensor], stamp: Stamp) -> tuple[Any, Any]:
        parts = [content] if isinstance(content, bytes) else [v.numpy().view(np.uint8) for v in content]
        buffer = np.concatenate([np.frombuffer(part, np.uint8) for part in (_STAMP.pack(*stamp), *parts)])
        request = self._started(self._comm.Isend, buffer, rank, tag)
        self._notify([rank])
        self.sent += buffer.nbytes
        return request, buffer

    def _taken(self, request: Any, buffer: Any, until: float) -> bool:
        if self.wait(request, until):
            return True
        self._abandoned += [request, buffer]  # MPI may still read it
        return False

    def _stamped(self, rank: int, tag: int, stamp: Stamp, nbytes: int, until: float) -> memoryview | None:
        limit = _STAMP.size + max(nbytes, SHORTEST_LIMIT)
        for content in self._messages(rank, tag, until, limit):
            if len(content) < _STAMP.size:
                return None
            if _STAMP.unpack_from(content) == stamp:
                return memoryview(content)[_STAMP.size :]
        return None
