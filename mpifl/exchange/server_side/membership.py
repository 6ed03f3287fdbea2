"""The server's knowledge of ranks and silos: who hosts which silo, which silos may move, who answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from mpifl.exchange.server_side.admission import Refusal
from mpifl.wire import Reply, Report, Request
from mpifl.wire.launching import renumbered


class Membership:
    """Which rank hosts which silo; nothing else at the server remembers it.

    Attributes:
        placed: The silos of each worker.
        population: How many silos there are.
        unavailable: Silos that no living rank can host.
        stateful: Silos that keep state: another rank needs a checkpoint to take them over.
        pinned: Silos that cannot move: they must `stay`, or another rank failed to read their shard or state.
        timed_out: Ranks that did not answer the last request in time.
        refused: Ranks whose answer to the last request was refused.
        silent: Ranks that did not hand over a sum in time; nobody waits for them until they answer again.
        about: How each worker described itself when it opened its shards.
        stay: Whether each silo must stay at its rank, since only its site has its secrets.
    """

    def __init__(self, placed: Mapping[int, Sequence[int]], *, stay: bool = False) -> None:
        self.placed = {rank: set(silos) for rank, silos in placed.items()}
        self.stay = stay
        self.population = sum(len(silos) for silos in placed.values())
        self.unavailable: set[int] = set()
        self.stateful: set[int] = set()
        self.pinned = {silo for silos in placed.values() for silo in silos} if stay else set()
        self.timed_out: set[int] = set()
        self.refused: set[int] = set()
        self.silent: set[int] = set()
        self.about: dict[int, dict[str, str]] = {}

    @property
    def unreliable(self) -> set[int]:
        """The ranks whose last answer was late or refused; they relay nothing in the next request.

        A rank that sent too much, for example, still waits until somebody takes it.
        """
        return self.timed_out | self.silent | self.refused

    @property
    def responsive(self) -> list[int]:
        """The workers that answered the last request in time; silos may move to them."""
        return [rank for rank in self.placed if rank not in self.timed_out]

    @property
    def homes(self) -> dict[int, int]:
        """The rank of each silo."""
        return {silo: rank for rank, silos in self.placed.items() for silo in silos}

    @property
    def undrawn(self) -> set[int]:
        """The silos that no round draws. If silos must stay, it is empty: sites draw, too, and from all."""
        return set() if self.stay else self.unavailable

    def available(self, silos: Iterable[int]) -> list[int]:
        """Return the silos among these that some rank hosts or can host."""
        return [silo for silo in silos if silo not in self.unavailable]

    def mark_unavailable(self, silos: Iterable[int]) -> None:
        """Record which silos no living rank can host; all others count as hosted."""
        self.unavailable = set(silos)

    def answerable(self, request: Request, rank: int) -> set[int]:
        """Return the silos that a rank may answer for: its own of the cohort, and those that move to it.

        In an inventory a rank may name any silo; if silos must stay, only its own.
        """
        if not request.addressed:
            return self.placed.get(rank, set()) if self.stay else set(range(self.population))
        own = self.placed.get(rank, set()).difference(request.reassigned).intersection(request.cohort)
        return own | {silo for silo, home in request.reassigned.items() if home == rank}

    def most_of(self, request: Request, rank: int) -> int:
        """Return how many silos a rank may answer for at most."""
        if not request.addressed:
            return self.population
        return len(self.placed.get(rank, ())) + len(request.reassigned)

    def missing(self, request: Request) -> list[int]:
        """Return the silos of a request whose ranks did not answer in time."""
        silos = {silo for rank in self.timed_out for silo in self.answerable(request, rank)}
        return sorted(silos & self.stateful if request.only_stateful else silos)

    def record(self, request: Request, reports: Mapping[int, Report]) -> None:
        """Record which reports were refused, and what ranks say about themselves and the silos they host."""
        self.refused = {rank for rank, report in reports.items() if isinstance(report, Refusal)}
        if request.introduces:
            self.about |= {rank: report.about for rank, report in reports.items() if report.about}
        if not request.addressed:
            workers = reports.keys() & self.placed.keys()
            self.placed |= {rank: {reply.silo for reply in reports[rank].headers} for rank in workers}

    def commit(
        self, assignment: Mapping[int, int], accepted: Collection[int], headers: Sequence[Reply]
    ) -> None:
        """Record which silos have moved, which could not move, and which keep state now.

        Args:
            assignment: The new rank of each silo that should move.
            accepted: The silos that answered without a fault.
            headers: The replies of all silos.
        """
        for silo in assignment.keys() & set(accepted):
            for silos in self.placed.values():
                silos.discard(silo)
            self.placed[assignment[silo]].add(silo)
        self.stateful |= {header.silo for header in headers if header.keeps}
        for header in headers:
            if header.fault is not None and assignment.get(header.silo, -1) not in {-1, *self.timed_out}:
                self.pinned.add(header.silo)

    def renumber(self, workers: Iterable[int], ranks: Mapping[int, int]) -> None:
        """Note a death: the survivors have new ranks, and silos may have been moving.

        Args:
            workers: The ranks that host silos from now on; the next inventory tells which silos.
            ranks: The new rank of each survivor by its old one.
        """
        hosted = {ranks[rank]: silos for rank, silos in self.placed.items() if rank in ranks}
        self.placed = {rank: hosted.get(rank, set()) for rank in workers}
        self.timed_out = renumbered(self.timed_out, ranks)
        self.refused = renumbered(self.refused, ranks)
        self.silent = renumbered(self.silent, ranks)
        self.about = {ranks[rank]: about for rank, about in self.about.items() if rank in ranks}
