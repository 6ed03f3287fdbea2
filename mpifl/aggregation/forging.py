"""Lies of silos that know what all honest ones send, for tests and tables: written over their vectors
before a rule sees these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from mpifl.aggregation.rules import Rule
from mpifl.aggregation.weighing import Weighing

FORGERIES = ("alie", "ipm", "mimic")
"""alie: mean - z std (Baruch et al. 2019, "A little is enough", algorithm 3). ipm: -epsilon mean (Xie et al.
2020, "Fall of empires"). mimic: one honest silo's vector (Karimireddy et al. 2022, section 3); here the
first's, in the paper the one that hurts most."""


@dataclass(frozen=True)
class Forging:
    """Who lies, and how. A lie about an element follows from the honest values of this element alone.

    Attributes:
        kind: One of `FORGERIES`.
        silos: The liars.
        z: For alie; None is the paper's, by how many silos there are.
        epsilon: For ipm.
    """

    kind: str
    silos: frozenset[int]
    z: float | None = None
    epsilon: float = 0.1

    def __call__(self, silos: Sequence[int], rows: Sequence[Tensor]) -> list[Tensor]:
        """Return rows with the liars' written over; negative numbers of silos are not silos' rows."""
        honest = [row for k, row in zip(silos, rows, strict=True) if k >= 0 and k not in self.silos]
        liars = sum(k in self.silos for k in silos)
        if not (liars and honest):
            return list(rows)
        lie = self._lie(honest, liars)
        return [lie if k in self.silos else row for k, row in zip(silos, rows, strict=True)]

    def _lie(self, honest: Sequence[Tensor], liars: int) -> Tensor:
        if self.kind == "mimic":
            return honest[0]
        mean = _mean(honest)
        if self.kind == "ipm":
            return (-self.epsilon * mean).float()
        std = _mean([(row.double() - mean).square_() for row in honest]).sqrt_()
        z = usual_z(len(honest) + liars, liars) if self.z is None else self.z
        return (mean - z * std).float()


@dataclass(frozen=True)
class Forged:
    """A rule, and the lies that are written before it."""

    rule: Rule | Weighing
    forging: Forging


def usual_z(silos: int, liars: int) -> float:
    """Return z of Baruch et al. 2019: how far from the mean liars may be.

    With s = floor(n / 2 + 1) - f honest silos that are farther they are a majority; the share
    (n - f - s) / (n - f) is nearer.
    """
    supporters = silos // 2 + 1 - liars
    share = (silos - liars - supporters) / (silos - liars)
    return NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9))


def _mean(rows: Sequence[Tensor]) -> Tensor:
    """Return the mean in float64, added up in the order of the rows: the same bits for any part of them."""
    total = torch.zeros(len(rows[0]), dtype=torch.float64)
    for row in rows:
        total.add_(row)
    return total.div_(len(rows))
