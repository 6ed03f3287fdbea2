"""Sums between nodes, piece by piece: the workers of a node take turns at the pieces.

Whoever carries a piece adds up what its node's ranks have of it, straight from where they left it. It adds
what comes from the nodes below in a tree, and sends the sum on; the server's node makes the mean of it. A
silo that is alone on the way travels as it came, in float32: who adds it up weights and rounds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.sums import kernels
from mpifl.sums.kernels import Parts
from mpifl.sums.planning import ReductionPlan, Window
from mpifl.wire import ExpectedPiece, Pipeline, Transport, pieces_of

ALIGNED = 1 << 10
"""Elements to a multiple of which a vector is cut."""
WHOLE = 1 << 19
"""Elements up to which a vector is one piece: cut smaller, it would pay more for messages than it gains."""
PIECE = 1 << 17
"""Elements of a piece of a longer one: 1 MiB of float64, which stays in a core's cache."""


@dataclass(frozen=True)
class Child:
    """A node that sends its sum of a window, which is the sum of the nodes below it, too.

    Attributes:
        node: Its number.
        weight: Of the one silo that this is made of, as it came; 0 if it is a sum.
        depth: How many nodes, one after another, may be waited for.
    """

    node: int
    weight: float
    depth: int


@dataclass(frozen=True)
class TreePlace:
    """A node's place in the tree over which a window is summed.

    Attributes:
        parent: The node that it sends its sum to; None at the server's.
        children: The nodes whose sums it adds to its own.
        lone: Whether what it sends is one silo's vector as it came.
    """

    parent: int | None
    children: Sequence[Child]
    lone: bool


def place_in(window: Window, of: Sequence[int], node: int) -> TreePlace | None:
    """Return a node's place in the tree of a window; None if it has no part of it.

    The tree is a binomial one, over the nodes that have a part, and the server's as its root.

    Args:
        window: Who has a part of it.
        of: The node of each rank.
        node: Whose place it is.
    """
    nodes = sorted({0, *(of[rank] for rank in window.parts)})
    if node not in nodes:
        return None
    me, step, children = nodes.index(node), 1, []
    while not me & step and me + step < len(nodes):
        below = nodes[me + step : me + 2 * step]
        children.append(Child(below[0], _weight(window, of, below), step.bit_length()))
        step *= 2
    parent = nodes[me & (me - 1)] if me else None
    return TreePlace(
        parent, children, bool(parent is not None and _weight(window, of, nodes[me : me + step]))
    )


def _weight(window: Window, of: Sequence[int], nodes: Sequence[int]) -> float:
    """Return the weight of the only part that these nodes have, if that is a silo's vector as it came."""
    parts = [part for rank, found in window.parts.items() if of[rank] in nodes for part in found]
    return parts[0].weight if len(parts) == 1 else 0.0


def relays_of(transport: Transport, ranks: Sequence[int]) -> list[list[int]]:
    """Return for each node the ranks that take turns at the pieces, of these and the server."""
    nodes, able = transport.nodes, sorted({0, *ranks})
    return [[rank for rank in able if nodes.of[rank] == node] for node in range(len(nodes))]


def cut(length: int) -> Iterator[slice]:
    """Yield the pieces in which a vector travels between nodes."""
    return pieces_of(length, WHOLE if length <= WHOLE else PIECE)


class RoundRobin:
    """The sums of one exchange over the nodes, as one rank takes turns at their pieces.

    Args:
        transport: The world.
        pipeline: On which the pieces travel.
        relays: The ranks of each node that take turns.

    Attributes:
        pipeline: The same.
        made: Whether this rank's node had a part in any.
    """

    def __init__(self, transport: Transport, pipeline: Pipeline, relays: Sequence[Sequence[int]]) -> None:
        self._transport, self.pipeline, self._relays = transport, pipeline, relays
        self._mine = relays[transport.nodes.number]
        self._depth = 0
        self.made = False

    def make(self, plan: ReductionPlan, here: Sequence[Parts], mean: Tensor | None) -> None:
        """Carry this rank's pieces of one vector.

        Args:
            plan: Who has which part of it.
            here: The parts of each window that lie on this node.
            mean: Where the mean is written, on the server's node.
        """
        nodes = self._transport.nodes
        places = [place_in(window, nodes.of, nodes.number) for window in plan.windows]
        if not any(places) or self._transport.rank not in self._mine:
            return
        self.made = True
        self._depth = max([self._depth, *(one.depth for place in places if place for one in place.children)])
        turn, turns = self._mine.index(self._transport.rank), len(self._mine)
        pieces = list(enumerate(cut(plan.length)))[turn::turns]
        expected = [one for nth, where in pieces for one in self._expected(places, nth, where)]
        coming = self.pipeline.receive(expected)
        for nth, where in pieces:
            windows = [
                (place, _joined(place, parts.cut(where), coming))
                for place, parts in zip(places, here, strict=True)
                if place is not None
            ]
            for place, window in windows:
                if place.parent is not None:
                    self.pipeline.post(_sent(place, window), self._relay(place.parent, nth))
            if mean is not None:
                kernels.mean(mean[where], [window for _, window in windows], 1 / plan.total)

    def end(self, hanging: Set[int]) -> set[int]:
        """See that all pieces are taken, and say so to the node's leader.

        Args:
            hanging: Ranks that are not waited for.

        Returns:
            Ranks that have not done in time: at a leader those of its node, and at the server those whose
            pieces did not come.
        """
        transport = self._transport
        if not self.made:
            return set()
        self.pipeline.send_off()
        transport.done(self.pipeline.serial)
        if not transport.nodes.leads:
            return set()
        others = [rank for rank in self._mine if rank not in hanging]
        patience = (1 + self._depth) * transport.transfer_timeout  # they may wait for nodes below
        late = transport.await_done(others, self.pipeline.serial, patience)
        if not transport.is_server:
            return late
        transport.silent |= {rank for rank in self.pipeline.missing if transport.nodes.is_leader(rank)}
        return late | self.pipeline.missing

    def _expected(
        self, places: Sequence[TreePlace | None], nth: int, where: slice
    ) -> Iterator[ExpectedPiece]:
        """Yield what comes of a piece, window by window."""
        for child in (child for place in places if place for child in place.children):
            dtype = torch.float32 if child.weight else torch.float64
            seconds = child.depth * self._transport.transfer_timeout
            yield ExpectedPiece(self._relay(child.node, nth), where.stop - where.start, dtype, seconds)

    def _relay(self, node: int, nth: int) -> int:
        return self._relays[node][nth % len(self._relays[node])]


def _joined(place: TreePlace, here: Parts, coming: Iterator[Tensor]) -> Parts:
    """Return the parts of this node and what comes from those below it."""
    came = [next(coming) for _ in place.children]
    weights = [child.weight for child in place.children]
    return Parts([*here.vectors, *came], [*here.weights, *weights], here.anchor)


def _sent(place: TreePlace, window: Parts) -> Tensor:
    return window.vectors[0] if place.lone else kernels.total(window)
