"""A site's own sums of whole numbers, which its ranks add up without masks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from mpifl.sums import Aggregator, Averaging, Combined
from mpifl.wings.masked import FixedSum, FixedSums, PartyPlan, SumPlan
from mpifl.wire import Memory

ALL_NUMBERS = "all numbers"
"""The name of the vector of all numbers beside the vectors of an update, whose names have no blank."""


class SiteTotals(Averaging):
    """Ends an exchange with a site's totals in place of the mean.

    Args:
        how: The settings of the sums, without masks.
    """

    hides: ClassVar[bool] = True

    def __init__(self, how: FixedSums) -> None:
        self._how = dataclasses.replace(how, digests=True)

    def aggregator(self, device: torch.device, memory: Memory) -> Aggregator:
        """Return this rank's aggregator of whole numbers."""
        return SiteTotal(self._how, memory)


class SiteTotal(FixedSum):
    """Adds up whole numbers over a site's ranks, and divides nothing.

    The combined vectors are int64: those of the update, and `ALL_NUMBERS`. The plan of the sum has the
    digests of what each silo has added, and how much noise the sum of all sites is to have.
    """

    def parts(self) -> list[PartyPlan]:
        """Return where this rank's sums lie, with the digests of its silos' answers, and their noise."""
        told = {"answers": dict(self._here.answers), "noise": dict(self._here.noise)}
        return [one.model_copy(update=told) for one in super().parts()]

    def _result(
        self, plan: SumPlan, totals: Mapping[str, Tensor], tails: Mapping[int, Tensor], silos: int
    ) -> Combined | None:
        tail = self._whole(plan, totals, tails, silos)
        return None if tail is None else Combined({**totals, ALL_NUMBERS: tail})
