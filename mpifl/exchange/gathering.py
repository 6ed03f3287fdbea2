"""The reports of all ranks as they come to the server, and who is waited for."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Iterator

from mpifl.common import ranks_named
from mpifl.exchange.admission import Refused, read
from mpifl.exchange.membership import Membership
from mpifl.wire import Report, Transport

REMINDER = 60.0
"""Seconds after which the user is told who is waited for."""


class Gathering:
    """Waits for reports.

    Attributes:
        tell: Lets the user know.
    """

    def __init__(self, transport: Transport, membership: Membership) -> None:
        self._transport, self._membership = transport, membership
        self.tell: Callable[[str], None] = lambda note: print(note, file=sys.stderr, flush=True)

    def reports(self, serial: int, deadline: float | None) -> Iterator[tuple[int, Report | Refused]]:
        """Yield what each other rank reports of the request with this serial number, as it comes.

        At the end the membership knows who has timed out, and who is silent no more.

        Args:
            serial: Counts the requests; a report of an earlier one is dropped.
            deadline: Seconds after which the ranks that have not reported have timed out; None to wait for all.
        """
        silent = self._membership.silent
        awaited = set(range(1, self._transport.size)) - silent - self._transport.silent
        for rank, came in self._arriving(awaited, deadline):
            if isinstance(came, Report) and came.serial > serial:
                came = Refused("it answers a request that was not made yet")
            silent.discard(rank)
            if isinstance(came, Refused) or came.serial == serial:
                awaited.discard(rank)
                yield rank, came
        missing, nodes = awaited | silent | self._transport.silent, self._transport.nodes
        everyone = range(self._transport.size)
        self._membership.timed_out = {rank for rank in everyone if missing & {rank, nodes.leader_of(nodes.of[rank])}}

    def _arriving(self, awaited: Collection[int], deadline: float | None) -> Iterator[tuple[int, Report | Refused]]:
        now = time.perf_counter()
        until, remind = now + (deadline or math.inf), now + REMINDER
        while awaited:
            if found := self._transport.next_report(min(until, remind)):
                yield found[0], read(found[1])
            elif time.perf_counter() >= until:
                return
            else:
                self.tell(f"waiting for {ranks_named([self._transport.origins[rank] for rank in sorted(awaited)])}")
                remind = math.inf
