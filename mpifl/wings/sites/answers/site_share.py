"""A site's share of the exact mean: the sum of each vector in each window, over the silos of the site."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mpifl.sums import Aggregator, Averaging, ReductionPlan, WeightedMean, Window, plan
from mpifl.wire import Memory, Report, Transport

_ALONE = {"total": 1.0, "summed": True}
"""What makes of the plan of a mean one of a sum."""


class SiteShares(Averaging):
    """Ends an exchange with a site's sums in place of the mean."""

    def aggregator(self, device: torch.device, memory: Memory) -> Aggregator:
        """Return this rank's aggregator."""
        return SiteShare(device, memory)


class SiteShare(WeightedMean):
    """Adds up each window by itself, and divides nothing: sums of several sites then add up exactly.

    The combined vectors are float64, named by window and vector (`window_named`).
    """

    def place(self, reports: Mapping[int, Report]) -> list[ReductionPlan]:
        """Return a plan for each window of each vector, whatever the updates weigh."""
        return self.placed(
            [
                one.model_copy(update={**_ALONE, "name": f"{window.number} {one.name}", "windows": [window]})
                for one in plan(reports)
                for window in one.windows
            ]
        )

    def _in(self, window: Window, transport: Transport, piece: ReductionPlan, rank: int) -> list[Tensor]:
        """Return a rank's parts of a window; this rank finds its own by the vector's name."""
        of_vector = piece.model_copy(update={"name": window_named(piece.name)[1]})
        return super()._in(window, transport, of_vector, rank)


def window_named(name: str) -> tuple[int, str]:
    """Return the window and the vector's name of a combined vector."""
    number, _, vector = name.partition(" ")
    return int(number), vector
