"""The server's recovery after deaths: silos move to other ranks, and the work is done again."""

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
    """Keeps a training running when ranks die, as long as the server lives.

    A rank that becomes the server continues from a mirror of the state or from a checkpoint.

    Attributes:
        diverged: Whether silos keep state of another round than the server's, so that the algorithm must
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
        """Note whether the server's state and the silos' kept state must be realigned."""
        self.diverged = diverged

    def realign(self) -> None:
        """If silos keep state of another round, let the algorithm ask them for the sums that both sides keep.

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
        """Return what `act` returns. If ranks die meanwhile, move their silos to other ranks and call `act`
        again.

        Args:
            act: Asks the silos, and changes nothing before they answer.
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
        """Send a request to all silos, with recovery from deaths."""
        outcome = self.run_with_recovery(
            lambda: self.federation.everyone(self._server).ask(kind, vectors, **fields)
        )
        self.diverged &= not kind.resets
        return outcome

    def replicate(self, figures: Mapping[str, Figure]) -> None:
        """Let every rank keep a mirror of the server's state after this round, and the round's figures."""
        federation, server = self.federation, self._server
        packed = serialization.pack({**server.state, _ROUND: server.round}, federation.transport.memory.empty)
        self.run_with_recovery(lambda: federation.replicate(server, figures, packed))

    def _rehome(self) -> None:
        """Ask which rank hosts which silo. Find a rank for each silo that has none, or has several after a
        half-done move."""
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
        """Offer each silo to one rank after another, the least loaded first. Return, for each silo without a
        rank, why no rank could host it.

        Each rank gets two offers: a rank that was late because a shard opens slowly has it open by then.
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
        """Choose a rank for each silo: first the rank asked least often, then one that answered in time, then
        the least loaded."""
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
    """Return this rank's mirror of the dead server; None if there is none, or if the server overwrote it."""
    mirror = federation.replicas[-1] if federation.replicas else None
    if mirror and serialization.numbers_of(mirror.state.numpy().data).get(_ROUND) != mirror.round:
        return None
    return mirror


def state_of(mirror: Replica) -> dict[str, Any]:
    """Return the server's state from a mirror."""
    state = serialization.unpack(mirror.state.numpy().tobytes())
    del state[_ROUND]
    return state
