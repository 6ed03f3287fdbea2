"""Messages from rank to rank, and waiting for them.

Every wait polls, then sleeps longer and longer until its doorbell rings. So waiting ranks leave the cores to
training if there are more ranks than cores. This works under every MPI and needs no setting.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mpifl.common import Misled, RankLost
from mpifl.wire.launching import DeathWatch
from mpifl.wire.nodes import Nodes, discover_nodes
from mpifl.wire.rank_platform import HERE, Platform

EAGER = 4000
"""Bytes of the longest message whose sender need not wait for the receiver."""
PIECE, ATTESTED = 16, 17
"""Tags: bytes that are posted; the digest of a record that other ranks relay."""
SHORTEST_POLL, LONGEST_POLL, SHORTEST_SLEEP, LONGEST_SLEEP = 1e-4, 1e-3, 2e-3, 2e-2
"""Seconds between two polls: the first pause and the longest, for several nodes and for one. Ranks of other
nodes cannot notify this one. A poll that finds nothing takes 40 us of a core that could train."""
MOST_STALE = 1000
"""Messages of earlier exchanges that one wait skips at most. It may take several waits to reach the latest
message of a late rank. But a rank that sends without end holds nobody up."""
RECORD_LIMIT = 64 << 20
"""Bytes of the largest record that is received."""
TRANSFER_TIMEOUT = "MPIFL_TRANSFER_TIMEOUT"
"""Environment variable: seconds to wait for a rank that no longer computes and only hands over data; 300."""


class PointToPoint:
    """Sends one rank's messages to others and receives theirs.

    Attributes:
        transfer_timeout: Seconds to wait for a rank that only hands over data.
        sent: Bytes that this rank has handed to MPI, or put in its node's shared memory.
        received: Bytes that this rank has received.
        nodes: The world, node by node.
        platform: The platform below the wire.
    """

    platform: Platform = HERE
    _timeout: float | None = None
    transfer_timeout = 300.0

    def __init__(self, comm: Any, ranks_per_node: int | None, platform: Platform = HERE) -> None:
        self.transfer_timeout = float(os.environ.get(TRANSFER_TIMEOUT, self.transfer_timeout))
        self._comm, self.platform = comm, platform
        self._watch = DeathWatch(comm, platform)
        self._abandoned: list[Any] = []
        self._underway: dict[int, list[Any]] = {}  # sends that hanging ranks have not taken yet
        self._late: set[int] = set()  # ranks that were late in the last wait
        self._posted: list[tuple[Any, Any]] = []
        self.sent = self.received = 0
        self._doorbell = platform.doorbell()
        self.nodes: Nodes = discover_nodes(comm, platform, self._doorbell, ranks_per_node)

    @property
    def _sleeps(self) -> tuple[float, float]:
        """Seconds between two polls for a message: the first and the longest pause."""
        if len(self.nodes) > 1:
            return SHORTEST_POLL, LONGEST_POLL
        return SHORTEST_SLEEP if self._doorbell.works else SHORTEST_POLL, LONGEST_SLEEP

    @property
    def timeout(self) -> float | None:
        """Seconds that a send waits for its receiver before it is left under way.

        None stands for `transfer_timeout`.
        """
        return self._timeout

    def limit_waits(self, timeout: float | None) -> None:
        """Set the `timeout`."""
        self._timeout = timeout

    def begin_count(self) -> None:
        """Count the bytes that are sent and received from here on."""
        self.sent = self.received = 0

    def wait(self, request: Any, until: float | None = None) -> bool:
        """Wait until an MPI request is done, or until a time on the clock; return whether it is done."""
        try:
            return bool(self._until(request.Test, until=until))
        except RankLost:
            self._abandoned.append(request)  # MPI may still read or write its buffer
            raise

    def post(self, rank: int, content: bytes, tag: int = PIECE) -> None:
        """Send bytes to a rank and continue at once; the rank takes them in the order of the posts."""
        buffer = np.frombuffer(content, np.uint8)
        self._posted = [one for one in self._posted if not self.wait(one[0], 0.0)]
        self._posted.append((self._started(self._comm.Isend, buffer, rank, tag), buffer))
        self._notify([rank])
        self.sent += len(content)

    def take(self, rank: int) -> bytes:
        """Wait for the next bytes that a rank has posted to this one, and return them."""
        return self._receive(rank, PIECE)

    def receive_into(self, into: Tensor, rank: int, tag: int, until: float) -> Any:
        """Begin to receive a rank's next message into a vector.

        Returns:
            MPI's request; None if no message comes by the time `until`. A message of another length is not
            received, and the vector becomes NaN.
        """
        mpi = self.platform.mpi
        status = mpi.Status()
        message = self._next_message(rank, tag, status, until)
        if not message:
            return None
        if status.Get_count(mpi.BYTE) != into.nbytes:
            self.abandon(message)
            into.fill_(math.nan)
            return mpi.REQUEST_NULL
        self.received += into.nbytes
        return self._started(message.Irecv, into)

    def greatest(self, number: int) -> int:
        """Return the greatest of the numbers that all ranks give; all ranks call this together."""
        given = np.zeros(self._comm.Get_size(), np.int64)
        self.wait(self._started(self._comm.Iallgather, np.array([number], np.int64), given))
        return int(given.max())

    def abandon(self, *held: Any) -> None:
        """Keep buffers and requests for ever, since MPI may still read or write them."""
        self._abandoned += held

    def attest(self, record: bytes, ranks: Sequence[int]) -> None:
        """Send some ranks the digest of a record that other ranks relay to them."""
        self._send_all(hashlib.sha256(record).digest(), ranks, ATTESTED)

    def attested(self, record: bytes, rank: int) -> bytes:
        """Return a relayed record if it has the digest that its sender attests.

        Args:
            record: The record as it was relayed.
            rank: The rank that first sent it.

        Raises:
            Misled: the record has another digest.
        """
        if self._receive(rank, ATTESTED) != hashlib.sha256(record).digest():
            raise Misled(f"what rank {self.nodes.parent} relays is not what rank {rank} sent")
        return record

    def await_taken(self) -> None:
        """Wait until other ranks have taken everything that this rank has posted."""
        for request, _ in self._posted:
            self.wait(request)
        self._posted = []

    def _started(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of MPI and return its result; translate its errors."""
        try:
            return act(*arguments)
        except self._watch.error as error:
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> Exception:
        """Return an error of MPI, as RankLost if it comes from a death; then wake the ranks of the node."""
        translated = self._watch.translate_error(error)
        if isinstance(translated, RankLost):
            self._notify(list(self.nodes.neighbours))
        return translated

    def _send_all(self, record: bytes, ranks: Sequence[int], tag: int) -> None:
        buffer = np.frombuffer(record, np.uint8)
        requests = {rank: self._started(self._comm.Isend, buffer, rank, tag) for rank in ranks}
        self._notify(ranks)
        until = self._limit()
        for rank, request in requests.items():
            earlier = [one for one in self._underway.pop(rank, []) if not self.wait(one, 0.0)]
            patience = 0.0 if earlier or rank in self._late else until
            if left := earlier + ([] if self.wait(request, patience) else [request]):
                self._underway[rank] = left
        self.sent += len(record) * len(ranks)

    def _receive(self, rank: int, tag: int) -> bytes:
        found = self._next(rank, tag)
        assert found is not None
        return found[1]

    def _next(
        self,
        rank: int | None,
        tag: int,
        until: float | None = None,
        limit: int | Mapping[int, int] = RECORD_LIMIT,
    ) -> tuple[int, bytes] | None:
        found = self._next_buffer(rank, tag, until, limit)
        return (found[0], bytes(found[1])) if found else None

    def _messages(
        self, rank: int, tag: int, until: float | None, limit: int = RECORD_LIMIT
    ) -> Iterator[bytearray]:
        """Yield a rank's messages until the time `until`, at most `MOST_STALE` of them."""
        for _ in range(MOST_STALE):
            if not (found := self._next_buffer(rank, tag, until, limit)):
                return
            yield found[1]

    def _next_buffer(
        self, rank: int | None, tag: int, until: float | None, limit: int | Mapping[int, int]
    ) -> tuple[int, bytearray] | None:
        """Return the next message as (rank, bytes); a message of more than `limit` bytes counts as empty.

        The limit may differ for each rank; its default is then `RECORD_LIMIT`.
        """
        mpi = self.platform.mpi
        status = mpi.Status()
        message = self._next_message(mpi.ANY_SOURCE if rank is None else rank, tag, status, until)
        if not message:
            return None
        source = status.Get_source()
        longest = limit if isinstance(limit, int) else limit.get(source, RECORD_LIMIT)
        if status.Get_count(mpi.BYTE) > longest:
            self._abandoned.append(message)
            return source, bytearray()
        record = bytearray(status.Get_count(mpi.BYTE))
        self.wait(self._started(message.Irecv, record))
        self.received += len(record)
        if len(record) > EAGER:
            self._notify([source])  # the sender waits until its message is taken
        return source, record

    def _next_message(self, source: int, tag: int, status: Any, until: float | None) -> Any:
        def arrived() -> Any:
            return self._comm.Improbe(source, tag, status) or self._comm.Improbe(source, tag, status)

        # twice: in Open MPI the first probe only makes progress
        return self._until(arrived, self._sleeps, until)

    def _notify(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            if rank in self.nodes.neighbours:
                self._doorbell.notify(self.nodes.neighbours[rank].token)

    def _limit(self) -> float:
        return self.platform.clock() + (self.transfer_timeout if self._timeout is None else self._timeout)

    def _until(
        self,
        done: Callable[[], Any],
        sleeps: tuple[float, float] = (SHORTEST_POLL, LONGEST_POLL),
        until: float | None = None,
    ) -> Any:
        poll_interval, longest = sleeps
        try:
            while not (result := done()) and (until is None or self.platform.clock() < until):
                if poll_interval >= LONGEST_POLL:
                    self._watch.check()
                self._doorbell.wait(poll_interval)
                poll_interval = min(1.25 * poll_interval, longest)
        except (RankLost, self._watch.error) as error:
            raise self._translated(error) from None
        return result
