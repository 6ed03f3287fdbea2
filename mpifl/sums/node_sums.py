"""Sums between nodes, piece by piece: the ranks of a node handle the pieces round robin.

The rank that handles a piece adds up the parts of its node's ranks, straight from shared memory. It adds the
sums from the nodes below in a tree, and sends the result on. The server's node makes the mean. A vector that
is the only summand so far travels unweighted in float32. The rank that adds it up weights and rounds it.
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
"""Slices of vectors begin at multiples of this number of elements."""
WHOLE = 1 << 19
"""Elements up to which a vector is one piece: smaller pieces would cost more messages than they gain."""
PIECE = 1 << 17
"""Elements in a piece of a longer vector: 1 MiB of float64, which stays in a core's cache."""


@dataclass(frozen=True)
class Child:
    """A child node in the tree. It sends its sum of a window, which includes the nodes below it.

    Attributes:
        node: The number of the node.
        weight: The weight of the only silo in it, if that silo's vector travels unweighted; 0 for a sum.
        depth: How many levels of nodes this sum may have to wait for.
    """

    node: int
    weight: float
    depth: int


@dataclass(frozen=True)
class TreePlace:
    """A node's place in the tree over which a window is summed.

    Attributes:
        parent: The node that gets its sum; None for the server's node.
        children: The nodes whose sums it adds to its own.
        lone: Whether it sends one silo's unweighted vector instead of a sum.
    """

    parent: int | None
    children: Sequence[Child]
    lone: bool


def place_in(window: Window, of: Sequence[int], node: int) -> TreePlace | None:
    """Return a node's place in the tree of a window; None if the node has no part of the window.

    The tree is binomial. It holds all nodes with a part, and the server's node as its root.

    Args:
        window: The window, with the ranks that have parts of it.
        of: The node of each rank.
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
    """Return the weight of the only part on these nodes, if it is one silo's unweighted vector; else 0."""
    parts = [part for rank, found in window.parts.items() if of[rank] in nodes for part in found]
    return parts[0].weight if len(parts) == 1 else 0.0


def relays_of(transport: Transport, ranks: Sequence[int]) -> list[list[int]]:
    """Return, for each node, those among these ranks and the server that handle pieces."""
    nodes, able = transport.nodes, sorted({0, *ranks})
    return [[rank for rank in able if nodes.of[rank] == node] for node in range(len(nodes))]


def cut(length: int) -> Iterator[slice]:
    """Yield the pieces in which a vector travels between nodes."""
    return pieces_of(length, WHOLE if length <= WHOLE else PIECE)


class RoundRobin:
    """Makes one rank's pieces of an exchange's sums over the nodes, round robin with the node's other ranks.

    Args:
        pipeline: The pipeline for the pieces.
        relays: The ranks of each node that handle pieces.

    Attributes:
        pipeline: The pipeline for the pieces.
        made: Whether this rank has made pieces of any sum.
    """

    def __init__(self, transport: Transport, pipeline: Pipeline, relays: Sequence[Sequence[int]]) -> None:
        self._transport, self.pipeline, self._relays = transport, pipeline, relays
        self._mine = relays[transport.nodes.number]
        self._depth = 0
        self.made = False

    def make(self, plan: ReductionPlan, here: Sequence[Parts], mean: Tensor | None) -> None:
        """Make this rank's pieces of the sum of one vector.

        Args:
            plan: The plan of the sum: which ranks have which parts.
            here: The parts of each window that lie on this node.
            mean: The vector for the mean, on the server's node; None on other nodes.
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
        """Wait until all pieces are taken, and tell the node's leader; the leader waits for its ranks.

        Args:
            hanging: Ranks that the leader does not wait for.

        Returns:
            The late ranks: at a leader those of its node, at the server also those whose pieces did not come.
        """
        transport = self._transport
        if not self.made:
            return set()
        self.pipeline.send_off()
        transport.done(self.pipeline.serial)
        if not transport.nodes.leads:
            return set()
        others = [rank for rank in self._mine if rank not in hanging]
        patience = (1 + self._depth) * transport.transfer_timeout  # these ranks may wait for nodes below
        late = transport.await_done(others, self.pipeline.serial, patience)
        if not transport.is_server:
            return late
        transport.silent |= {rank for rank in self.pipeline.missing if transport.nodes.is_leader(rank)}
        return late | self.pipeline.missing

    def _expected(
        self, places: Sequence[TreePlace | None], nth: int, where: slice
    ) -> Iterator[ExpectedPiece]:
        """Yield the pieces that come from child nodes, window by window."""
        for child in (child for place in places if place for child in place.children):
            dtype = torch.float32 if child.weight else torch.float64
            seconds = child.depth * self._transport.transfer_timeout
            yield ExpectedPiece(self._relay(child.node, nth), where.stop - where.start, dtype, seconds)

    def _relay(self, node: int, nth: int) -> int:
        return self._relays[node][nth % len(self._relays[node])]


def _joined(place: TreePlace, here: Parts, coming: Iterator[Tensor]) -> Parts:
    """Return the parts of this node together with the sums that come from its children."""
    came = [next(coming) for _ in place.children]
    weights = [child.weight for child in place.children]
    return Parts([*here.vectors, *came], [*here.weights, *weights], here.anchor)


def _sent(place: TreePlace, window: Parts) -> Tensor:
    return window.vectors[0] if place.lone else kernels.total(window)
