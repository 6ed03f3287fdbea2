"""Rules by weights: each silo's whole update gets a weight,
decided by the Gram matrix of all updates alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class WeightRule:
    """A rule that combines the vectors x_1, ..., x_n of n silos to sum_i c_i x_i.

    A rule of the user's is a subclass with `weights`, of which all fields have defaults.
    """

    name: ClassVar[str] = ""
    tolerates: ClassVar[bool] = False
    """Whether it has to know how many silos may lie, at most: f."""
    reference: ClassVar[bool] = False
    """Whether the server brings a vector of its own: the last row and column of the matrix."""
    chooses: ClassVar[bool] = False
    """Whether it gives some silos nothing by design, so that a weight of 0 says little of a silo."""

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return the weights, shape [n].

        Args:
            gram: The inner products of all pairs of vectors, shape [n, n].
            liars: f; 0 for a rule that does not ask for it.
        """
        raise NotImplementedError

    def least(self, liars: int) -> int:
        """Return the least n that the rule takes."""
        return 1


@dataclass(frozen=True)
class Krum(WeightRule):
    """Take the vector that is nearest to its n - f - 2 nearest neighbours (Blanchard et al. 2017).

    "Machine learning with adversaries: Byzantine tolerant gradient descent", section 4. Its score is
    s(i) = sum ||x_i - x_j||^2 over these j; of equal scores the first silo's counts.
    """

    name = "krum"
    tolerates = True
    chooses = True

    @property
    def _chosen(self) -> int:
        return 1

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return 1 / m for the m vectors of the least scores; m is 1 for Krum."""
        n = len(gram)
        others = squared_distances(gram)[~np.eye(n, dtype=bool)].reshape(n, n - 1)
        scores = np.sort(others, axis=1)[:, : n - liars - 2].sum(1)
        weights = np.zeros(n)
        weights[np.argsort(scores, kind="stable")[: self._chosen]] = 1 / self._chosen
        return weights

    def least(self, liars: int) -> int:
        """Return 2 f + 3 (Blanchard et al. 2017, proposition 4.2), or what leaves m to choose."""
        return max(2 * liars + 3, self._chosen + liars)


@dataclass(frozen=True)
class MultiKrum(Krum):
    """Take the mean of the m vectors of the least scores (Blanchard et al. 2017, section 5).

    Attributes:
        m: How many.
    """

    name = "multikrum"
    m: int

    @property
    def _chosen(self) -> int:
        return self.m


@dataclass(frozen=True)
class RFA(WeightRule):
    """Take the geometric median, by the smoothed Weiszfeld algorithm (Pillutla et al. 2022).

    "Robust aggregation for federated learning", algorithm 2: from the mean, with equal alpha_i. There an
    iteration asks all silos. Here it costs n^2 operations, so that there are many: with f liars far away each
    iteration leaves f / (n - f) of their pull. Where 1000 are too few for that, another 1000 begin amid the
    majority that lies closest together.

    Attributes:
        nu: Below this distance a vector weighs no more.
        iterations: At most, and from the mean alone; None for as many as it takes. None is made where they
            change nothing any more.
    """

    name = "rfa"
    nu: float = 1e-6
    iterations: int | None = None

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return beta / sum(beta) of the last iteration; the point is v = sum_i c_i x_i."""
        n = len(gram)
        found = self._stepped(gram, np.full(n, 1 / n))
        if self.iterations is not None:
            return found
        center, amid, farthest = _majority(gram, self.nu)
        return found if distances_to(gram, found)[center] <= farthest else self._stepped(gram, amid)

    def _stepped(self, gram: Matrix, c: Matrix) -> Matrix:
        """Return where Weiszfeld's steps lead from a point."""
        n = len(gram)
        for _ in range(1000 if self.iterations is None else self.iterations):
            beta = (1 / n) / np.maximum(self.nu, distances_to(gram, c))
            before, c = c, beta / beta.sum()
            if np.array_equal(c, before):
                break
        return c


