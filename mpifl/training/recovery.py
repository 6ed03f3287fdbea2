"""What the server does when ranks die: their silos find new ranks,
and what was being done is done once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from mpifl.algorithms import Algorithm, Server
from mpifl.common import RankLost, RoundLost, ranks_named
from mpifl.exchange import Federation
from mpifl.exchange.server_side import Outcome
from mpifl.run.folder import checkpoint, serialization
from mpifl.wire import Figure, Replica, Request

Answer = TypeVar("Answer")
_ROUND = "round of the mirror"


class Recovery:
    """Keep a training going when ranks die, as long as its server lives.

    Another rank that becomes the server goes on from a mirror of the state or from a checkpoint.

    Attributes:
        diverged: Silos keep what belongs to another round than the server's state: the algorithm has to
            realign them.
    """

    def __init__(
        self,
        federation: Federation,
        server: Server,
        run: Path,
        sizes: Sequence[int],
        note: Callable[..., None],
        algorithm: Algorithm,
    ) -> None:
        self.federation = federation
        self.diverged = False
        self._server = server
        self._run = run
        self._sizes = sizes
        self._note = note
        self._algorithm = algorithm
        self._known: set[int] = set()

    def mark_diverged(self, diverged: bool = True) -> None:
        """Take note that the server's state and what silos keep have to be realigned, or have been."""
        self.diverged = diverged

    def realign(self) -> None:
        """Have the algorithm ask anew for what both sides add up, where silos keep what belongs to another
        round.

        Raises:
            RankLost: a rank died meanwhile; see `run_with_recovery`.
        """
        if not self.diverged:
            return
        try:
            self._algorithm.realign(self._server, self.federation.everyone(self._server))
            self.mark_diverged(False)
        except RoundLost as lost:
            what = f"the server's state was not brought into line with silos that moved: {lost}"
            self._note(what, once=("diverged", str(lost)))

    def run_with_recovery(self, act: Callable[[], Answer]) -> Answer:
        """Return what `act` returns; when ranks die in it, have other ranks host their silos and act again.

        Args:
            act: Asks the silos, and changes nothing before they have answered.
        """
        while True:
            try:
                if set(self.federation.transport.lost) != self._known:
                    self._rehome()
                return act()
            except RankLost:
                self.federation.recover()

    def ask(
        self, kind: type[Request], vectors: Mapping[str, Tensor] | None = None, /, **fields: Any
    ) -> Outcome:
        """Make a request to all silos, however many ranks die meanwhile."""
        outcome = self.run_with_recovery(
            lambda: self.federation.everyone(self._server).ask(kind, vectors, **fields)
        )
        self.diverged &= not kind.resets
        return outcome

    def replicate(self, figures: Mapping[str, Figure]) -> None:
        """Let every rank keep the state of the server after this round,
        and the figures that the round brought."""
        federation, server = self.federation, self._server
        packed = serialization.pack({**server.state, _ROUND: server.round}, federation.transport.memory.empty)
        self.run_with_recovery(lambda: federation.replicate(server, figures, packed))

    def _rehome(self) -> None:
        """Learn who hosts what, and find a rank that can for each silo that none does or,
        half moved, several do."""
        federation, lost = self.federation, set(self.federation.transport.lost)
        federation.take_inventory(self._server)
        hosts = Counter(silo for held in federation.membership.placed.values() for silo in held)
        unassigned = {silo for silo in range(federation.population) if hosts[silo] != 1}
        round, states = checkpoint.silos_of_latest(self._run, self._server.round)
        self.diverged |= bool(unassigned) and round != self._server.round
        faults = self._host(unassigned, states, round)
        federation.membership.mark_unavailable(faults)
        self._explain(
            sorted(lost - self._known), sorted(unassigned - set(faults)), round if states else None, faults
        )
        self._known = lost

    def _host(self, unassigned: set[int], states: dict[int, str], round: int) -> dict[int, str]:
        """Offer each silo to one rank after another, the least loaded first; return why none could host it.

        Each is offered it twice: one that was late because opening the shard takes long has it open then.
        """
        federation, tried = self.federation, Counter[tuple[int, int]]()
        if federation.membership.stay:
            return dict.fromkeys(unassigned, "by [security] it stays at its site")
        faults = dict.fromkeys(unassigned, "")
        for _ in range(2 * len(federation.transport.workers)):
            if not faults:
                break
            homes = self._homes(faults, tried)
            tried.update(homes.items())
            faults = federation.move(self._server, homes, states, round)
        return faults

    def _homes(self, silos: Collection[int], tried: Mapping[tuple[int, int], int]) -> dict[int, int]:
        """Choose a rank for each of some silos: one that was asked least often,
        answered in time, and has least."""
        members, homes = self.federation.membership, dict[int, int]()
        loads = {rank: sum(self._sizes[k] for k in held) for rank, held in members.placed.items()}
        for silo in sorted(silos, key=lambda silo: -self._sizes[silo]):
            asked = {
                rank: (tried.get((silo, rank), 0), rank in members.timed_out, loads[rank]) for rank in loads
            }
            homes[silo] = min(asked, key=asked.__getitem__)
            loads[homes[silo]] += self._sizes[silo]
        return homes

    def _explain(self, lost: list[int], moved: list[int], round: int | None, faults: dict[int, str]) -> None:
        federation = self.federation
        state = "" if round is None else f", with what was kept in round {round}"
        went = f"; other ranks take over {federation.names.listed(moved)}{state}" if moved else ""
        self._note(f"{ranks_named(lost)} died{went}")
        for silo, fault in faults.items():
            self._note(f"silo {federation.names[silo]} is left out, no rank can host it: {fault}")


def latest_mirror(federation: Federation) -> Replica | None:
    """Return what this rank has of the dead server;
    nothing if it came so late that the server had written over it."""
    mirror = federation.replicas[-1] if federation.replicas else None
    if mirror and serialization.numbers_of(mirror.state.numpy().data).get(_ROUND) != mirror.round:
        return None
    return mirror


def state_of(mirror: Replica) -> dict[str, Any]:
    """Return the server's state that a mirror holds."""
    state = serialization.unpack(mirror.state.numpy().tobytes())
    del state[_ROUND]
    return state
