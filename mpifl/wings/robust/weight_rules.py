"""Rules by weights (Krum, RFA, centered clipping, FLTrust): the Gram matrix gives each update its weight."""

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

    A user's rule is a subclass with a method `weights`; all its fields have defaults.
    """

    name: ClassVar[str] = ""
    tolerates: ClassVar[bool] = False
    """Whether it must know f, the largest number of Byzantine silos."""
    reference: ClassVar[bool] = False
    """Whether the server adds its own vector: the last row and column of the matrix."""
    chooses: ClassVar[bool] = False
    """Whether it gives some silos the weight 0 by design, so that a weight of 0 says little about a silo."""

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return the weights, shape [n].

        Args:
            gram: The inner products of all pairs of vectors, shape [n, n].
            liars: f, the number of Byzantine silos; 0 for a rule that does not need it.
        """
        raise NotImplementedError

    def least(self, liars: int) -> int:
        """Return the least n that the rule needs."""
        return 1


@dataclass(frozen=True)
class Krum(WeightRule):
    """Take the vector that is nearest to its n - f - 2 nearest neighbours (Blanchard et al. 2017).

    "Machine learning with adversaries: Byzantine tolerant gradient descent", section 4. The score is
    s(i) = sum ||x_i - x_j||^2 over these j. For equal scores the first silo is taken.
    """

    name = "krum"
    tolerates = True
    chooses = True

    @property
    def _chosen(self) -> int:
        return 1

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return 1 / m for the m vectors with the least scores; m is 1 for Krum."""
        n = len(gram)
        others = squared_distances(gram)[~np.eye(n, dtype=bool)].reshape(n, n - 1)
        scores = np.sort(others, axis=1)[:, : n - liars - 2].sum(1)
        weights = np.zeros(n)
        weights[np.argsort(scores, kind="stable")[: self._chosen]] = 1 / self._chosen
        return weights

    def least(self, liars: int) -> int:
        """Return 2 f + 3 (Blanchard et al. 2017, proposition 4.2), or m + f if that is more."""
        return max(2 * liars + 3, self._chosen + liars)


@dataclass(frozen=True)
class MultiKrum(Krum):
    """Take the mean of the m vectors with the least scores (Blanchard et al. 2017, section 5).

    Attributes:
        m: How many vectors.
    """

    name = "multikrum"
    m: int

    @property
    def _chosen(self) -> int:
        return self.m


@dataclass(frozen=True)
class RFA(WeightRule):
    """Take the geometric median, by the smoothed Weiszfeld algorithm (Pillutla et al. 2022).

    "Robust aggregation for federated learning", algorithm 2: it begins at the mean, with equal alpha_i. In
    the paper an iteration asks all silos. Here it costs only n^2 operations, so there can be many. With f
    Byzantine silos far away, each iteration leaves f / (n - f) of their pull. If 1000 iterations are too few,
    another 1000 begin at the mean of the closest majority.

    Attributes:
        nu: Smaller distances count as this one, which limits a vector's weight.
        iterations: The most iterations, from the mean only; None for as many as needed. They end early if the
            weights no longer change.
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
        """Return the weights after Weiszfeld's iterations from the weights c."""
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
        tau: The largest distance of a clipped vector from v. For gradients with worker momentum beta, the
            authors take 10 / (1 - beta); an update is such a gradient times -lr.
        iterations: How often v is updated.
    """

    name = "centered"
    reference = True
    tau: float
    iterations: int = 1

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return the coefficients of the x_i, and last that of the v at the beginning."""
        n = len(gram) - 1
        c = np.append(np.zeros(n), 1.0)
        for _ in range(self.iterations):
            away = distances_to(gram, c)[:n]
            factors = self.tau / np.maximum(away, self.tau) / n  # min(1, tau / away)
            c = c * (1 - factors.sum()) + np.append(factors, 0.0)
        return c


@dataclass(frozen=True)
class FLTrust(WeightRule):
    """Weigh vectors by their cosine with the server's, after scaling them to its norm (Cao et al. 2021).

    "FLTrust: Byzantine-robust federated learning via trust bootstrapping", equations 2 to 4. The server's
    update, from public examples, is the last row of the matrix.
    """

    name = "fltrust"
    reference = True

    def weights(self, gram: Matrix, liars: int) -> Matrix:
        """Return ReLU(cos) ||g_0|| / ||x_i|| / (sum of ReLU(cos)); zeros if no silo has a positive cosine."""
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
    """Return the centre of the closest majority, the majority's mean, and a bound for the geometric median.

    The centre is the vector with the smallest radius r that contains q > n / 2 vectors. The bound is the
    largest distance of the geometric median from the centre. Let a point have the distance D from the centre.
    To the n - q other vectors it is nearer by at most D; from the q vectors it is farther by at least
    D - 2 r. So its sum of distances is larger than the centre's if D > 2 q r / (2 q - n).
    """
    n, q = len(gram), len(gram) // 2 + 1
    distances = np.sqrt(squared_distances(gram))
    radii = np.sort(distances, axis=1)[:, q - 1]
    center = int(radii.argmin())
    amid = np.zeros(n)
    amid[np.argsort(distances[center], kind="stable")[:q]] = 1 / q
    return center, amid, 2 * q * (float(radii[center]) + nu) / (2 * q - n)


def squared_distances(gram: Matrix) -> Matrix:
    """Return ||x_i - x_j||^2 of all pairs, shape [n, n], from their Gram matrix."""
    squares = gram.diagonal()
    found: Matrix = np.maximum(squares[:, None] + squares[None] - 2 * gram, 0.0)
    return found


def distances_to(gram: Matrix, c: Matrix) -> Matrix:
    """Return ||x_i - sum_j c_j x_j|| for all i, shape [n], from their Gram matrix."""
    products: Matrix = gram @ c
    found: Matrix = np.sqrt(np.maximum(gram.diagonal() - 2 * products + c @ products, 0.0))
    return found


def tolerated(byzantine: float | None, silos: int) -> int:
    """Return f: `byzantine` itself if it is a number, or that share of `silos`, rounded down; 0 for None."""
    if isinstance(byzantine, float):
        return math.floor(byzantine * silos + 1e-9)
    return byzantine or 0
