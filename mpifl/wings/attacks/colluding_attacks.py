"""Lies of silos that know what all honest ones send, for tests and tables: written over their vectors
before a rule sees these."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from mpifl.sums import Combined
from mpifl.wings.attacks.attack_fitting import Fitting
from mpifl.wings.robust import ColumnsPlan, Matrix, squared_distances
from mpifl.wire import Transport, Verdict

FORGERIES = ("alie", "ipm", "mimic", "min_max")
"""alie: mean - z std (Baruch et al. 2019, "A little is enough", algorithm 3). ipm: -epsilon mean (Xie et al.
2020, "Fall of empires"). mimic: one honest silo's vector (Karimireddy et al. 2022, section 3); here that
of a silo which the job names, in the paper the one that hurts most. min_max: mean + gamma p, as far from each
honest vector as two of these are from each other at most (Shejwalkar & Houmansadr 2021, "Manipulating the
Byzantine", equation 10)."""

COLUMNS = 16384
"""How many columns are written over at a time, so that a core's cache holds what is in float64."""


@dataclass(frozen=True)
class Forging:
    """Who lies, and how. A lie about an element follows from the honest values of this element alone; by
    min_max also from `gamma`, one number for all elements.

    Attributes:
        kind: One of `FORGERIES`.
        silos: The liars.
        z: For alie; None is the paper's, by how many silos there are.
        epsilon: For ipm.
        direction: For min_max: p is minus the mean ("unit"), the standard deviations ("std") or the signs of
            the mean ("sign"). How long it is makes no difference.
        mimicked: For mimic: the silo whose vector is sent; None, and where it sent none, is the first honest.
        gamma: For min_max; None until it is `fitted`, and p itself is written meanwhile.
    """

    kind: str
    silos: frozenset[int]
    z: float | None = None
    epsilon: float = 0.1
    direction: str = "std"
    mimicked: int | None = None
    gamma: float | None = None

    @property
    def measures(self) -> bool:
        """Whether it is to be `fitted` by what it writes now."""
        return self.kind == "min_max" and self.gamma is None

    def fitted(self, silos: Sequence[int], gram: Matrix) -> Forging:
        """Return it with the largest gamma, by the Gram matrix of the honest vectors, and p in liars' rows.

        Of ||mean + gamma p - x_i||^2 <= max ||x_j - x_k||^2, quadratic in gamma, that is the least of the
        larger roots.
        """
        honest = [row for row, k in enumerate(silos) if k >= 0 and k not in self.silos]
        liars = [row for row, k in enumerate(silos) if k in self.silos]
        if not (honest and liars and gram[liars[0], liars[0]] > 0):
            return self.at(0.0)
        products, along = gram[np.ix_(honest, honest)], gram[honest, liars[0]]
        apart = products.mean() - 2 * products.mean(0) + products.diagonal()
        room = np.maximum(squared_distances(products).max() - apart, 0.0)
        half, square = along.mean() - along, gram[liars[0], liars[0]]
        roots = (np.sqrt(half**2 + square * room) - half) / square
        return self.at(float(roots.min()))

    def agreed(
        self,
        transport: Transport,
        verdict: Verdict,
        plans: Sequence[ColumnsPlan],
        own: Mapping[tuple[str, int], Tensor],
    ) -> tuple[Forging | Combined, set[int]]:
        """Return it `fitted`, if it is to be; see `Forger`."""
        if not self.measures:
            return self, set()
        look = Fitting(transport, verdict, plans, own)
        return look.agreed(self), look.hanging

    def at(self, gamma: float) -> Forging:
        """Return it with this gamma."""
        return dataclasses.replace(self, gamma=gamma)

    def __call__(self, silos: Sequence[int], rows: Sequence[Tensor]) -> list[Tensor]:
        """Return rows with the liars' written over; negative numbers of silos are not silos' rows."""
        honest = {k: row for k, row in zip(silos, rows, strict=True) if k >= 0 and k not in self.silos}
        liars = sum(k in self.silos for k in silos)
        if not (liars and honest):
            return list(rows)
        first = next(iter(honest.values()))
        if self.kind == "mimic":
            lie = first if self.mimicked is None else honest.get(self.mimicked, first)
        else:
            lie = torch.empty_like(first)
            for at in range(0, len(first), COLUMNS):
                block = slice(at, at + COLUMNS)
                lie[block] = self._lie([row[block] for row in honest.values()], liars)
        return [lie if k in self.silos else row for k, row in zip(silos, rows, strict=True)]

    def _lie(self, honest: Sequence[Tensor], liars: int) -> Tensor:
        """Return the lie about some columns."""
        mean = _mean(honest)
        if self.kind == "ipm":
            return (-self.epsilon * mean).float()
        if self.kind == "min_max":
            p = self._direction(honest, mean)
            return (p if self.gamma is None else mean + self.gamma * p).float()
        std = _deviation(honest, mean)
        z = usual_z(len(honest) + liars, liars) if self.z is None else self.z
        return (mean - z * std).float()

    def _direction(self, honest: Sequence[Tensor], mean: Tensor) -> Tensor:
        if self.direction == "std":
            return -_deviation(honest, mean)
        return -mean.sign() if self.direction == "sign" else -mean


def usual_z(silos: int, liars: int) -> float:
    """Return z of Baruch et al. 2019: how far from the mean liars may be.

    With s = floor(n / 2 + 1) - f honest silos that are farther they are a majority; the share
    (n - f - s) / (n - f) is nearer.
    """
    supporters = silos // 2 + 1 - liars
    share = (silos - liars - supporters) / (silos - liars)
    return NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9))


def _deviation(rows: Sequence[Tensor], mean: Tensor) -> Tensor:
    return _mean([(row.double() - mean).square_() for row in rows]).sqrt_()


def _mean(rows: Sequence[Tensor]) -> Tensor:
    """Return the mean in float64, added up in the order of the rows: the same bits for any part of them."""
    total = torch.zeros(len(rows[0]), dtype=torch.float64)
    for row in rows:
        total.add_(row)
    return total.div_(len(rows))
