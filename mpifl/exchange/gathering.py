"""The reports of all ranks as they come to the server, and who is waited for."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from mpifl.common import ranks_named
from mpifl.exchange.admission import Refused, read
from mpifl.wire import Report, Transport

REMINDER = 60.0
"""Seconds after which the user is told who is waited for."""


class Gathering:
    """Waits for reports.

    Attributes:
        late: Ranks that had not answered the last request in time.
        silent: Ranks that fell silent when they had only to hand over; nothing waits for them until they answer again.
        tell: Lets the user know.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.late: set[int] = set()
        self.silent: set[int] = set()
        self.tell: Callable[[str], None] = lambda note: print(note, file=sys.stderr, flush=True)

    def reports(self, serial: int, deadline: float | None) -> Iterator[tuple[int, Report | Refused]]:
        """Yield what each other rank reports of the request with this serial number, as it comes.

        Args:
            serial: Counts the requests; a report of an earlier one is dropped.
            deadline: Seconds after which the ranks that have not reported are `late`; None to wait for all.
        """
        awaited = set(range(1, self._transport.size)) - self.silent - self._transport.silent
        for rank, came in self._arriving(awaited, deadline):
            if isinstance(came, Report) and came.serial > serial:
                came = Refused("it answers a request that was not made yet")
            self.silent.discard(rank)
            if isinstance(came, Refused) or came.serial == serial:
                awaited.discard(rank)
                yield rank, came
        missing, nodes = awaited | self.silent | self._transport.silent, self._transport.nodes
        self.late = {rank for rank in range(self._transport.size) if missing & {rank, nodes.leader_of(nodes.of[rank])}}

    def renumber(self, ranks: Mapping[int, int]) -> None:
        """Take note of the ranks that survivors of a death have from now on, by their old ones."""
        self.silent = {ranks[rank] for rank in self.silent if rank in ranks}

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
