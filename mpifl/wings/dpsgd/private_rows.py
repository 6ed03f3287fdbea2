"""A private silo that also answers with noised sums over its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mpifl.wings.dpsgd.dpsgd import DPSGD, SumsOnce
from mpifl.wings.dpsgd.private_silo import PrivateSilo
from mpifl.wings.privacy import BoundedSum, Draws, Steps, is_bounded, noise_of_sums
from mpifl.wings.site import digest

SPLITS = ("train", "valid", "test")
"""The splits of a silo: all its rows count."""
BLOCK = 1 << 12


class NoisedSums(NamedTuple):
    """Sums with noise.

    Attributes:
        sums: The numbers of all sums, int64 of shape [all sizes].
        noise: z, their noise multiplier.
    """

    sums: Tensor
    noise: float


class PrivateRows(PrivateSilo):
    """A private silo of a table. Of its rows it tells trainings and sums with noise."""

    def noised_sums(self, sums: Sequence[BoundedSum], classes: int) -> NoisedSums:
        """Return sums over all rows with the silo's noise. They cost one Gaussian step.

        Args:
            sums: The sums, over the features and then the targets.
            classes: How many classes the targets have, each of which is a column of zeros and ones; 0 if they
                are values.

        Raises:
            InputError: the noise is added to the sum over silos, rows were used before in the request, or
                the bound of a sum is not known.
            BudgetSpent: the budget does not allow it.
        """
        guard = self._guard
        if guard.scale is not None or self._ways or not self.question:
            raise self._refusal("asks for sums of rows beside another use of them")
        if not all(map(is_bounded, sums)):
            raise self._refusal("asks for sums whose bound is not known")
        self.question = digest([self.question, classes, *map(repr, sums)], {})
        noise = guard.noise[self.id]
        if guard.site.answered(self.question) is None:
            before = guard.site.of_silo(guard.names[self.id], guard.shards[self.id])
            self._afford(before.spent, Steps(noise, 1.0, 1))
        draws = Draws(guard.site.secret, self.question, "sums")
        total = noise_of_sums(sums, noise, draws)
        for numbers in self._numbers(classes):
            total += torch.cat([one.rows(numbers).sum(0) for one in sums])
        self._ways.append(SumsOnce(noise))
        return NoisedSums(total, noise)

    def _noted(self, *given: Any, **more: Any) -> DPSGD:
        """Return DP-SGD; refuse it beside sums, which have another rate."""
        if any(isinstance(way, SumsOnce) for way in self._ways):
            raise self._refusal("trains beside sums of rows")
        return super()._noted(*given, **more)

    def _numbers(self, classes: int) -> Iterator[Tensor]:
        """Yield the rows in blocks, float64 of shape [n, columns]."""
        for split in (name for name in SPLITS if len(self._splits.get(name, ()))):
            for x, y in self._splits[split].in_order(BLOCK):
                of = y.cpu().reshape(len(y), -1)
                targets = (of == torch.arange(classes)) if classes else of
                yield torch.cat([x.cpu().double().reshape(len(x), -1), targets.double()], 1)
