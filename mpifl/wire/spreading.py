"""Long vectors on their way from the server to all nodes: the ranks of a node take turns at the pieces.

Each receives its pieces where the node's ranks read them, and hands them on to the nodes below in a tree. The
node's leader knows when all are there.
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
"""Bytes from which on a vector goes by turns; for a shorter one the leaders alone are as fast."""
PIECE = 1 << 20
"""Bytes of a piece."""


class Spreading:
    """The vectors of one request on their way, as one rank takes part in it.

    Args:
        transport: The world.
        serial: The request's.
        resting: Ranks that carry nothing, since they are unreliable; no node's leader is one of them.

    Attributes:
        whole: Whether all vectors came to this node.
        hanging: Ranks of this node that did not say that they have their pieces, at its leader.
    """

    def __init__(self, transport: Transport, serial: int, resting: Collection[int]) -> None:
        self._transport, self._pipeline = transport, Pipeline(transport, serial)
        nodes, able = transport.nodes, [rank for rank in range(transport.size) if rank not in resting]
        self._relays = [[rank for rank in able if nodes.of[rank] == node] for node in range(len(nodes))]
        self._mine = self._relays[nodes.number]
        self.whole = True
        self.hanging: set[int] = set()

    def deliver(self, vector: Tensor | None, length: int, dtype: torch.dtype) -> Tensor:
        """Send a vector from the server (who gives it) to all ranks; return it where this rank can read it,
        of any content where it did not come whole."""
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
            self._transport.abandon(here)  # other ranks of the node may still be receiving there
            raise
        return here

    def end(self) -> bool:
        """See that others take what this rank sends them; return whether all vectors came to this node."""
        with self._pipeline as pipeline:
            pipeline.send_off()
        return self.whole

    def _put_together(self, here: Tensor) -> None:
        """Carry this rank's pieces of a vector, and know whether the others of the node have theirs."""
        wire, nodes, serial = self._transport, self._transport.nodes, self._pipeline.serial
        carried = wire.rank in self._mine and self.whole and self._carry(here)
        if nodes.number == 0:
            return  # it was all there before
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
            wire.abandon(here)  # who wakes up may still write there

    def _carry(self, here: Tensor) -> bool:
        """Receive this rank's pieces and hand them on; stop at the first that does not come, since what comes
        after it would be taken for it."""
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
    """Whether a vector goes by turns."""
    return dtype.is_floating_point and length * dtype.itemsize > LONG
