"""The sources that `partition` can read; a new one is a function (data, seed, *, options) and a line here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from data_prep.dataset import KEEPS, Dataset
from data_prep.sources.adult import read_adult
from data_prep.sources.cifar import read_cifar10, read_cifar100
from data_prep.sources.dicom import read_dicom
from data_prep.sources.digits import read_digits
from data_prep.sources.hdf5 import read_hdf5
from data_prep.sources.heart import read_heart
from data_prep.sources.images import read_images
from data_prep.sources.jsonl import read_jsonl
from data_prep.sources.leaf import read_leaf
from data_prep.sources.mnist import read_mnist
from data_prep.sources.nifti import read_nifti
from data_prep.sources.npy import read_npy
from data_prep.sources.npz import read_npz
from data_prep.sources.options import parse_options
from data_prep.sources.own import own_source
from data_prep.sources.synthetic import read_bags, read_fcube, read_synthetic
from data_prep.sources.table import read_table
from data_prep.sources.tcga_brca import read_tcga_brca
from data_prep.sources.text import read_known_text, read_text
from mpifl.common import InputError, choices

Source = Callable[[Path | None, int], Dataset]

SOURCES: dict[str, Callable[..., Dataset]] = {
    "mnist": partial(read_mnist, "mnist"),
    "fashion-mnist": partial(read_mnist, "fashion-mnist"),
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "digits": read_digits,
    "shakespeare": partial(read_known_text, "shakespeare"),
    "tinyshakespeare": partial(read_known_text, "tinyshakespeare"),
    "adult": read_adult,
    "synthetic": read_synthetic,
    "fcube": read_fcube,
    "bag-of-words": read_bags,
    "heart-disease": read_heart,
    "tcga-brca": read_tcga_brca,
    "npz": read_npz,
    "npy": read_npy,
    "hdf5": read_hdf5,
    "csv": partial(read_table, "csv"),
    "parquet": partial(read_table, "parquet"),
    "images": read_images,
    "text": read_text,
    "jsonl": read_jsonl,
    "leaf": read_leaf,
    "dicom": read_dicom,
    "nifti": read_nifti,
}


NAMED_ARRAYS = ("npz", "npy", "hdf5")
"""Sources of arrays by name, where that of ids is called `id` unless an option says otherwise."""


def kept_words(
    name: str, group: str | None, order: str | None, options: Sequence[str], *, keep: str | None = None
) -> list[str]:
    """Return a source's options with those that say which column tells whose an example is, and when it was;
    and with `keep` = "id" which array has the ids.

    Raises:
        InputError: the source has no columns to name, or a function has such a parameter for itself.
    """
    if keep not in (None, *KEEPS):
        raise InputError(f"--keep: {keep} given; {choices(keep or '', KEEPS)}")
    given = {key: value for key, value in (("group", group), ("order", order)) if value is not None}
    for key, value in given.items():
        if not value.strip():
            raise InputError(f"--{key}: '{value}' given; name a column or an array")
        read = (
            SOURCES[name]
            if name in SOURCES
            else None
            if ":" not in name
            else own_source(name, SOURCES, options)
        )
        if read is not None and key not in inspect.signature(read).parameters:
            takes = [one for one, reader in SOURCES.items() if key in inspect.signature(reader).parameters]
            what = f"{name} has no column that says it"
            raise InputError(f"--{key}: {what}; it is for {', '.join(takes)} and your own 'module:function'")
        if key in getattr(read, "own", ()):
            what = f"'{name}' has a parameter '{key}' of its own"
            raise InputError(f"--{key}: {what}; call it otherwise, so that an array can be named")
    own = getattr(own_source(name, SOURCES, options), "own", ()) if ":" in name and keep == "id" else ("id",)
    takes_id = name in NAMED_ARRAYS or "id" not in own
    if keep == "id" and takes_id and not any(word.partition("=")[0] == "id" for word in options):
        given["id"] = "id"
    return [*options, *(f"{key}={value}" for key, value in given.items())]


def find_source(name: str, options: Sequence[str] = ()) -> Source:
    """Return the reader of a source, or of the user's `module:function`, its KEY=VALUE options filled in;
    raise InputError with the names there are."""
    if name not in SOURCES and ":" not in name:
        own = "or your own 'module:function'"
        raise InputError(f"SOURCE: '{name}' is unknown; {choices(name, SOURCES)}, {own}")
    read = SOURCES[name] if name in SOURCES else own_source(name, SOURCES, options)
    return partial(read, **parse_options(name, read, options))
