"""The effects on images that grow over the silos: another orientation, another light."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from data_prep.dataset import Beside, fields
from data_prep.schemes.grouping import LARGEST
from data_prep.schemes.scheme import Effect, EffectPlace, Examples
from mpifl.common import InputError
from mpifl.data import Features, Ragged, Targets


def rotate(
    place: EffectPlace, x: np.ndarray, y: np.ndarray, ids: np.ndarray, *, angles: str = "0,90,180,270"
) -> Examples:
    """Turn images counterclockwise by a silo's angle in degrees (Ghosh et al. 2020, IFCA, sec. 6: Rotated
    MNIST).

    Right angles move pixels; others are resampled bilinearly, with zeros from beyond the edges. Targets with
    one value for each pixel, as masks are, are turned, too: by the nearest pixel, with what does not count
    (or zeros) from beyond the edges.
    """
    angle = level(place.silo, place.silos, "angles", angles) % 360
    return _turned(x, angle), _targets(y, angle, place)


def _turned(x: np.ndarray, angle: float) -> np.ndarray:
    """Turn images [n, ..., height, width]."""
    height, width = x.shape[-2:]
    if (quarters := _quarters(height, width, angle)) is not None:
        return np.ascontiguousarray(np.rot90(x, quarters, axes=(-2, -1)))
    taken, weights = _bilinear(height, width, angle)
    flat = x.reshape(-1, height * width)
    turned = np.zeros(flat.shape, np.float64 if x.dtype == np.float64 else np.float32)
    for corner, weight in zip(taken, weights, strict=True):
        turned += flat[:, corner] * weight.astype(turned.dtype)
    return _like(turned.reshape(x.shape), x.dtype)


def _targets(y: Any, angle: float, place: EffectPlace) -> Any:
    """Turn those targets that have the height and width of the images."""
    if y.dtype.names:
        several: Any = fields(y)
        return Beside({name: _targets(one, angle, place) for name, one in several.items()})
    height, width = place.features.shape[-2:]
    if isinstance(y, Ragged) or y.ndim < 3 or y.shape[-2:] != (height, width):
        return y
    if (quarters := _quarters(height, width, angle)) is not None:
        return np.ascontiguousarray(np.rot90(y, quarters, axes=(-2, -1)))
    taken, inside = _nearest(height, width, angle)
    ignored = place.targets.ignore if isinstance(place.targets, Targets) else None
    turned = np.where(inside, y.reshape(-1, height * width)[:, taken], y.dtype.type(ignored or 0))
    return turned.reshape(y.shape)


def _quarters(height: int, width: int, angle: float) -> int | None:
    """Return how many right angles an angle is, where these move pixels to pixels; None elsewhere."""
    quarters, rest = divmod(angle, 90)
    return int(quarters) if rest == 0 and (height == width or quarters in (0, 2)) else None


def brighten(
    place: EffectPlace, x: np.ndarray, y: np.ndarray, ids: np.ndarray, *, factors: str = "1..0.25"
) -> Examples:
    """Multiply features by a silo's factor; integers are rounded, and end where their dtype ends."""
    factor = level(place.silo, place.silos, "factors", factors)
    kind = np.float64 if x.dtype == np.float64 else np.float32
    return _like(x.astype(kind) * kind(factor), x.dtype), y


def level(silo: int, silos: int, option: str, text: str) -> float:
    """Return a silo's level of 'a..b', K values evenly spaced,
    or of 'a,b,c', each for the same number of silos."""
    even, values = levels(option, text)
    if even:
        return values[0] + (values[1] - values[0]) * silo / max(silos - 1, 1)
    return values[silo * len(values) // silos]


def levels(option: str, text: str) -> tuple[bool, list[float]]:
    """Read levels: whether they are the ends of a range, and the numbers."""
    even = ".." in text
    try:
        values = [float(value) for value in text.split(".." if even else ",")]
    except ValueError:
        values = []
    if not values or not all(abs(value) <= LARGEST for value in values) or (even and len(values) != 2):
        raise InputError(
            f"--{option}: '{text}' given; write numbers up to {LARGEST:g}, as 0,0.5,1, or a range, as 0..1"
        )
    return even, values


@functools.lru_cache(maxsize=8)
def _bilinear(height: int, width: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Return for every pixel the four that it is interpolated from,
    and their weights, both [4, height * width]."""
    at_row, at_column = _origins(height, width, angle)
    above, left = np.floor(at_row).astype(int), np.floor(at_column).astype(int)
    taken, weights = [], []
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        r, c = above + i, left + j
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        taken.append(np.where(inside, r * width + c, 0))
        weights.append(inside * (1 - np.abs(at_row - r)) * (1 - np.abs(at_column - c)))
    return np.stack(taken), np.stack(weights)


@functools.lru_cache(maxsize=8)
def _nearest(height: int, width: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Return for every pixel the one it is taken from, and whether there is one, both [height * width]."""
    r, c = (np.rint(at).astype(int) for at in _origins(height, width, angle))
    inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
    return np.where(inside, r * width + c, 0), inside


def _origins(height: int, width: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Return where every pixel comes from, its row and its column, float64 [height * width]."""
    row, column = np.mgrid[:height, :width].reshape(2, -1)
    down, right = row - (height - 1) / 2, column - (width - 1) / 2
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    at_row = cosine * down + sine * right + (height - 1) / 2
    return at_row, cosine * right - sine * down + (width - 1) / 2


def _like(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return float values in a dtype, rounded and kept in its range if it is one of integers."""
    if dtype.kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    rounded: np.ndarray = np.clip(np.rint(values), limits.min, limits.max).astype(dtype)
    return rounded


def _images(features: Features, classes: int | None, *, angles: str) -> Features:
    if len(features.shape) < 2:
        raise InputError(
            f"--scheme: rotation is for images; one example has the shape {list(features.shape)}"
        )
    levels("angles", angles)
    return features


def _measured(features: Features, classes: int | None, *, factors: str) -> Features:
    if features.scale is None and not features.dtype.startswith("float"):
        raise InputError(
            f"--scheme: the features are {features.dtype} without a scale, which a model takes for tokens, "
            "not for measurements; brightness needs floats"
        )
    if min(levels("factors", factors)[1]) < 0:
        raise InputError(f"--factors: '{factors}' given; a factor is 0 or more")
    return features


def _angle(silo: int, silos: int, *, angles: str) -> str:
    return f"{level(silo, silos, 'angles', angles):.4g} deg"


def _factor(silo: int, silos: int, *, factors: str) -> str:
    return f"brightness {level(silo, silos, 'factors', factors):.3g}"


ROTATION = Effect(rotate, _images, _angle)
BRIGHTNESS = Effect(brighten, _measured, _factor)
