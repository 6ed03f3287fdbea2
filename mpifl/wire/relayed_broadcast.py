"""Broadcast of long vectors from the server to all nodes: the ranks of a node relay pieces, round robin.

Each rank receives its pieces in its node's shared memory, and hands them on to the nodes below in a tree. The
node's leader knows when all pieces are there.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from mpifl.common import RankLost
from mpifl.wire.memory import pieces_of
from mpifl.wire.nodes import children
from mpifl.wire.pipeline import ExpectedPiece, Pipeline
from mpifl.wire.transport import Transport

LONG = 4 << 20
"""Bytes above which all ranks relay a vector; up to this the leaders alone are as fast."""
PIECE = 1 << 20
"""Bytes of a piece."""


class Spreading:
    """Broadcasts the vectors of one request, at one rank.

    Args:
        serial: The serial number of the request.
        resting: Ranks that relay nothing, since they are unreliable; no leader of a node is among them.

    Attributes:
        whole: Whether all vectors came to this node.
        hanging: At a node's leader: the ranks of the node that did not say in time whether they have their
            pieces.
    """

    def __init__(self, transport: Transport, serial: int, resting: Collection[int]) -> None:
        self._transport, self._pipeline = transport, Pipeline(transport, serial)
        nodes, able = transport.nodes, [rank for rank in range(transport.size) if rank not in resting]
        self._relays = [[rank for rank in able if nodes.of[rank] == node] for node in range(len(nodes))]
        self._mine = self._relays[nodes.number]
        self.whole = True
        self.hanging: set[int] = set()

    def deliver(self, vector: Tensor | None, length: int, dtype: torch.dtype) -> Tensor:
        """Send a vector from the server, which gives it, to all ranks; return it where this rank can read it.

        Its content is undefined if it did not come whole.
        """
        if not is_long(length, dtype):
            return self._transport.broadcast_vector(vector, length, dtype)
        nodes, memory = self._transport.nodes, self._transport.memory
        if nodes.leads:
            here = memory.empty(length, dtype) if vector is None else memory.move_to_shared_memory(vector)
            self._transport.hand_out(here)
        else:
            here = self._transport.handed_out(length, dtype)
        try:
            with self._pipeline:
                self._put_together(here)
        except RankLost:
            self._transport.abandon(here)  # other ranks of the node may still receive pieces there
            raise
        return here

    def end(self) -> bool:
        """Wait until other ranks take what this rank sends; return whether all vectors came to this node."""
        with self._pipeline as pipeline:
            pipeline.send_off()
        return self.whole

    def _put_together(self, here: Tensor) -> None:
        """Relay this rank's pieces of a vector, and learn whether the other ranks of the node have theirs."""
        wire, nodes, serial = self._transport, self._transport.nodes, self._pipeline.serial
        carried = wire.rank in self._mine and self.whole and self._carry(here)
        if nodes.number == 0:
            return  # the server's node has the vector already
        if not nodes.leads:
            if wire.rank in self._mine:
                wire.tell_kept(serial, whole=carried)
            self.whole = wire.heard_kept() and self.whole
            return
        others = [rank for rank in self._mine if rank != wire.rank and self.whole]
        kept = wire.await_kept(others, serial)
        self.hanging |= set(others) - kept.keys()
        self.whole = carried and self.whole and all(kept.get(rank) for rank in others)
        wire.spread_kept(whole=self.whole)
        if not self.whole:
            wire.abandon(here)  # a rank that wakes up may still write there

    def _carry(self, here: Tensor) -> bool:
        """Receive this rank's pieces and hand them on; return whether all came.

        Stop at the first piece that does not come: a later piece would be mistaken for it.
        """
        nodes = self._transport.nodes
        turn, turns = self._mine.index(self._transport.rank), len(self._mine)
        pieces = list(enumerate(pieces_of(len(here), PIECE // here.itemsize)))[turn::turns]
        seconds, above = self._transport.part_of_limit(1 / 2), nodes.number & (nodes.number - 1)
        coming = self._pipeline.receive(
            [ExpectedPiece.into(here[where], self._relay(above, nth), seconds) for nth, where in pieces]
            if nodes.number
            else []
        )
        for nth, where in pieces:
            if nodes.number:
                next(coming)
                if self._pipeline.missing:
                    return False
            for node in children(nodes.number, len(nodes)):
                self._pipeline.post(here[where], self._relay(node, nth))
        return True

    def _relay(self, node: int, nth: int) -> int:
        return self._relays[node][nth % len(self._relays[node])]


def is_long(length: int, dtype: torch.dtype) -> bool:
    """Return whether the ranks of a node relay the pieces of a vector round robin."""
    return dtype.is_floating_point and length * dtype.itemsize > LONG
