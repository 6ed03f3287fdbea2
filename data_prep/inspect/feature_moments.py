"""What the features of every silo look like: their means and deviations, from the shards themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpifl.data import Features, aims_by_path, flat
from mpifl.data.shards import FederationSpec, open_shard

PIECE = 1 << 20  # values that are looked at together
# means of single features, over all silos; with more of them an example counts as one feature
MOST_KEPT = 1 << 24


@dataclass(frozen=True)
class FeatureMoments:
    """How many values there were of each feature [d], their mean, and the sum of squares about it."""

    count: int
    mean: np.ndarray
    squares: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Return the standard deviation of each feature [d]."""
        return np.asarray(np.sqrt(self.squares / max(self.count, 1)))

    def __add__(self, other: FeatureMoments) -> FeatureMoments:
        """Put two sets of values together (Chan et al. 1979, eq. 2.1)."""
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / max(count, 1))
        return FeatureMoments(
            count, mean, self.squares + other.squares + apart**2 * (self.count * other.count / max(count, 1))
        )

    def seen(self, features: Features) -> FeatureMoments:
        """Return the moments of what a model sees: x * scale + offset."""
        scale = 1.0 if features.scale is None else features.scale
        offset = 0.0 if features.scale is None else features.offset
        return FeatureMoments(self.count, self.mean * scale + offset, self.squares * scale**2)

    def column(self, number: int) -> FeatureMoments:
        """Return those of one feature."""
        at = slice(number, number + 1)
        return FeatureMoments(self.count, self.mean[at], self.squares[at])

    def overall(self) -> tuple[float, float]:
        """Return the mean and the standard deviation of all values alike."""
        apart = ((self.mean - self.mean.mean()) ** 2).mean()
        return float(self.mean.mean()), float(np.sqrt((self.deviation**2).mean() + apart))


def feature_moments(folder: Path, spec: FederationSpec) -> list[FeatureMoments]:
    """Read the training features of every silo, piece by piece,
    and return their moments as a model sees them."""
    ragged = spec.single.ragged  # then a row's numbers are the features
    width = int(np.prod(spec.single.shape[ragged:]))
    single = width * len(spec.silos) <= MOST_KEPT
    found = []
    for entry in spec.silos:
        held = open_shard(folder, entry, spec, checksum=False)["train"].arrays["x"]
        x, step = flat(held), max(1, PIECE // width)
        rows = (x[start : start + step] for start in range(0, max(len(x), 1), step))
        found.append(
            total(moments_of(piece.reshape(-1, width if single else 1)) for piece in rows).seen(spec.single)
        )
    return found


def target_columns(spec: FederationSpec) -> dict[str, list[str]]:
    """Return what the columns of values among the targets are called, by their array's path in a split."""
    found = {}
    for path, (classes, one) in aims_by_path(spec.classes, spec.targets).items():
        if one is not None and classes is None:
            called = path.partition("/")[2] or "target"
            shape = one.shape[one.ragged :]
            width = shape[-1] if shape and (one.names or len(shape) == 1) else 1
            several = [f"{called} {column}" for column in range(width)]
            found[path] = list(one.names or ([called] if width == 1 else several))
    return found


def target_moments(folder: Path, spec: FederationSpec) -> list[FeatureMoments] | None:
    """Read the training targets of every silo and return the moments of their columns;
    None where they are class numbers."""
    columns, found = target_columns(spec), []
    for entry in spec.silos if columns else []:
        arrays = open_shard(folder, entry, spec, checksum=False)["train"].arrays
        found.append(
            _beside([_of_columns(flat(arrays[path]), len(names)) for path, names in columns.items()])
        )
    return found or None


def _of_columns(y: np.ndarray, width: int) -> FeatureMoments:
    """Return the moments of targets [n, ...] of so many columns, read piece by piece."""
    one = moments_by_piece(y.reshape(-1, width))
    return FeatureMoments(len(y), one.mean, one.squares * (len(y) / one.count))


def _beside(arrays: Sequence[FeatureMoments]) -> FeatureMoments:
    """Put the columns of several arrays of as many examples beside one another."""
    mean, squares = ([getattr(one, what) for one in arrays] for what in ("mean", "squares"))
    return FeatureMoments(arrays[0].count, np.concatenate(mean), np.concatenate(squares))


def moments_by_piece(x: np.ndarray) -> FeatureMoments:
    """Return the moments of features [n, d], read piece by piece."""
    step = max(1, PIECE // max(1, x.shape[1]))
    return total(moments_of(x[start : start + step]) for start in range(0, len(x), step))


def moments_of(x: np.ndarray) -> FeatureMoments:
    """Return the moments of features [n, d]."""
    x = x.astype(np.float64)
    mean = x.mean(axis=0) if len(x) else np.zeros(x.shape[1])
    return FeatureMoments(len(x), mean, ((x - mean) ** 2).sum(axis=0))


def total(moments: Iterable[FeatureMoments]) -> FeatureMoments:
    """Put all together, in their order."""
    first, *others = moments
    for other in others:
        first = first + other
    return first


def feature_skew(silos: list[FeatureMoments]) -> float:
    """Return the mean distance of the silos' features to those of all, in standard deviations.

    The distance of a feature is that of two normal distributions (2-Wasserstein: the root of the squared
    differences of mean and deviation), over its deviation in all silos. Features that are the same everywhere
    don't count. Silos of n examples that differ by chance only are about n^-1/2 apart.
    """
    return float(np.mean([apart.mean() for apart in standardised(silos)])) if silos else 0.0


def standardised(silos: list[FeatureMoments]) -> list[np.ndarray]:
    """Return the distance of every silo's features to those of all silos, without constant features."""
    pooled = total(silos)
    varying = pooled.deviation > 0
    if not varying.any():
        return [np.zeros(1) for _ in silos]
    mean, deviation = pooled.mean[varying], pooled.deviation[varying]
    return [
        np.hypot(one.mean[varying] - mean, one.deviation[varying] - deviation) / deviation for one in silos
    ]
