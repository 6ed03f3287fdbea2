"""One rank's end of the wire: records from rank to rank,
vectors through a node's memory, and by MPI between nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from mpifl.common import Misled
from mpifl.wire.memory import pieces_of
from mpifl.wire.recovering import Recovering

STALE = 16  # reports of what was before that are dropped of each rank
CHUNK_BYTES = 1 << 24
"""Bytes of a vector that travel between nodes at a time; Open MPI 5 cannot count to 2^31."""
RECORD, REPORT, HANDLE, SUM, DONE, VECTOR = range(1, 7)
"""Tags: what the server tells, what workers report, where a vector lies, partial sums, a share of a sum is
made, a vector sent to one node alone."""
LINE_UP, LINE_DOWN = 9, 10
"""Tags: lines of a dialogue, to the server and from it."""


class Transport(Recovering):
    """One rank's end of the wire. Rank 0 is the server; in a world of one rank it is the only worker, too.

    Whatever waits or sends raises RankLost when a rank dies that MPI survives; after that nothing works but
    `recover`.

    Attributes:
        server_hosts: Whether the server hosts silos beside others, as the holder of labels does.
    """

    server_hosts = False

    @property
    def is_server(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def workers(self) -> range:
        """The ranks that host silos: all but the server's,
        unless it is alone, took over from one that died, or hosts silos as others do."""
        apart = self.size > 1 and self.origins[0] == 0 and not self.server_hosts
        return range(1, self.size) if apart else range(self.size)

    @property
    def peers(self) -> list[int]:
        """The workers of this rank's node, in order."""
        return [rank for rank in self.nodes.mine if rank in self.workers]

    @property
    def has_doorbell(self) -> bool:
        """Whether this rank can be woken by those of its node."""
        return self._doorbell.works

    def place(self) -> tuple[int, int]:
        """Return this rank's place among the workers of its node and how many they are;
        the server has none."""
        return (self.peers.index(self.rank), len(self.peers)) if self.rank in self.workers else (0, 0)

    def broadcast_record(self, record: bytes | None = None) -> bytes:
        """Send a record from the server (who gives it) to all ranks (who receive it),
        along a tree of the nodes."""
        told = record if self.is_server else self._receive(self.nodes.parent, RECORD)
        self._send_all(told or b"", self.nodes.children + self.nodes.followers, RECORD)
        return told or b""

    def broadcast_vector(
        self, vector: Tensor | None, length: int, dtype: torch.dtype, direct: bool = False
    ) -> Tensor:
        """Send a contiguous vector on the CPU from the server (who gives it) to all ranks.

        Args:
            vector: What is sent; None elsewhere.
            length: Of the vector.
            dtype: Of the vector.
            direct: Whether the server sends it to each node itself, since one of them is `silent`: a
                broadcast among all of them would come to no end.

        Returns:
            The vector where this rank can read it. It is one for all ranks of a node: whoever writes to it
            changes it for all. It stays until the server sends the next of its name.
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
        """Tell the other ranks of the node, as its leader, where a vector lies."""
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
        """Send a vector from the server to the leaders of all nodes, who call this together."""
        for where in pieces_of(len(vector), CHUNK_BYTES // vector.itemsize):
            if direct:
                self._send_directly(vector[where])
            else:
                self.wait(self._started(self.nodes.leaders.Ibcast, vector[where], 0))
        self._count(vector.nbytes, outward=self.is_server)

    def _send_directly(self, piece: Tensor) -> None:
        """Send a piece from the server to the leader of each node; wait for those that are not silent."""
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
        """Yield (rank, record) as the workers' reports arrive at the server, one from each; some that
        `is_stale` tells to be of what was before are dropped."""
        awaited, dropped = set(range(1, self.size)), Counter[int]()
        while awaited:
            early = next((rank for rank in awaited if self._early[rank]), 0)
            if not (found := (early, self._early[early].popleft()) if early else self.next_report()):
                return
            rank, record = found
            if rank not in awaited:  # who reports again before the others have once waits its turn
                self._early[rank].append(record)
            elif is_stale and dropped[rank] < STALE and is_stale(record):
                dropped[rank] += 1
            else:
                awaited.remove(rank)
                yield rank, record

    def next_report(
        self, until: float | None = None, longest: Mapping[int, int] | None = None
    ) -> tuple[int, bytes] | None:
        """Return the next report that comes, as (rank, record); None if none has come in time.

        Args:
            until: The time in seconds, as `time.perf_counter` has it.
            longest: Bytes that each rank may send; a longer report stands as empty.
        """
        return self._next(None, REPORT, until, longest or {})

    def say(self, line: bytes, rank: int) -> None:
        """Send a line of a dialogue and go on at once."""
        self.post(rank, line, LINE_DOWN if self.is_server else LINE_UP)

    def hear(self, rank: int, limit: int) -> bytearray:
        """Return the next line that a rank says; one of more than `limit` bytes is empty."""
        found = self._next_buffer(rank, LINE_UP if self.is_server else LINE_DOWN, None, limit)
        assert found is not None
        return found[1]

    def done(self, serial: int) -> None:
        """Let the node's leader know that this worker's share of a sum is made."""
        if not self.nodes.leads:
            self._send_all(serial.to_bytes(8, "little"), [self.nodes.leader], DONE)

    def await_done(self, workers: Sequence[int], serial: int, seconds: float | None = None) -> set[int]:
        """Wait, as the node's leader, until these workers of the node, this rank apart, have made their
        shares.

        Returns:
            Those that have not in so many seconds, by default in the time of `limit_waits`.
        """
        until = self._limit() if seconds is None else self.ground.clock() + seconds
        self._late = {one for one in workers if one != self.rank and not self._has_done(one, serial, until)}
        return set(self._late)

    def _has_done(self, rank: int, serial: int, until: float | None) -> bool:
        return any(int.from_bytes(one[:8], "little") == serial for one in self._messages(rank, DONE, until))

    def sum(self, piece: Tensor, nodes: Sequence[int]) -> Tensor:
        """Return the sum of a float64 or int64 vector over some nodes, the server's first.

        Each node's leader calls this.

        A binomial tree of point-to-point messages: whole pieces cross at once. The order of addition is that
        of the tree; the callers' summands add up to the same bits in any. Only the server's result counts.
        It is NaN, or 0 as a whole number, where a node has sent one of another length, or none in time.
        Nothing is taken any more from a node that was late.
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
        """Add what a node sends that itself waits for others, `depth` levels of them."""
        if child not in self.silent:  # it waits for its own node as well
            until = self.ground.clock() + (depth + 1) * self.transfer_timeout
            found = self._next_buffer(child, SUM, until, limit=total.nbytes)
            if found and len(found[1]) == total.nbytes:
                return torch.frombuffer(found[1], dtype=total.dtype).add_(total)
            if not found:  # what comes later would be taken for another sum
                self.silent.add(child)
        return torch.full_like(total, math.nan) if total.is_floating_point() else torch.zeros_like(total)

    def read(self, rank: int, handle: int, length: int, dtype: torch.dtype) -> Tensor:
        """Return the vector that a rank of this node, or this one itself, has under this handle."""
        return self._attach(rank, handle, length, dtype)

    def _attach(self, rank: int, handle: int, length: int, dtype: torch.dtype) -> Tensor:
        try:
            return self.memory.attach(self.nodes.neighbours[rank].process, handle, length, dtype)
        except OSError:  # a process that has died has no files
            self._watch.wait_for_failure()
            raise

    def _count(self, nbytes: int, outward: bool) -> None:
        if outward:
            self.sent += nbytes * len(self.nodes.children)
        else:
            self.received += nbytes
