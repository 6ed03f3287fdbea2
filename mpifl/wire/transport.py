"""One rank's end of the wire: records by MPI, vectors by shared memory in a node and by MPI between nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mpifl.common import Misled
from mpifl.wire.memory import pieces_of
from mpifl.wire.recovering import Recovering

STALE = 16
"""Stale reports of one rank that are dropped at most."""
CHUNK_BYTES = 1 << 24
"""Bytes of a vector that travel between nodes at a time; Open MPI 5 cannot count to 2^31."""
RECORD, REPORT, HANDLE, SUM, DONE, VECTOR = range(1, 7)
"""Tags: the server's records, workers' reports, handles of vectors, partial sums, the news that a share of a
sum is made, vectors sent to one node alone."""
LINE_UP, LINE_DOWN = 9, 10
"""Tags: messages of a dialogue, to the server and from it."""


class Transport(Recovering):
    """One rank's end of the wire. Rank 0 is the server; in a world of one rank it is the only worker, too.

    If MPI survives the death of a rank, every method that waits or sends raises RankLost. After that only
    `recover` works.

    Attributes:
        server_hosts: Whether the server hosts silos, too, even if there are other ranks. In a split network
            it hosts the silo with the labels.
    """

    server_hosts = False

    @property
    def is_server(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def workers(self) -> range:
        """The ranks that host silos: all but the server.

        The server is one of them if it is alone, took over from a dead server, or `server_hosts`.
        """
        apart = self.size > 1 and self.origins[0] == 0 and not self.server_hosts
        return range(1, self.size) if apart else range(self.size)

    @property
    def peers(self) -> list[int]:
        """The workers of this rank's node, in order."""
        return [rank for rank in self.nodes.mine if rank in self.workers]

    @property
    def has_doorbell(self) -> bool:
        """Whether other ranks of the node can wake this one."""
        return self._doorbell.works

    def place(self) -> tuple[int, int]:
        """Return this rank's index among the workers of its node, and their number; (0, 0) if it is none."""
        return (self.peers.index(self.rank), len(self.peers)) if self.rank in self.workers else (0, 0)

    def broadcast_record(self, record: bytes | None = None) -> bytes:
        """Send a record from the server, which gives it, to all ranks along a tree of nodes; return it."""
        told = record if self.is_server else self._receive(self.nodes.parent, RECORD)
        self._send_all(told or b"", self.nodes.children + self.nodes.followers, RECORD)
        return told or b""

    def broadcast_vector(
        self, vector: Tensor | None, length: int, dtype: torch.dtype, direct: bool = False
    ) -> Tensor:
        """Send a contiguous vector on the CPU from the server, which gives it, to all ranks.

        Args:
            vector: The vector; None at other ranks.
            length: The length of the vector.
            dtype: The dtype of the vector.
            direct: Whether the server sends the vector to each node itself. It does if a node is `silent`: a
                broadcast among all nodes would never end.

        Returns:
            The vector where this rank can read it. All ranks of a node share it, so a write changes it for
            all. It stays valid until the server sends the next vector of this name.
        """
        if self.size == 1:
            assert vector is not None
            return vector
        if not self.nodes.leads:
            return self.handed_out(length, dtype)
        memory = self.memory
        here = memory.empty(length, dtype) if vector is None else memory.move_to_shared_memory(vector)
        if self.nodes.leaders is not None:
            self._send_to_leaders(here, direct)
        self.hand_out(here)
        return here

    def hand_out(self, vector: Tensor) -> None:
        """Tell the other ranks of the node where a vector lies; the node's leader calls this."""
        self._send_all(self.memory.handle(vector).to_bytes(8, "little"), self.nodes.followers, HANDLE)
        self.sent += vector.nbytes * len(self.nodes.followers)

    def handed_out(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return the vector that the node's leader hands out."""
        handle = int.from_bytes(self._receive(self.nodes.leader, HANDLE)[:8], "little")
        self.received += length * dtype.itemsize
        try:
            return self._attach(self.nodes.leader, handle, length, dtype)
        except OSError as error:
            who = f"rank {self.origins[self.nodes.leader]}, which leads this node"
            raise Misled(f"{who}, hands out a vector that cannot be read: {error}") from None

    def _send_to_leaders(self, vector: Tensor, direct: bool) -> None:
        """Send a vector from the server to the leaders of all nodes; they call this together."""
        for where in pieces_of(len(vector), CHUNK_BYTES // vector.itemsize):
            if direct:
                self._send_directly(vector[where])
            else:
                self.wait(self._started(self.nodes.leaders.Ibcast, vector[where], 0))
        self._count(vector.nbytes, outward=self.is_server)

    def _send_directly(self, piece: Tensor) -> None:
        """Send a piece from the server to the leader of each node; do not wait for silent leaders."""
        if not self.is_server:
            self.wait(self._started(self._comm.Irecv, piece, 0, VECTOR))
            return
        leaders = [self.nodes.leader_of(node) for node in range(1, len(self.nodes))]
        underway = [(rank, self._started(self._comm.Isend, piece, rank, VECTOR)) for rank in leaders]
        until = self._limit()
        left = [one for rank, one in underway if not self.wait(one, 0.0 if rank in self.silent else until)]
        self._abandoned += [piece, *left] if left else []

    def report(self, record: bytes) -> None:
        """Send a record from a worker to the server."""
        self._send_all(record, [0], REPORT)

    def reports(self, is_stale: Callable[[bytes], bool] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield (rank, record) as reports arrive at the server, one from each other rank.

        Args:
            is_stale: Returns whether a report belongs to an earlier exchange. Up to `STALE` such reports of a
                rank are dropped.
        """
        awaited, dropped = set(range(1, self.size)), Counter[int]()
        while awaited:
            early = next((rank for rank in awaited if self._early[rank]), 0)
            if not (found := (early, self._early[early].popleft()) if early else self.next_report()):
                return
            rank, record = found
            if rank not in awaited:  # it reported again, for the next call
                self._early[rank].append(record)
            elif is_stale and dropped[rank] < STALE and is_stale(record):
                dropped[rank] += 1
            else:
                awaited.remove(rank)
                yield rank, record

    def next_report(
        self, until: float | None = None, longest: Mapping[int, int] | None = None
    ) -> tuple[int, bytes] | None:
        """Return the next report as (rank, record), None if none comes in time.

        Args:
            until: The time in seconds, on the clock of `time.perf_counter`.
            longest: Bytes that each rank may send; a longer report counts as empty.
        """
        return self._next(None, REPORT, until, longest or {})

    def say(self, line: bytes, rank: int) -> None:
        """Send a message of a dialogue and continue at once."""
        self.post(rank, line, LINE_DOWN if self.is_server else LINE_UP)

    def hear(self, rank: int, limit: int) -> bytearray:
        """Return a rank's next message of a dialogue; one of more than `limit` bytes counts as empty."""
        found = self._next_buffer(rank, LINE_UP if self.is_server else LINE_DOWN, None, limit)
        assert found is not None
        return found[1]

    def done(self, serial: int) -> None:
        """Tell the node's leader that this worker's share of a sum is made."""
        if not self.nodes.leads:
            self._send_all(serial.to_bytes(8, "little"), [self.nodes.leader], DONE)

    def await_done(self, workers: Sequence[int], serial: int, seconds: float | None = None) -> set[int]:
        """Wait until these workers of the node have made their shares; the node's leader calls this.

        Args:
            workers: Workers of the node; this rank itself is skipped.
            serial: The serial number of the exchange.
            seconds: How long to wait; by default the time of `limit_waits`.

        Returns:
            The workers that were late.
        """
        until = self._limit() if seconds is None else self.platform.clock() + seconds
        self._late = {one for one in workers if one != self.rank and not self._has_done(one, serial, until)}
        return set(self._late)

    def _has_done(self, rank: int, serial: int, until: float | None) -> bool:
        return any(int.from_bytes(one[:8], "little") == serial for one in self._messages(rank, DONE, until))

    def sum(self, piece: Tensor, nodes: Sequence[int]) -> Tensor:
        """Return the sum of a float64 or int64 vector over some nodes, the server's first.

        The leader of each of these nodes calls this. Only the server's result counts.

        Whole pieces travel along a binomial tree. The tree sets the order of addition, but the callers'
        summands add up to the same bits in any order. If a node sends no piece in time, or one of another
        length, the sum is NaN, or 0 for int64. After that nothing is received from a late node.
        """
        total, me, step = piece, nodes.index(self.nodes.number), 1
        while step < len(nodes):
            if me & step:
                self._send_sum(total, self.nodes.leader_of(nodes[me - step]))
                break
            if me + step < len(nodes):
                total = self._add_sum(total, self.nodes.leader_of(nodes[me + step]), depth=step.bit_length())
            step *= 2
        return total

    def _send_sum(self, total: Tensor, parent: int) -> None:
        request = self._started(self._comm.Isend, total, parent, SUM)
        if not self.wait(request, self._limit()):
            self._abandoned += [request, total]
        self.sent += total.nbytes

    def _add_sum(self, total: Tensor, child: int, depth: int) -> Tensor:
        """Add the sum of a child node, which waits for `depth` levels of nodes below it."""
        if child not in self.silent:  # + 1: it waits for the ranks of its own node, too
            until = self.platform.clock() + (depth + 1) * self.transfer_timeout
            found = self._next_buffer(child, SUM, until, limit=total.nbytes)
            if found and len(found[1]) == total.nbytes:
                return torch.frombuffer(found[1], dtype=total.dtype).add_(total)
            if not found:  # a late piece would be mistaken for another sum
                self.silent.add(child)
        return torch.full_like(total, math.nan) if total.is_floating_point() else torch.zeros_like(total)

    def read(self, rank: int, handle: int, length: int, dtype: torch.dtype) -> Tensor:
        """Return the vector that a rank of this node, maybe this rank, has under this handle."""
        return self._attach(rank, handle, length, dtype)

    def _attach(self, rank: int, handle: int, length: int, dtype: torch.dtype) -> Tensor:
        try:
            return self.memory.attach(self.nodes.neighbours[rank].process, handle, length, dtype)
        except OSError:  # a dead process has no files
            self._watch.wait_for_failure()
            raise

    def _count(self, nbytes: int, outward: bool) -> None:
        if outward:
            self.sent += nbytes * len(self.nodes.children)
        else:
            self.received += nbytes
