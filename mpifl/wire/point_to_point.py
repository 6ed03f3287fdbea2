"""Messages from rank to rank, and waiting for them.

Every wait looks, then sleeps ever longer until its doorbell rings, so that ranks that outnumber the cores
leave them to training, under every MPI and without any setting.
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
from mpifl.wire.ground import HERE, Ground
from mpifl.wire.launching import DeathWatch
from mpifl.wire.nodes import Nodes, discover_nodes

EAGER = 4000
"""Bytes of a message up to which its sender need not wait for the receiver."""
PIECE, ATTESTED = 16, 17
"""Tags: bytes that are posted; the digest of a record that others relay."""
SHORTEST_POLL, LONGEST_POLL, SHORTEST_SLEEP, LONGEST_SLEEP = 1e-4, 1e-3, 2e-3, 2e-2
"""Seconds between two looks: at first and at last where other nodes cannot notify this rank; at first and at
last where all can. A look that finds nothing takes 40 us of a core that another rank could train on."""
MOST_STALE = 1000
"""Messages of earlier exchanges that are passed over in one wait. A rank that was late takes several waits to
come to its latest; one that sends without end holds nobody up."""
RECORD_LIMIT = 64 << 20
"""Bytes of the largest record that is received."""
TRANSFER_TIMEOUT = "MPIFL_TRANSFER_TIMEOUT"
"""Environment variable: seconds to wait for a rank that computes
nothing any more and has only to hand over; 300."""


class PointToPoint:
    """What one rank sends to others and receives.

    Attributes:
        transfer_timeout: Seconds to wait for a rank that has only to hand over.
        sent: Bytes that this rank has handed to MPI, or put where its node reads them.
        received: Bytes that came.
        nodes: The world, node by node.
        ground: What the wire stands on.
    """

    ground: Ground = HERE
    _timeout: float | None = None
    transfer_timeout = 300.0

    def __init__(self, comm: Any, ranks_per_node: int | None, ground: Ground = HERE) -> None:
        self.transfer_timeout = float(os.environ.get(TRANSFER_TIMEOUT, self.transfer_timeout))
        self._comm, self.ground = comm, ground
        self._watch = DeathWatch(comm, ground)
        self._abandoned: list[Any] = []
        self._underway: dict[int, list[Any]] = {}  # what ranks that hang have not taken yet
        self._late: set[int] = set()  # ranks that have not done what they were waited for last
        self._posted: list[tuple[Any, Any]] = []
        self.sent = self.received = 0
        self._doorbell = ground.doorbell()
        self.nodes: Nodes = discover_nodes(comm, ground, self._doorbell, ranks_per_node)

    @property
    def _sleeps(self) -> tuple[float, float]:
        """Seconds between two looks for a message, at first and at last."""
        if len(self.nodes) > 1:
            return SHORTEST_POLL, LONGEST_POLL
        return SHORTEST_SLEEP if self._doorbell.works else SHORTEST_POLL, LONGEST_SLEEP

    @property
    def timeout(self) -> float | None:
        """Seconds after which what a rank does not take is left on its way to it;
        None for `transfer_timeout`."""
        return self._timeout

    def limit_waits(self, timeout: float | None) -> None:
        """Set the `timeout`."""
        self._timeout = timeout

    def begin_count(self) -> None:
        """Count the bytes that are sent and received from here on."""
        self.sent = self.received = 0

    def wait(self, request: Any, until: float | None = None) -> bool:
        """Wait until an MPI request is done, or until the time comes; return whether it is done."""
        try:
            return bool(self._until(request.Test, until=until))
        except RankLost:
            self._abandoned.append(request)  # MPI may still write to its buffer, or read it
            raise

    def post(self, rank: int, content: bytes, tag: int = PIECE) -> None:
        """Send bytes to a rank and go on at once; it takes them in the order in which they were posted."""
        buffer = np.frombuffer(content, np.uint8)
        self._posted = [one for one in self._posted if not self.wait(one[0], 0.0)]
        self._posted.append((self._started(self._comm.Isend, buffer, rank, tag), buffer))
        self._notify([rank])
        self.sent += len(content)

    def take(self, rank: int) -> bytes:
        """Wait for the next bytes that a rank has posted here."""
        return self._receive(rank, PIECE)

    def receive_into(self, into: Tensor, rank: int, tag: int, until: float) -> Any:
        """Begin to receive a rank's next message into a vector.

        Returns:
            MPI's request; None if there is no message by the time `until`. One of another length is not
            received, and the vector is NaN.
        """
        mpi = self.ground.mpi
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
        """Return the greatest of the numbers that all ranks give; all call this together."""
        given = np.zeros(self._comm.Get_size(), np.int64)
        self.wait(self._started(self._comm.Iallgather, np.array([number], np.int64), given))
        return int(given.max())

    def abandon(self, *held: Any) -> None:
        """Keep for ever what MPI may still read, or write to."""
        self._abandoned += held

    def attest(self, record: bytes, ranks: Sequence[int]) -> None:
        """Send ranks the digest of a record that others relay to them."""
        self._send_all(hashlib.sha256(record).digest(), ranks, ATTESTED)

    def attested(self, record: bytes, rank: int) -> bytes:
        """Return a record as the rank that it comes from attests it.

        Raises:
            Misled: it has another digest.
        """
        if self._receive(rank, ATTESTED) != hashlib.sha256(record).digest():
            raise Misled(f"what rank {self.nodes.parent} relays is not what rank {rank} sent")
        return record

    def await_taken(self) -> None:
        """Wait until others have taken all that was posted here."""
        for request, _ in self._posted:
            self.wait(request)
        self._posted = []

    def _started(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function of MPI returns."""
        try:
            return act(*arguments)
        except self._watch.error as error:
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> Exception:
        """Return the error, as RankLost if that is what it means,
        with the node's ranks awake to hear of it."""
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
        """Yield what comes from a rank by the time `until`, and no more than `MOST_STALE` messages."""
        for _ in range(MOST_STALE):
            if not (found := self._next_buffer(rank, tag, until, limit)):
                return
            yield found[1]

    def _next_buffer(
        self, rank: int | None, tag: int, until: float | None, limit: int | Mapping[int, int]
    ) -> tuple[int, bytearray] | None:
        """Receive the next message; one of more than `limit` bytes is not, and stands as empty.

        The limit may be another for each rank, by default `RECORD_LIMIT`.
        """
        mpi = self.ground.mpi
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
            self._notify([source])  # its sender waits for this
        return source, record

    def _next_message(self, source: int, tag: int, status: Any, until: float | None) -> Any:
        def arrived() -> Any:
            return self._comm.Improbe(source, tag, status) or self._comm.Improbe(source, tag, status)

        # Open MPI's first look only has it make progress
        return self._until(arrived, self._sleeps, until)

    def _notify(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            if rank in self.nodes.neighbours:
                self._doorbell.notify(self.nodes.neighbours[rank].token)

    def _limit(self) -> float:
        return self.ground.clock() + (self.transfer_timeout if self._timeout is None else self._timeout)

    def _until(
        self,
        done: Callable[[], Any],
        sleeps: tuple[float, float] = (SHORTEST_POLL, LONGEST_POLL),
        until: float | None = None,
    ) -> Any:
        poll_interval, longest = sleeps
        try:
            while not (result := done()) and (until is None or self.ground.clock() < until):
                if poll_interval >= LONGEST_POLL:
                    self._watch.check()
                self._doorbell.wait(poll_interval)
                poll_interval = min(1.25 * poll_interval, longest)
        except (RankLost, self._watch.error) as error:
            raise self._translated(error) from None
        return result
