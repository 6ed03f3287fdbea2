"""What the features of every silo look like: their means and deviations, from the shards themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpifl.data import Features, FederationSpec, open_shard

PIECE = 1 << 20  # values that are looked at together
# means of single features, over all silos; with more of them an example counts as one feature
MOST_KEPT = 1 << 24


@dataclass(frozen=True)
class Moments:
    """How many values there were of each feature [d], their mean, and the sum of squares about it."""

    count: int
    mean: np.ndarray
    squares: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Return the standard deviation of each feature [d]."""
        return np.asarray(np.sqrt(self.squares / max(self.count, 1)))

    def __add__(self, other: Moments) -> Moments:
        """Put two sets of values together (Chan et al. 1979, eq. 2.1)."""
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        return Moments(
            count, mean, self.squares + other.squares + apart**2 * (self.count * other.count / count)
        )

    def seen(self, features: Features) -> Moments:
        """Return the moments of what a model sees: x * scale + offset."""
        scale = 1.0 if features.scale is None else features.scale
        offset = 0.0 if features.scale is None else features.offset
        return Moments(self.count, self.mean * scale + offset, self.squares * scale**2)

    def overall(self) -> tuple[float, float]:
        """Return the mean and the standard deviation of all values alike."""
        apart = ((self.mean - self.mean.mean()) ** 2).mean()
        return float(self.mean.mean()), float(np.sqrt((self.deviation**2).mean() + apart))


def feature_moments(folder: Path, spec: FederationSpec) -> list[Moments]:
    """Read the training features of every silo, piece by piece,
    and return their moments as a model sees them."""
    width = int(np.prod(spec.features.shape))
    single = width * len(spec.silos) <= MOST_KEPT
    found = []
    for entry in spec.silos:
        x = open_shard(folder, entry, spec, checksum=False)["train"].x
        step = max(1, PIECE // width)
        rows = (x[start : start + step] for start in range(0, len(x), step))
        found.append(
            total(moments_of(piece.reshape(-1, width if single else 1)) for piece in rows).seen(spec.features)
        )
    return found


def target_moments(folder: Path, spec: FederationSpec) -> list[Moments] | None:
    """Read the training targets of every silo and return the moments of their columns;
    None where they are class numbers."""
    if spec.targets is None or spec.classes is not None:
        return None
    columns = bool(spec.targets.names) or len(spec.targets.shape) == 1
    width, found = spec.targets.shape[-1] if columns and spec.targets.shape else 1, []
    for entry in spec.silos:
        y = open_shard(folder, entry, spec, checksum=False)["train"].y.reshape(-1, width)
        step = max(1, PIECE // width)
        found.append(total(moments_of(y[start : start + step]) for start in range(0, len(y), step)))
    return found


def moments_of(x: np.ndarray) -> Moments:
    """Return the moments of features [n, d]."""
    x = x.astype(np.float64)
    mean = x.mean(axis=0)
    return Moments(len(x), mean, ((x - mean) ** 2).sum(axis=0))


def total(moments: Iterable[Moments]) -> Moments:
    """Put all together, in their order."""
    first, *others = moments
    for other in others:
        first = first + other
    return first


def feature_skew(silos: list[Moments]) -> float:
    """Return the mean distance of the silos' features to those of all, in standard deviations.

    The distance of a feature is that of two normal distributions (2-Wasserstein: the root of the squared
    differences of mean and deviation), over its deviation in all silos. Features that are the same everywhere
    don't count. Silos of n examples that differ by chance only are about n^-1/2 apart.
    """
    return float(np.mean([apart.mean() for apart in standardised(silos)])) if silos else 0.0


def standardised(silos: list[Moments]) -> list[np.ndarray]:
    """Return the distance of every silo's features to those of all silos, without constant features."""
    pooled = total(silos)
    varying = pooled.deviation > 0
    if not varying.any():
        return [np.zeros(1) for _ in silos]
    mean, deviation = pooled.mean[varying], pooled.deviation[varying]
    return [
        np.hypot(one.mean[varying] - mean, one.deviation[varying] - deviation) / deviation for one in silos
    ]
