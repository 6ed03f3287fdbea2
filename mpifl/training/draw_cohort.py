"""Draws the silos of a round, and holds the last losses for selections that use them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpifl.algorithms import Algorithm, Pace, RoundClock, Server
from mpifl.common import InputError, Names, RoundLost, rng
from mpifl.data.shards import AnySpec
from mpifl.run.job import Job
from mpifl.run.job.tables import WITHOUT_LOSSES, CohortTable, Draw, load_selection, select

Coins: TypeAlias = Callable[[Server], NDArray[np.bool_]]
"""Returns whether each silo is drawn for the server's current round; the draw is secret."""
LOSSES = "last losses"
"""The key of the server's state for each silo's training loss in its last accepted round, float64. It is
infinite before the first one."""
MOST_DRAWN = 100
"""Silos of a round that are told by name; longer lists say nothing to a reader."""
CLOCK = "virtual seconds"
"""The key of the server's state for the seconds of all rounds so far: an exact fraction, as a text."""


class Selector:
    """Chooses the silos of each round by `[cohort] select`, and leaves out those that `[clock]` finds late.

    For poisson, `coins` draws the silos. If the selection uses the silos' last losses, these are in the
    server's state. So they are also in checkpoints and mirrors.
    """

    def __init__(
        self,
        cohort: CohortTable,
        sizes: Sequence[int],
        server: Server,
        coins: Coins | None = None,
        clock: RoundClock | None = None,
    ) -> None:
        self._cohort, self._server, self._coins, self._clock = cohort, server, coins, clock
        self._late: list[int] = []
        self._sizes = np.array(sizes, dtype=np.int64)
        self._selection = load_selection(cohort.select)
        self._looks_at_losses = cohort.select not in WITHOUT_LOSSES

    def begin(self) -> None:
        """Start from the losses in the server's state; if it has none that fit, no silo has a loss."""
        kept = self._server.state.pop(LOSSES, None)
        unseen = torch.full((len(self._sizes),), torch.inf, dtype=torch.float64)
        if self._looks_at_losses:
            fits = isinstance(kept, Tensor) and (kept.shape, kept.dtype) == (unseen.shape, unseen.dtype)
            self._server.state[LOSSES] = kept if fits else unseen

    def select(self, absent: Collection[int] = ()) -> list[int]:
        """Return the silos of the server's current round, ascending.

        Args:
            absent: Silos that no rank hosts.

        Raises:
            InputError: the user's own selection returns an invalid result.
            RoundLost: none of those drawn would be done by `[clock] deadline`.
        """
        silos = np.array([silo for silo in range(len(self._sizes)) if silo not in absent], dtype=np.int64)
        drawn = None if self._coins is None else self._coins(self._server)[silos]
        losses, server = self._losses(), self._server
        draw = _draw(self._cohort, silos, self._sizes, losses, server.seed, round=server.round, drawn=drawn)
        found = select(self._cohort.select, self._selection, draw)
        return found if self._clock is None else self._in_time(self._clock, found)

    def _in_time(self, clock: RoundClock, drawn: list[int]) -> list[int]:
        if why := clock.why_nobody(drawn, self._server.round):
            raise RoundLost(f"{why}, with --force", in_vain=True)
        ready = clock.in_time(drawn, self._server.round)
        self._late = sorted({*drawn} - {*ready})
        return ready

    def pass_time(self, silos: Sequence[int], names: Names) -> dict[str, Any]:
        """Let the virtual clock go on by a finished round of these silos; return what it says, who was late,
        and who was drawn, if that is a part of all silos. A secret draw, by `coins`, is not told."""
        told = self._coins is None and len(silos) < len(self._sizes) and len(silos) <= MOST_DRAWN
        drawn = {"drawn": [names[silo] for silo in silos]} if told else {}
        if self._clock is None:
            return drawn
        took = max((self._clock.seconds(silo, self._server.round) for silo in silos), default=Fraction(0))
        now = Fraction(self._server.state.get(CLOCK, "0")) + took
        self._server.state[CLOCK] = str(now)
        late = {"late": [names[silo] for silo in self._late]} if self._late else {}
        return {"virtual_seconds": float(now), **late, **drawn}

    def learn(self, losses: Mapping[int, float]) -> None:
        """Note the losses of silos whose updates counted in a finished round.

        Raises:
            InputError: power-of-choice needs losses, and no silo has sent any.
        """
        if not self._looks_at_losses:
            return
        known = self._server.state[LOSSES]
        for silo, loss in losses.items():
            known[silo] = loss
        if self._cohort.select == "power-of-choice" and not bool(known.isfinite().any()):
            to_do = "have its silo's half return silo.update(..., train_loss=run.loss)"
            what = f"the algorithm's updates name no train_loss; {to_do}, or use select = 'examples'"
            raise InputError(f"[cohort] select = 'power-of-choice': {what}")

    def _losses(self) -> np.ndarray:
        known = self._server.state.get(LOSSES)
        return np.full(len(self._sizes), np.inf) if known is None else known.cpu().numpy().copy()


def round_clock(algorithm: Algorithm, spec: AnySpec, seed: int) -> RoundClock | None:
    """Return the clock of synchronous rounds; None without `[clock]`, and for asynchronous ones.

    Raises:
        InputError: a silo has no speed.
    """
    if algorithm.clock is None or algorithm.timed:
        return None
    silos = [(entry.name, entry.examples["train"]) for entry in spec.silos]
    pace = Pace(algorithm.clock, algorithm.local, silos, seed)
    return RoundClock(pace, algorithm.gradients, algorithm.clock.deadline)


def check_clock(job: Job, spec: AnySpec) -> None:
    """Check that all silos have speeds, and that in each round one would be done by `[clock] deadline`.

    Where a round's silos are chosen by losses or by the user's own function, all silos stand for them.

    Raises:
        InputError: a silo has no speed, or a round no silo.
    """
    if job.clock is None:
        return
    clock = round_clock(job.build_algorithm().for_federation(spec), spec, job.seed)
    if clock is None or job.clock.deadline is None:
        return
    sizes, known = [entry.examples["train"] for entry in spec.silos], job.cohort.select in WITHOUT_LOSSES
    for round in range(job.rounds):
        silos = drawn(job.cohort, sizes, job.seed, round) if known else range(len(sizes))
        if why := clock.why_nobody(silos, round):
            raise InputError(why)


def drawn(cohort: CohortTable, sizes: Sequence[int], seed: int, round: int) -> list[int]:
    """Return the silos of a round, drawn from all silos by a selection that uses no losses."""
    of_silos, silos = np.array(sizes, dtype=np.int64), np.arange(len(sizes), dtype=np.int64)
    draw = _draw(cohort, silos, of_silos, np.full(len(sizes), np.inf), seed, round)
    return select(cohort.select, load_selection(cohort.select), draw)


def _draw(
    cohort: CohortTable,
    silos: np.ndarray,
    sizes: np.ndarray,
    losses: np.ndarray,
    seed: int,
    round: int,
    drawn: np.ndarray | None = None,
) -> Draw:
    return Draw(
        round=round,
        count=cohort.size(len(silos)) if drawn is None else int(drawn.sum()),
        silos=silos,
        sizes=sizes[silos],
        losses=losses[silos],
        candidates=cohort.candidates,
        stream=rng.numpy_stream(seed, "cohort", round),
        drawn=drawn,
    )
