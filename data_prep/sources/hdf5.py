"""A user's own arrays from an HDF5 file: mapped where they are contiguous,
read chunk by chunk where they are not."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from data_prep.dataset import Dataset
from data_prep.sources.aims import Wanted
from data_prep.sources.arrays import chosen, dataset_of, with_options
from data_prep.sources.reading import Digests, needed
from data_prep.sources.text_names import TEXTS
from mpifl.common import InputError, did_you_mean, mapped
from mpifl.data import OFFSETS

MOST_NAMED = 8
"""Data sets in a line."""
SPAN = 1 << 25  # bytes that are read at once, at least a chunk
H5_FAULTS = (OSError, KeyError, ValueError, RuntimeError, TypeError)  # h5py's, for damaged files


@with_options
def read_hdf5(
    data: Path | None,
    wanted: Wanted,
    *,
    x: str = "",
    y: str = "",
    x_test: str = "",
    y_test: str = "",
    silo: str = "",
    held_out: str = "",
) -> Dataset:
    """Open data sets x [n, *shape] and y [n, ...],
    and where present x_test, y_test, silo and held_out [n]; any size.

    Each may be called otherwise: `x=/study/images` is the path of a data set in the file."""
    path = needed("hdf5", data, "measurements.h5")
    files = Digests()
    files.note(path)
    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401 - its import makes lz4, zstd, ... known to HDF5
    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
        raise InputError(f"{path}: not an HDF5 file, or cut short ({error}); write it again") from None
    given = {"x": x, "y": y, "x_test": x_test, "y_test": y_test, "silo": silo, "held_out": held_out}
    found = _found(path, file, wanted, {name: at for name, at in given.items() if at}).items()
    arrays = {name: _opened(path, name, one, beside=name in wanted.beside) for name, one in found}
    unread = (
        [name for name in file if isinstance(file.get(name), h5py.Dataset)] if not any(given.values()) else []
    )
    return dataset_of(path, arrays, files, wanted, unread=unread)


def _found(path: Path, file: h5py.File, wanted: Wanted, given: dict[str, str]) -> dict[str, h5py.Dataset]:
    """Return the data sets that are read, by name; some are `given` by their paths."""
    try:
        for name, at in given.items():
            if not isinstance(file.get(at), h5py.Dataset):
                raise InputError(f"--option: {name}={at} given; {_there(path, file, at)}")
        beside = {name + OFFSETS: at + OFFSETS for name, at in given.items() if at + OFFSETS in file}
        where = {**{name: name for name in file}, **given, **beside}
        where |= {name: name for name in wanted.beside if "/" in name and name in file}
        names = chosen(where, wanted)
        return {name: file[where[name]] for name in names if isinstance(file.get(where[name]), h5py.Dataset)}
    except H5_FAULTS as error:
        raise InputError(f"{path}: its list of data sets is damaged ({error}); write it again") from None


def _there(path: Path, file: h5py.File, wrong: str) -> str:
    """Say which data sets a file has."""
    paths: list[str] = []
    file.visititems(lambda name, one: paths.append(f"/{name}") if isinstance(one, h5py.Dataset) else None)
    there = ", ".join(paths[:MOST_NAMED]) + (", ..." if len(paths) > MOST_NAMED else "")
    hint = did_you_mean(wrong, paths)
    return f"{hint}{path} has the data sets {there}" if paths else f"{path} has no data set"


def _opened(path: Path, name: str, dataset: h5py.Dataset, *, beside: bool) -> Any:
    """Map a contiguous data set; read small ones whole, and features of other layouts lazily.

    One `beside` the examples may hold texts, and so may targets and silos."""
    try:
        kind = dataset.dtype.kind
    except (TypeError, ValueError) as error:  # h5py's, of a type that it does not know
        raise InputError(
            f"{path}: {name} has a type that cannot be read ({error}); store arrays of numbers"
        ) from None
    texts = (beside or name in TEXTS) and h5py.check_string_dtype(dataset.dtype) is not None
    kinds = "iufb" if beside or name.startswith(("y", "held")) else "iuf"
    if not (kind in kinds or texts) or not dataset.shape:
        raise InputError(f"{path}: {name} has dtype {dataset.dtype} {dataset.shape}; store arrays of numbers")
    elsewhere = dataset.is_virtual and any(part.file_name != "." for part in dataset.virtual_sources())
    if dataset.file.filename != str(path) or dataset.external or elsewhere:
        raise InputError(f"{path}: {name} lies in another file; copy it into this one")
    if texts:
        return _texts(path, name, dataset)
    offset = dataset.id.get_offset() if dataset.chunks is None else None
    if offset is not None and dataset.size and kind != "b":  # a byte of a bool may be neither 0 nor 1
        mapped.note(path, path.stat().st_size)
        return np.memmap(path, dtype=dataset.dtype, mode="r", offset=offset, shape=dataset.shape)
    rows = ChunkedRows(path, name, dataset)
    return rows if name.startswith("x") and not beside else rows[:]


def _texts(path: Path, name: str, dataset: h5py.Dataset) -> np.ndarray:
    """Read a data set of texts."""
    try:
        return np.asarray(dataset.asstr(errors="replace")[:], np.str_)
    except H5_FAULTS as error:
        raise InputError(f"{path}: {name} cannot be read ({error}); write the file again") from None


class ChunkedRows:
    """Rows of a chunked data set [n, ...]: a request reads every span of chunks it touches once, in order."""

    sequential = True

    def __init__(self, path: Path, name: str, dataset: h5py.Dataset) -> None:
        self.where, self.dataset = f"{path}: {name}", dataset
        self.shape, self.dtype = dataset.shape, dataset.dtype
        self.step: int = dataset.chunks[0] if dataset.chunks else 1
        row = max(1, int(np.prod(self.shape[1:])) * self.dtype.itemsize)
        self._span = self.step * max(1, SPAN // (self.step * row))
        self._last: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, at: Any) -> np.ndarray:
        if isinstance(at, slice):
            start, stop, step = at.indices(self.shape[0])
            return (
                self._read(start, max(start, stop))[::step]
                if step > 0
                else self[np.arange(start, stop, step)]
            )
        at = np.asarray(at)
        out = np.empty((len(at), *self.shape[1:]), self.dtype)
        order = np.argsort(at, kind="stable")
        spans, begins = np.unique(at[order] // self._span, return_index=True)
        for span, places in zip(spans.tolist(), np.split(order, begins[1:]), strict=True):
            out[places] = self._cached(span)[at[places] - span * self._span]
        return out

    def _cached(self, span: int) -> np.ndarray:
        """Return the rows of a span, kept until another is asked for."""
        last = self._last  # once: another thread may put its own span there
        if last is None or last[0] != span:
            last = span, self._read(span * self._span, min((span + 1) * self._span, self.shape[0]))
            self._last = last
        return last[1]

    def _read(self, start: int, stop: int) -> np.ndarray:
        try:
            return np.asarray(self.dataset[start:stop])
        except H5_FAULTS as error:
            what = f"rows {start} to {stop} cannot be read ({error})"
            raise InputError(
                f"{self.where}: {what}; write the file again, or pip install hdf5plugin"
            ) from None
