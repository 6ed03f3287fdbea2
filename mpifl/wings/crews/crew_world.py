"""Crews: consecutive ranks of a node that do one rank's work together, led by the first of them.

The world of a training is then the server and the leaders: all else of the wire knows of no crew. Those who
follow hear their leader alone.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from mpifl.common import InputError, RankLost
from mpifl.wire import PIECE, Ground, Memory, PointToPoint, Railway, left_of, split, split_leaders
from mpifl.wire.launching import Watch, joined_in_time, met_or_lost

_OF_WORLD = ("_comm", "_watch", "rank", "size", "origins", "nodes", "_founders")
"""What of a transport is other while there are crews."""


class Crew(PointToPoint):
    """One rank's end of the wire within its crew.

    Attributes:
        leads: Whether it is the first, which is of the federation.
        followers: The others, by their number in the crew, as the leader sees them.
        memory: What the crew shares.
    """

    def __init__(self, comm: Any, name: int, ground: Ground) -> None:
        super().__init__(comm, None, ground)
        self.leads = comm.Get_rank() == 0
        self.followers = range(1, comm.Get_size()) if self.leads else range(0)
        self.memory = Memory(shared=len(self.nodes) == 1, segments=ground.segments)
        self._name = name
        self._readiness: dict[int, str] = {}

    def be_ready(self, problem: str = "") -> None:
        """Let the leader know that this rank can take part, or why not."""
        with contextlib.suppress(RankLost):
            self.post(0, problem.encode())

    def readiness(self, follower: int) -> str:
        """Return why a follower cannot take part, as it has said once; "" if it can."""
        if follower not in self._readiness:
            self._readiness[follower] = self.await_answer(follower).decode()
        return self._readiness[follower]

    def ask(self, follower: int, record: bytes) -> None:
        """Ask a follower for something and go on; if it has died, that is this rank's death."""
        try:
            self.post(follower, record)
        except RankLost:
            self._perish(follower)

    def await_answer(self, follower: int) -> bytes:
        """Return what a follower says next; one that has died, or says nothing in `transfer_timeout`, is this
        rank's death."""
        with contextlib.suppress(RankLost):
            if found := self._next(follower, PIECE, self.ground.clock() + self.transfer_timeout):
                return found[1]
        self._perish(follower)

    def process_of(self, member: int) -> int:
        """Return the process of a member, whose memory can be read."""
        return self.nodes.neighbours[member].process

    def dismiss(self) -> None:
        """Let the followers leave; for all members, of which others do nothing."""
        with contextlib.suppress(RankLost):
            for follower in self.followers:
                self.post(follower, b"")
            self.await_taken()

    def _perish(self, follower: int) -> NoReturn:
        """End as a rank that dies: MPI, or the launcher, then lets the others know."""
        who = f"rank {self._name}: rank {self._name + follower} of its crew has died or hangs"
        print(f"{who}; the crew ends", file=sys.stderr, flush=True)
        for member in self.followers:
            self.ground.kill(self.process_of(member))
        self.ground.kill(self.ground.process)
        raise SystemExit  # not reached


class Crewed(Railway):
    """A rank's end of the wire whose world may become that of server and leaders.

    Attributes:
        crew: This rank's, if it is of one.
    """

    rank: int
    size: int
    memory: Memory
    origins: Sequence[int]
    crew: Crew | None = None
    _founders: Sequence[int] = (0,)
    _world: dict[str, Any] | None = None

    @property
    def follows(self) -> bool:
        """Whether this rank hears the leader of its crew alone."""
        return self.crew is not None and not self.crew.leads

    @property
    def crew_size(self) -> int:
        """How many ranks each worker of this world stands for."""
        return 1 + len(self.crew.followers) if self.crew is not None else 1

    @property
    def lost(self) -> list[int]:
        """The ranks, as the world began, that have died; of a crew its leader."""
        return sorted(set(self._founders) - set(self.origins))

    def form_crews(self, ranks: int) -> None:
        """Form crews of so many ranks; all ranks call this together, and again after a death.

        A world of one rank stays as it is, and so does one that has its crews.

        Raises:
            InputError: on all ranks, if the world has no such crews; the line says what would do.
            StartLost: a rank has died meanwhile. Who follows already hears of no recovery.
        """
        if ranks == 1 or self.size == 1 or self._world is not None:
            return
        self._check_crews(ranks)
        with joined_in_time(self.ground), met_or_lost(self._comm, self.ground):
            self._form(ranks)

    def _form(self, ranks: int) -> None:
        world = {name: getattr(self, name) for name in _OF_WORLD}
        crew = self._started(split, self._comm, self.ground, (self.rank - 1) // ranks if self.rank else None)
        leaders = [0, *range(1, self.size, ranks)]
        federation = self._started(split, self._comm, self.ground, 0 if self.rank in leaders else None)
        if self.rank:
            self.crew = Crew(crew, self.origins[self.rank], self.ground)
        if self.rank in leaders:
            self._enter(federation, leaders)
            self._founders = self.origins
            self._settle()
        self._world = world

    def disband(self) -> None:
        """Let followers leave, and have the world as it was, if nobody has died."""
        if self.crew is not None:
            self.crew.dismiss()
        if self._world is not None and not self.lost:
            for name, value in self._world.items():
                setattr(self, name, value)
            self._settle()
            self.crew = self._world = None

    def _enter(self, comm: Any, ranks: Sequence[int]) -> None:
        """Be in another world from now on.

        Args:
            comm: Of the ranks that are in it.
            ranks: What they were.

        Raises:
            RankLost: one of them has died meanwhile.
        """
        self._comm, self._watch = comm, Watch(comm, self.ground)
        self.origins = [self.origins[rank] for rank in ranks]
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.nodes = left_of(self.nodes, ranks)
        self._started(split_leaders, self.nodes, comm)

    def _settle(self) -> None:
        """Share memory with who is in the world now."""
        others = [neighbour.process for rank, neighbour in self.nodes.neighbours.items() if rank != self.rank]
        self.memory.reach(others, len(self.nodes) == 1)

    def _check_crews(self, ranks: int) -> None:
        if why := why_no_crews(self.size, ranks):
            raise InputError(f"[silo] ranks = {ranks}: {why}")
        for first in range(1, self.size, ranks):
            if len(set(self.nodes.of[first : first + ranks])) > 1:
                what = f"ranks {first} to {first + ranks - 1} would be a crew, and share no node's memory"
                to_do = "have the launcher place them on one node, or take fewer"
                raise InputError(f"[silo] ranks = {ranks}: {what}; {to_do}")


def why_no_crews(size: int, ranks: int) -> str:
    """Say why a world of so many ranks cannot be a server and whole crews, and which could; "" if it can."""
    crews, left = divmod(size - 1, ranks)
    if not left and (crews or ranks == 1):
        return ""
    others = f"{size - 1} other{'s' * (size > 2)}" if size > 1 else "no other"
    fitting = " or ".join(str(1 + ranks * count) for count in (crews, crews + 1) if count)
    return f"{size} ranks are the server and {others}, which make no whole crews; start {fitting}"
