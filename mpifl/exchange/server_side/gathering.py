"""Gathering of all ranks' reports at the server: whom it waits for, and the faults of late ranks' silos."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator

from mpifl.common import ranks_named
from mpifl.common.machine import signals
from mpifl.exchange.server_side.admission import ExpectedUpdates, screened
from mpifl.exchange.server_side.membership import Membership
from mpifl.exchange.server_side.report_reading import Refused, longest_report, read
from mpifl.sums import Aggregator
from mpifl.wire import Done, Reply, Report, Request, Transport

REMINDER = 60.0
"""Seconds after which the user is told which ranks the server waits for."""


class ReportGathering:
    """Waits for reports, and checks them."""

    def __init__(self, transport: Transport, membership: Membership, deadline: float | None) -> None:
        self._transport, self._membership = transport, membership
        self._deadline = deadline
        self._tell: Callable[[str], None] = lambda note: print(note, file=sys.stderr, flush=True)

    def listen(self, tell: Callable[[str], None]) -> None:
        """Set the function that tells the user which ranks the server waits for."""
        self._tell = tell

    def collect(
        self, request: Request, own: Report, expected: ExpectedUpdates, aggregation: Aggregator
    ) -> dict[int, Report]:
        """Bring the reports of all ranks to the server and check them there; return them by rank.

        Other ranks only send their report, and get it back.

        Args:
            request: The request that the reports answer.
            own: This rank's report.
            expected: What the server knows in advance about the answers.
            aggregation: The aggregator of the request, which checks its own records.
        """
        if not self._transport.is_server:
            self._transport.report(own.encode())
            return {self._transport.rank: own}

        deadline = self._deadline if request.has_deadline else None
        arriving = itertools.chain([(self._transport.rank, own)], self.reports(request, deadline))
        heard = ((rank, self._compared(rank, came, own)) for rank, came in arriving)
        reports = {rank: self._checked(rank, came, request, expected, aggregation) for rank, came in heard}
        if any(report.interrupted for report in reports.values()):
            signals.note()
        reports = {rank: one for rank, one in reports.items() if rank not in self._membership.timed_out}
        self._membership.record(request, reports)
        return reports

    def _compared(self, rank: int, came: Report | Refused, own: Report) -> Report | Refused:
        """Refuse the report of a rank that received other records than the server sent."""
        if isinstance(came, Refused) or came.heard == own.heard:
            return came
        way, at = [], rank
        while at := self._transport.nodes.parent_of(at):
            way.append(self._transport.origins[at])
        relays = f"; {ranks_named(way)} relayed it" if way else ""
        return Refused(f"it was told other than what the server said{relays}")

    def _checked(
        self,
        rank: int,
        came: Report | Refused,
        request: Request,
        expected: ExpectedUpdates,
        aggregation: Aggregator,
    ) -> Report:
        silos = self._membership.answerable(request, rank)
        accept = functools.partial(aggregation.accept, self._transport, rank)
        who = f"rank {self._transport.origins[rank]}"
        return screened(came, request, who, silos, expected, accept)

    def missing(self, request: Request) -> list[Reply]:
        """Return the faults of the silos whose ranks did not answer in time."""
        fault = f"no answer within {self._deadline} s" if self._deadline else "its rank fell silent"
        return [Done(silo=silo, fault=fault, passing=True) for silo in self._membership.missing(request)]

    def reports(self, request: Request, deadline: float | None) -> Iterator[tuple[int, Report | Refused]]:
        """Yield (rank, report) of the other ranks as the reports arrive; drop reports of earlier requests.

        At the end the membership knows which ranks have timed out, and which are no longer silent.

        Args:
            request: The request that the reports answer.
            deadline: Seconds after which ranks without a report have timed out; None to wait for all.
        """
        serial, silent = request.serial, self._membership.silent
        awaited = set(range(1, self._transport.size)) - silent - self._transport.silent
        for rank, came in self._arriving(request, awaited, deadline):
            if isinstance(came, Report) and came.serial > serial:
                came = Refused("it answers a request that was not made yet")
            silent.discard(rank)
            silent |= self._given_up(rank, came) & awaited
            awaited -= silent
            if isinstance(came, Refused) or came.serial == serial:
                awaited.discard(rank)
                yield rank, came
        self._membership.timed_out = self._cut_off(awaited | silent | self._transport.silent)

    def _given_up(self, rank: int, came: Report | Refused) -> set[int]:
        """Return the ranks that hang according to their node's leader; none if there is a deadline.

        A deadline finds such ranks by itself.
        """
        nodes = self._transport.nodes
        if self._deadline or isinstance(came, Refused) or nodes.leader_of(nodes.of[rank]) != rank:
            return set()
        neighbours = {one for one, node in enumerate(nodes.of) if node == nodes.of[rank]} - {rank}
        return neighbours.intersection(came.hanging)

    def _cut_off(self, missing: Collection[int]) -> set[int]:
        """Return the ranks that are missing, and all ranks of a node whose leader is missing."""
        nodes = self._transport.nodes
        return {
            rank
            for rank in range(self._transport.size)
            if not {rank, nodes.leader_of(nodes.of[rank])}.isdisjoint(missing)
        }

    def _arriving(
        self, request: Request, awaited: Collection[int], deadline: float | None
    ) -> Iterator[tuple[int, Report | Refused]]:
        now = time.perf_counter()
        until, remind = now + (deadline or math.inf), now + REMINDER
        silos = {rank: self._membership.most_of(request, rank) for rank in range(self._transport.size)}
        longest = {rank: longest_report(request, most) for rank, most in silos.items()}
        left = self._transport.size  # reports read after the deadline: they may have come before it
        while awaited and left:
            if found := self._transport.next_report(min(until, remind), longest):
                left -= time.perf_counter() > until
                yield found[0], read(found[1], silos[found[0]])
            elif time.perf_counter() >= until:
                return
            else:
                names = [self._transport.origins[rank] for rank in sorted(awaited)]
                self._tell(f"waiting for {ranks_named(names)}")
                remind = math.inf
