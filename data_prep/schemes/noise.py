"""The effect of noise that grows over the silos: the same labels, seen ever less clearly."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from data_prep.schemes.grouping import check_positive
from data_prep.schemes.scheme import Effect, EffectPlace, Examples
from mpifl.common import InputError, derive
from mpifl.data import Features


def add_noise(
    place: EffectPlace, x: np.ndarray, y: np.ndarray, ids: np.ndarray, *, sigma: float = 0.1
) -> Examples:
    """Add Gaussian noise of variance sigma * k / K, k = 1..K (Li et al. 2022, NIID-Bench, sec. 4.3).

    The variance is that of the values a model sees, x * scale + offset, and nothing is clipped. (The code of
    Li et al. takes the figure for the standard deviation, and spares the last silo.) Every example's noise is
    drawn from a stream of its own.
    """
    deviation = math.sqrt(variance(place.silo, place.silos, sigma)) / abs(place.features.scale or 1)
    noisy = x.copy()
    kind = np.float64 if x.dtype == np.float64 else np.float32
    noise = np.empty(x.shape[1:], kind)
    for row, stream in zip(noisy, streams(place.seed, "feature noise", ids), strict=True):
        stream.standard_normal(dtype=kind, out=noise)
        row += (noise * kind(deviation)).astype(x.dtype)
    return noisy, y


def variance(silo: int, silos: int, sigma: float) -> float:
    """Return the variance of a silo's noise."""
    return sigma * (silo + 1) / silos


def streams(seed: int, purpose: str, ids: np.ndarray) -> Iterator[np.random.Generator]:
    """Yield a generator for every example, always the same object: Philox with the example's id in its
    counter.

    The streams of two examples are 2^64 blocks apart (Salmon et al. 2011), and cost 3 us each.
    """
    bits = np.random.Philox(derive(seed, purpose))
    generator, state = np.random.Generator(bits), bits.state
    for example in ids.tolist():
        state["state"]["counter"][:] = (0, example, 0, 0)
        bits.state = state  # with an empty buffer, as it was at first
        yield generator


def _noisy(features: Features, classes: int | None, *, sigma: float) -> Features:
    """Store integers as float32 in the same unit, so that scale,
    offset and the server's test set mean the same."""
    check_positive("sigma", sigma)
    if features.dtype.startswith("float"):
        return features
    if features.scale is None:
        raise InputError(
            f"--scheme: the features are {features.dtype} without a scale, which a model takes for tokens, "
            "not for measurements; noise needs floats"
        )
    return features.model_copy(update={"dtype": "float32"})


def _name(silo: int, silos: int, *, sigma: float) -> str:
    return f"noise var {variance(silo, silos, sigma):.3g}"


NOISE = Effect(add_noise, _noisy, _name)