@dataclass(frozen=True)
class CenteredClipping(WeightRule):
    """Clip all vectors around the last aggregate, then take their mean (Karimireddy et al. 2021).

    "Learning from history for Byzantine robust optimization", CCLIP, section 4: v <- v + 1/n sum_i (x_i - v)
    min(1, tau / ||x_i - v||). The last aggregate is the last row of the matrix; before the first round it is
    zero.

    Attributes:
        tau: How far from v a vector may be, at most. For worker momentum of beta the authors take 10 / (1 -
            beta) for gradients; an update is these times -lr.
        iterations: How often v moves.
    """

    name = "centered"
    reference = True
    tau: float
    iterations: int = 1

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return the coefficients of the x_i and, last, of the v that it began with."""
        n = len(gram) - 1
        c = np.append(np.zeros(n), 1.0)
        for _ in range(self.iterations):
            away = distances_to(gram, c)[:n]
            factors = self.tau / np.maximum(away, self.tau) / n  # min(1, tau / away)
            c = c * (1 - factors.sum()) + np.append(factors, 0.0)
        return c


@dataclass(frozen=True)
class FLTrust(WeightRule):
    """Weigh vectors by their cosine with the server's own, all made as long as that (Cao et al. 2021).

    "FLTrust: Byzantine-robust federated learning via trust bootstrapping", equations 2 to 4. The server's
    update, on the public examples, is the last row of the matrix.
    """

    name = "fltrust"
    reference = True

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return ReLU(cos) ||g_0|| / ||x_i|| over the sum of ReLU(cos); nothing where no silo is trusted."""
        norms = np.sqrt(np.maximum(gram.diagonal(), 0.0))
        lengths = np.where(norms > 0, norms, 1.0)
        trust = np.maximum(gram[-1] / lengths / lengths[-1], 0.0)
        trust[-1] = 0.0
        total = trust.sum()
        found: Matrix = trust * norms[-1] / lengths / total if total > 0 else trust
        return found


WEIGHT_RULES: dict[str, type[WeightRule]] = {
    rule.name: rule for rule in (Krum, MultiKrum, RFA, CenteredClipping, FLTrust)
}


def _majority(gram: Matrix, nu: float) -> tuple[int, Matrix, float]:
    """Return the vector to which more than half are closest, the mean of these, and how far from it the
    geometric median can be.

    Of n vectors q lie within r. A point at a distance D is nearer to the others by D at most, and farther
    from these by D - 2 r at least. So its sum of distances is the larger one if D > 2 q r / (2 q - n).
    """
    n, q = len(gram), len(gram) // 2 + 1
    distances = np.sqrt(squared_distances(gram))
    radii = np.sort(distances, axis=1)[:, q - 1]
    center = int(radii.argmin())
    amid = np.zeros(n)
    amid[np.argsort(distances[center], kind="stable")[:q]] = 1 / q
    return center, amid, 2 * q * (float(radii[center]) + nu) / (2 * q - n)


def squared_distances(gram: Matrix) -> Matrix:
    """Return ||x_i - x_j||^2 of all pairs, shape [n, n], of their Gram matrix."""
    squares = gram.diagonal()
    found: Matrix = np.maximum(squares[:, None] + squares[None] - 2 * gram, 0.0)
    return found


def distances_to(gram: Matrix, c: Matrix) -> Matrix:
    """Return ||x_i - sum_j c_j x_j|| for all i, shape [n], of their Gram matrix."""
    products: Matrix = gram @ c
    found: Matrix = np.sqrt(np.maximum(gram.diagonal() - 2 * products + c @ products, 0.0))
    return found


def tolerated(byzantine: float | None, silos: int) -> int:
    """Return f: `byzantine` itself, or the part of so many silos that it is as a share, rounded down."""
    if isinstance(byzantine, float):
        return math.floor(byzantine * silos + 1e-9)
    return byzantine or 0
