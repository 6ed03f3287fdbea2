"""Attacks by colluding silos that know all honest vectors: their vectors are overwritten before the rule."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from mpifl.sums import Combined
from mpifl.wings.robust import ColumnsPlan, GramPass, Matrix, squared_distances
from mpifl.wire import Transport, Verdict

FORGERIES = ("alie", "ipm", "mimic", "min_max")
"""The kinds of attack.

- alie: mean - z std (Baruch et al. 2019, "A little is enough", algorithm 3).
- ipm: -epsilon mean (Xie et al. 2020, "Fall of empires").
- mimic: one honest silo's vector (Karimireddy et al. 2022, section 3). The job names this silo; the paper
  takes the one that does the most harm.
- min_max: mean + gamma p. Its distance to any honest vector is at most the largest distance between two
  honest vectors (Shejwalkar & Houmansadr 2021, "Manipulating the Byzantine", equation 10)."""

COLUMNS = 16384
"""How many columns are overwritten at a time, so that the float64 values fit in a core's cache."""


@dataclass(frozen=True)
class Forging:
    """An attack by colluding silos.

    Each element of the false vector follows from the honest values of this element alone. For min_max it also
    follows from `gamma`, one number for all elements.

    Attributes:
        kind: One of `FORGERIES`.
        silos: The Byzantine silos.
        z: For alie; None takes the paper's value for the number of silos.
        epsilon: For ipm.
        direction: For min_max: p is minus the mean ("unit"), minus the standard deviations ("std") or minus
            the signs of the mean ("sign"). The length of p makes no difference.
        mimicked: For mimic: the silo whose vector is sent. The first honest silo replaces it if it is None
            or has sent no vector.
        gamma: For min_max. While it is None, before `fitted`, the false vector is p itself.
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
        """Whether gamma must still be fitted, by a pass with p in place of the false vector."""
        return self.kind == "min_max" and self.gamma is None

    def fitted(self, silos: Sequence[int], gram: Matrix) -> Forging:
        """Return the attack with the largest possible gamma.

        For each honest i, ||mean + gamma p - x_i||^2 <= max ||x_j - x_k||^2 is quadratic in gamma. The
        largest gamma that satisfies all of these is the least of the larger roots.

        Args:
            silos: The silo of each row; negative numbers are not silos.
            gram: The Gram matrix of the honest vectors, with p in the rows of Byzantine silos.
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
        """Return the attack, fitted if need be, and the ranks that did not answer; see `Forger`."""
        if not self.measures:
            return self, set()
        look = Fitting(transport, verdict, plans, own)
        return look.agreed(self), look.hanging

    def at(self, gamma: float) -> Forging:
        """Return the attack with this gamma."""
        return dataclasses.replace(self, gamma=gamma)

    def __call__(self, silos: Sequence[int], rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows, with those of Byzantine silos overwritten. Negative `silos` are not silos."""
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
        """Return some columns of the false vector."""
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
    """Return z of Baruch et al. 2019: how many standard deviations from the mean the attack may be.

    With s = floor(n / 2 + 1) - f honest silos that are farther from the mean, the f Byzantine silos are a
    majority. The other honest silos, a share (n - f - s) / (n - f), are nearer.
    """
    supporters = silos // 2 + 1 - liars
    share = (silos - liars - supporters) / (silos - liars)
    return NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9))


def _deviation(rows: Sequence[Tensor], mean: Tensor) -> Tensor:
    return _mean([(row.double() - mean).square_() for row in rows]).sqrt_()


def _mean(rows: Sequence[Tensor]) -> Tensor:
    """Return the mean in float64. Rows are added in order, so any part of the columns has the same bits."""
    total = torch.zeros(len(rows[0]), dtype=torch.float64)
    for row in rows:
        total.add_(row)
    return total.div_(len(rows))


class Fitting(GramPass):
    """Computes the Gram matrix of the honest vectors and the attack's direction, and fits the attack.

    In this pass the direction stands in the rows of the Byzantine silos.
    """

    FIRST = 1 << 41
    DECISION = -3
    """The stamp of the server's decision within the pass."""

    def agreed(self, forging: Forging) -> Forging | Combined:
        """Run the pass and fit at the server. All ranks get the fitted attack, or the end of the round."""
        self.forge = forging
        self.run()
        transport = self._transport
        if not transport.is_server:
            until = time.perf_counter() + 5 * transport.transfer_timeout
            came = transport.next_share(0, self._stamp(self.DECISION), 8, until)
            if not came or len(came) != 8:
                return Combined()
            return forging.at(float(torch.frombuffer(came, dtype=torch.float64)))
        lost = self.lost()
        found = forging if lost else forging.fitted([row.silo for row in self._plans[0].rows], self.matrix())
        told = torch.tensor([] if found.gamma is None else [found.gamma], dtype=torch.float64)
        for rank in set(self._workers) - {0}:
            transport.hand_over(rank, [told], self._stamp(self.DECISION))
        return Combined(lost=lost) if lost else found
