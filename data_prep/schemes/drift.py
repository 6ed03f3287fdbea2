"""The effect of concept drift: the same features, but on some silos the labels mean something else."""

from __future__ import annotations

import numpy as np

from data_prep.schemes.scheme import WITHOUT_CLASSES, Effect, EffectPlace, Examples
from mpifl.common import InputError, numpy_stream
from mpifl.data import Features


def permute_labels(
    place: EffectPlace,
    x: np.ndarray,
    y: np.ndarray,
    ids: np.ndarray,
    *,
    drifted: float = 0.5,
    concepts: int = 1,
) -> Examples:
    """Permute the labels of the last silos, a share `drifted` of them (as in Sattler et al. 2020, sec. V-A).

    The drifted silos take concepts 1..G in turn. With p a random order of all C classes, concept g calls p_i
    what is p_(i+g mod C) elsewhere. No label keeps its meaning, and no two concepts agree in any.
    """
    if not (g := concept(place.silo, place.silos, drifted, concepts)):
        return x, y
    order = numpy_stream(place.seed, "concept drift").permutation(place.classes or 0)
    meaning = np.empty_like(order)
    meaning[order] = np.roll(order, -g)
    known = (y >= 0) & (y < len(meaning))  # what does not count stays as it is
    return x, np.where(known, meaning[np.where(known, y, 0)], y).astype(y.dtype)


def concept(silo: int, silos: int, drifted: float, concepts: int) -> int:
    """Return the concept of a silo; 0 is that of the data."""
    first = silos - max(1, round(drifted * silos))
    return 1 + (silo - first) % concepts if silo >= first else 0


def _check(features: Features, classes: int | None, *, drifted: float, concepts: int) -> Features:
    if classes is None:
        raise InputError(
            f"--scheme: targets are values, and concept-drift permutes classes; {WITHOUT_CLASSES}"
        )
    if not 0 < drifted <= 1:
        raise InputError(f"--drifted: {drifted} given; it is a share of the silos, above 0 and at most 1")
    if not 1 <= concepts < classes:
        raise InputError(
            f"--concepts: {concepts} given; {classes} classes have 1 to {classes - 1} besides their own"
        )
    return features


def _name(silo: int, silos: int, *, drifted: float, concepts: int) -> str:
    return f"concept {g}" if (g := concept(silo, silos, drifted, concepts)) else ""


DRIFT = Effect(permute_labels, _check, _name)
