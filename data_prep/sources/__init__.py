"""The sources that `partition` can read; a new one is a function (data, seed) -> Dataset and a line here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from data_prep.dataset import Dataset
from data_prep.sources.digits import read_digits
from data_prep.sources.heart import read_heart
from data_prep.sources.mnist import read_mnist
from data_prep.sources.npz import read_npz
from mpifl.errors import InputError

Source = Callable[[Path | None, int], Dataset]

SOURCES: dict[str, Source] = {
    "mnist": partial(read_mnist, "mnist"),
    "fashion-mnist": partial(read_mnist, "fashion-mnist"),
    "digits": read_digits,
    "heart-disease": read_heart,
    "npz": read_npz,
}


def find_source(name: str) -> Source:
    """Return the reader of a source; raise InputError with the names there are."""
    if name not in SOURCES:
        raise InputError(f"SOURCE: '{name}' is unknown; there are {', '.join(SOURCES)}")
    return SOURCES[name]
