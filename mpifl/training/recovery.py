"""What the server does when ranks die: their silos find new ranks, and what was being done is done once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from mpifl.common import RankLost, RoundLost, ranks_named
from mpifl.exchange import Cohort, Federation, Outcome
from mpifl.run import checkpoint
from mpifl.server import Server
from mpifl.wire import Mirror, Request, Scalar

Answer = TypeVar("Answer")
_ROUND = "round of the mirror"


class Survival:
    """Keeps a training going as long as its server lives; another server's goes on from a mirror or a checkpoint."""

    def __init__(
        self,
        federation: Federation,
        server: Server,
        run: Path,
        sizes: Sequence[int],
        realign: Callable[[Server, Cohort], None] | None = None,
    ) -> None:
        self.federation, self._realign, self._apart = federation, realign, False
        self._server, self._run, self._sizes = server, run, sizes
        self._known: set[int] = set()
        self._untold: list[str] = []
        self.tell: Callable[[str], None] = self._untold.append
        """Lets the user know; what nobody listened to is told later."""

    def listen(self, tell: Callable[[str], None]) -> None:
        """Have the user told by this from now on."""
        self.tell = tell
        for note in self._untold:
            tell(note)

    def realign(self) -> None:
        """Have the algorithm put the server's state right before silos are asked anything else."""
        self._apart = True

    def through(self, act: Callable[[], Answer]) -> Answer:
        """Return what `act` returns; when ranks die in it, have their silos hosted elsewhere and act again.

        Args:
            act: Asks the silos, and changes nothing before they have answered.
        """
        while True:
            try:
                if set(self.federation.transport.lost) != self._known:
                    self._rehome()
                if self._apart and self._server.state:
                    self._bring_together()
                return act()
            except RankLost:
                self.federation.recover()

    def ask(self, kind: type[Request], vectors: Mapping[str, Tensor] | None = None, /, **fields: Any) -> Outcome:
        """Make a request to all silos, however many ranks die meanwhile."""
        outcome = self.through(lambda: self.federation.everyone(self._server).ask(kind, vectors, **fields))
        self._apart &= not kind.resets
        return outcome

    def mirror(self, scalars: Mapping[str, Scalar]) -> None:
        """Let every rank keep the state of the server after this round, and what the round brought."""
        federation, server = self.federation, self._server
        packed = checkpoint.pack({**server.state, _ROUND: server.round}, federation.transport.memory.empty)
        self.through(lambda: federation.replicate(server, scalars, packed))

    def _rehome(self) -> None:
        """Learn who hosts what, and find a rank that can for each silo that none does or, half moved, several do."""
        federation, lost = self.federation, set(self.federation.transport.lost)
        federation.take_inventory(self._server)
        hosts = Counter(silo for held in federation.membership.placed.values() for silo in held)
        homeless = {silo for silo in range(federation.population) if hosts[silo] != 1}
        round, states = checkpoint.silos_of_latest(self._run, self._server.round)
        self._apart |= bool(homeless) and round != self._server.round
        faults = self._host(homeless, states, round)
        federation.membership.unavailable = set(faults)
        self._explain(sorted(lost - self._known), sorted(homeless - set(faults)), round if states else None, faults)
        self._known = lost

    def _bring_together(self) -> None:
        """Have the algorithm put the server's state right, with what silos keep now."""
        try:
            if self._realign:
                self._realign(self._server, self.federation.everyone(self._server))
            self._apart = False
        except RoundLost as lost:
            self.tell(f"the server's state was not brought into line with silos that moved: {lost}")

    def _host(self, homeless: set[int], states: dict[int, str], round: int) -> dict[int, str]:
        """Offer each silo to one rank after another, the least loaded first; return why none could host it.

        Each is offered it twice: one that was late because opening the shard takes long has it open then.
        """
        federation, tried = self.federation, Counter[tuple[int, int]]()
        faults = dict.fromkeys(homeless, "")
        for _ in range(2 * len(federation.transport.workers)):
            if not faults:
                break
            homes = self._homes(faults, tried)
            tried.update(homes.items())
            faults = federation.move(self._server, homes, states, round)
        return faults

    def _homes(self, silos: Collection[int], tried: Mapping[tuple[int, int], int]) -> dict[int, int]:
        """Choose a rank for each of some silos: one that was asked least often, answered in time, and has least."""
        members, homes = self.federation.membership, dict[int, int]()
        loads = {rank: sum(self._sizes[k] for k in held) for rank, held in members.placed.items()}
        for silo in sorted(silos, key=lambda silo: -self._sizes[silo]):
            asked = {rank: (tried.get((silo, rank), 0), rank in members.timed_out, loads[rank]) for rank in loads}
            homes[silo] = min(asked, key=asked.__getitem__)
            loads[homes[silo]] += self._sizes[silo]
        return homes

    def _explain(self, lost: list[int], moved: list[int], round: int | None, faults: dict[int, str]) -> None:
        federation = self.federation
        state = "" if round is None else f", with what was kept in round {round}"
        went = f"; other ranks take over {federation.names.listed(moved)}{state}" if moved else ""
        self.tell(f"{ranks_named(lost)} died{went}")
        for silo, fault in faults.items():
            self.tell(f"silo {federation.names[silo]} is left out, no rank can host it: {fault}")


def latest_mirror(federation: Federation) -> Mirror | None:
    """Return what this rank has of the dead server; nothing if it came so late that the server had written over it."""
    mirror = federation.replicas[-1] if federation.replicas else None
    if mirror and checkpoint.numbers_of(mirror.state.numpy().data).get(_ROUND) != mirror.round:
        return None
    return mirror


def state_of(mirror: Mirror, device: torch.device) -> dict[str, Any]:
    """Return the server's state that a mirror holds."""
    state = checkpoint.unpack(mirror.state.numpy().tobytes(), device)
    del state[_ROUND]
    return state
