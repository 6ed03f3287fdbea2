"""Draws the silos of a round, and holds the last losses for selections that use them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.common import InputError, rng
from mpifl.run.job.tables import WITHOUT_LOSSES, CohortTable, Draw, load_selection, select

Coins: TypeAlias = Callable[[Server], NDArray[np.bool_]]
"""Returns whether each silo is drawn for the server's current round; the draw is secret."""
LOSSES = "last losses"
"""The key of the server's state for each silo's training loss in its last accepted round, float64. It is
infinite before the first one."""


class Selector:
    """Chooses the silos of each round by `[cohort] select`.

    For poisson, `coins` draws the silos. If the selection uses the silos' last losses, these are in the
    server's state. So they are also in checkpoints and mirrors.
    """

    def __init__(
        self, cohort: CohortTable, sizes: Sequence[int], server: Server, coins: Coins | None = None
    ) -> None:
        self._cohort, self._server, self._coins = cohort, server, coins
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
        """
        silos = np.array([silo for silo in range(len(self._sizes)) if silo not in absent], dtype=np.int64)
        drawn = None if self._coins is None else self._coins(self._server)[silos]
        losses, server = self._losses(), self._server
        draw = _draw(self._cohort, silos, self._sizes, losses, server.seed, round=server.round, drawn=drawn)
        return select(self._cohort.select, self._selection, draw)

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
