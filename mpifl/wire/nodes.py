"""Which ranks share a node, who leads each, and how the leaders form a tree."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mpifl.wire.doorbell import TOKEN_BYTES, Doorbell
from mpifl.wire.memory import Memory, probe
from mpifl.wire.rank_platform import Platform

RANKS_PER_NODE = "MPIFL_RANKS_PER_NODE"
"""Environment variable: how many ranks count as one node. It serves machines whose sockets share memory
badly, and trials of many nodes."""
_NODE_INFO = struct.Struct(f"<qqq{TOKEN_BYTES}s")
"""Facts about a rank: its process, the handle of a vector to probe, its node's first rank, its doorbell."""


@dataclass(frozen=True)
class Neighbour:
    """A rank of this node: its process and its doorbell."""

    process: int
    token: bytes


@dataclass
class Nodes:
    """The world, node by node, as one rank sees it.

    Attributes:
        of: The number of each rank's node. Nodes are numbered in the order of their lowest ranks. The lowest
            rank of a node leads it.
        rank: This rank.
        neighbours: The ranks of this node, this rank included.
        leaders: A communicator of all leaders; None at other ranks, and if there is only one node.
    """

    of: Sequence[int]
    rank: int
    neighbours: dict[int, Neighbour] = field(default_factory=dict)
    leaders: Any = None

    def __post_init__(self) -> None:
        first = {node: rank for rank, node in reversed(list(enumerate(self.of)))}
        self._leaders = [first[node] for node in range(len(first))]
        self.number = self.of[self.rank]
        self.leader = self._leaders[self.number]
        self.leads = self.leader == self.rank
        self.mine = [rank for rank, node in enumerate(self.of) if node == self.number]
        self.followers = [rank for rank in self.mine if rank != self.rank] if self.leads else []
        self.children = (
            [self._leaders[child] for child in children(self.number, len(self))] if self.leads else []
        )
        self.parent = self.parent_of(self.rank)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._leaders)

    def parent_of(self, rank: int) -> int:
        """Return the rank that relays the server's messages to a rank; 0 for the server itself."""
        node = self.of[rank]
        return self._leaders[node & (node - 1)] if self.is_leader(rank) else self._leaders[node]

    def is_leader(self, rank: int) -> bool:
        """Return whether a rank leads its node."""
        return self._leaders[self.of[rank]] == rank

    def leader_of(self, node: int) -> int:
        """Return the rank that leads a node."""
        return self._leaders[node]


def children(node: int, nodes: int) -> list[int]:
    """Return a node's children in a binomial tree from node 0, the farthest first."""
    steps = []
    step = 1
    while node + step < nodes and not node & step:
        steps.append(node + step)
        step *= 2
    return steps[::-1]


def discover_nodes(
    comm: Any, platform: Platform, doorbell: Doorbell, ranks_per_node: int | None = None
) -> Nodes:
    """Find out which ranks can share memory; all ranks call this together.

    Args:
        comm: The world.
        platform: The platform below the wire.
        doorbell: The doorbell of this rank.
        ranks_per_node: How many ranks count as one node; None to ask MPI.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return Nodes([0], 0)
    memory = Memory(shared=doorbell.works, segments=platform.segments)
    mark = memory.empty(1, torch.int64).fill_(platform.process)
    first = _first_of_node(comm, platform, ranks_per_node)
    info = _NODE_INFO.pack(platform.process, memory.handle(mark), first, doorbell.token)
    infos = _exchanged(comm, platform, info, _NODE_INFO)
    mine = [info for info in infos if info[2] == first]
    seen = Memory(shared=True, segments=platform.segments)
    reach = doorbell.works and all(probe(seen, process, handle) for process, handle, _, _ in mine)
    # this exchange also keeps `mark` alive until all ranks have read it
    reaches = _exchanged(comm, platform, struct.pack("<?", reach), struct.Struct("<?"))
    nodes = _numbered([info[2] for info in infos], [ok for (ok,) in reaches], rank)
    nodes.neighbours = {other: Neighbour(infos[other][0], infos[other][3]) for other in nodes.mine}
    split_leaders(nodes, comm)
    return nodes


def _numbered(firsts: Sequence[int], reach: Sequence[bool], rank: int) -> Nodes:
    """Number the nodes in the order of their first ranks.

    If one rank of a node cannot read the memory of all others, each rank of this node is a node of its own.
    """
    apart = {first for first, ok in zip(firsts, reach, strict=True) if not ok}
    firsts = [other if first in apart else first for other, first in enumerate(firsts)]
    order = sorted(set(firsts))
    return Nodes([order.index(first) for first in firsts], rank)


def left_of(nodes: Nodes, ranks: Sequence[int]) -> Nodes:
    """Return the nodes after a death; the leaders have no communicator yet.

    Args:
        nodes: The nodes before the death.
        ranks: The survivors' old ranks, in the order of the new ones.
    """
    where = [nodes.of[rank] for rank in ranks]
    order = list(dict.fromkeys(where))
    left = Nodes([order.index(node) for node in where], ranks.index(nodes.rank))
    known = nodes.neighbours
    left.neighbours = {rank: known[old] for rank, old in enumerate(ranks) if old in known}
    return left


def split_leaders(nodes: Nodes, comm: Any) -> None:
    """Give the leaders a communicator of their own; all ranks call this together."""
    if len(nodes) > 1:
        leaders = comm.Split(0 if nodes.leads else 1, nodes.rank)
        nodes.leaders = leaders if nodes.leads else None


def split(comm: Any, platform: Platform, color: int | None) -> Any:
    """Return a communicator of all ranks that give this color, or None for the color None.

    All ranks call this together.
    """
    made = comm.Split(platform.mpi.UNDEFINED if color is None else color, comm.Get_rank())
    return None if color is None else made


def _first_of_node(comm: Any, platform: Platform, ranks_per_node: int | None) -> int:
    if ranks_per_node:
        return int(comm.Get_rank()) // ranks_per_node * ranks_per_node
    node = comm.Split_type(platform.mpi.COMM_TYPE_SHARED)
    first = np.array([comm.Get_rank()], np.int64)
    poll(node.Ibcast(first, 0), platform)
    node.Free()
    return int(first[0])


def _exchanged(comm: Any, platform: Platform, info: bytes, form: struct.Struct) -> list[tuple[Any, ...]]:
    """Return the facts that every rank gives about itself."""
    infos = np.zeros((comm.Get_size(), form.size), np.uint8)
    poll(comm.Iallgather(np.frombuffer(info, np.uint8), infos), platform)
    return [form.unpack(row.tobytes()) for row in infos]


def poll(request: Any, platform: Platform) -> None:
    """Wait until an MPI request is done, without a doorbell: other ranks may still be starting."""
    while not request.Test():
        platform.sleep(1e-3)
