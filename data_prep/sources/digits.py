"""The 1797 handwritten digits of 8x8 pixels that scikit-learn carries: a source that needs no download."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset
from mpifl.common import InputError, numpy_stream
from mpifl.common.machine import floors
from mpifl.data.shards import Provenance

CLASSES = 10
TEST_SHARE = 0.2


def read_digits(data: Path | None, seed: int) -> Dataset:
    """Read scikit-learn's digits; a fifth of every class, drawn from the seed, is the server's test set.

    Images become uint8 [n, 1, 8, 8] with values 0 to 16 and scale 1/16.
    """
    if data is not None:
        raise InputError(f"--data: {data} given, but 'digits' comes with scikit-learn; leave it out")
    x, y = _load()
    # scikit-learn has them in a file of its own choosing, so what is named here are the arrays themselves
    files = {"digits": hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()}
    held_out = _stratified(y, TEST_SHARE, numpy_stream(seed, "digits test set"))
    test = x[held_out], y[held_out]
    places: dict[str, Any] = {
        "given": Provenance(np.flatnonzero(~held_out)),
        "given_of_test": Provenance(np.flatnonzero(held_out)),
    }
    return Dataset("digits", x[~held_out], y[~held_out], CLASSES, files, scale=1 / 16, test=test, **places)


def _load() -> tuple[np.ndarray, np.ndarray]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("SOURCE: 'digits' needs scikit-learn; pip install 'mpifl[digits]'") from None
    floors.hold("digits")
    digits = load_digits()
    return digits.images.astype(np.uint8)[:, np.newaxis], digits.target.astype(np.int64)


def _stratified(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a share of every class; return a mask of shape [n]."""
    mask = np.zeros(len(labels), bool)
    for label in range(CLASSES):
        members = rng.permutation(np.flatnonzero(labels == label))
        mask[members[: round(share * len(members))]] = True
    return mask
