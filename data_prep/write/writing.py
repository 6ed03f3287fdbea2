"""Shard files that are filled piece by piece, by several threads, in whatever order the rows come."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from data_prep.dataset import all_seen, fields, release
from data_prep.write.layout import Arrival, Gathering, Section, SweptReading
from mpifl.common import InputError, sha256_of
from mpifl.data import OFFSETS, Aims, Features, Inputs, Ragged, aims_by_path, check_arrays, label_counts
from mpifl.data.hdf5 import WrittenFile
from mpifl.data.shards import ShardEntry, by_path, new_shard, stored_dtype, write_groups, write_provenance

Offsets = dict[str, dict[str, int]]
"""Where in a file the arrays of every split begin, by their paths in it: `x` or `x/NAME`, `y` likewise."""

Kinds = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


@dataclass(frozen=True)
class NewShard:
    """A shard to be made: its name and its sections, of one file and silo."""

    name: str
    sections: Sequence[Section]

    @property
    def file(self) -> str:
        """Return the file's name."""
        return self.sections[0].file

    @property
    def silo(self) -> int | None:
        """Return the silo; None for the server's."""
        return self.sections[0].silo


@dataclass(frozen=True)
class Writer:
    """What all shards of a folder have in common, and the three steps to each: lay out, fill, finish.

    Attributes:
        folder: Where they are made, under their own names when they are finished.
        features: What one example is.
        classes: How many classes there are; None where targets are values.
        targets: What one example's target is, where it is no int64 class number.
        alter: What becomes of rows x and labels y of a silo, with their ids; None leaves them alone.
        filters: h5py's options of compressed shards; None for contiguous ones.
        resumed: Whether another run may continue this one, so that rows stay as they arrived until a shard is
            settled; else they are put into order in place.
    """

    folder: Path
    features: Inputs
    classes: int | None
    targets: Aims | None = None
    alter: Callable[[int, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    filters: dict[str, Any] | None = None
    resumed: bool = False

    def kinds(self, section: Section) -> Kinds:
        """Return what the arrays of a section are stored as: shape of a row and dtype, by their paths."""
        inputs = by_path("x", self.features).items()
        kinds: Kinds = {path: (one.shape[one.ragged :], np.dtype(one.dtype)) for path, one in inputs}
        for path, (_, aim) in aims_by_path(self.classes, self.targets).items():
            shape = section.labels.shape[1:] if aim is None else aim.shape[aim.ragged :]
            kinds[path] = shape, stored_dtype(aim)
        return kinds

    def lay_out(self, shard: NewShard) -> Offsets:
        """Make a shard's file with room for everything, and return where that is."""
        with self._new(_raw(self.folder, shard.file), shard, None) as file:
            return _offsets(file)

    def laid_out(self, shard: NewShard) -> Offsets:
        """Return where everything is in a file that was laid out before."""
        raw = _raw(self.folder, shard.file)
        # a file that has its own name already, but was not noted as finished, goes through `finish` again
        with h5py.File(raw if raw.exists() else self.folder / shard.file, "r", locking=False) as file:
            return _offsets(file)

    def fill(self, reading: Gathering | SweptReading, piece: range, offsets: dict[str, Offsets]) -> None:
        """Read a piece, alter its rows and write them to their shards."""
        for arrival in reading.read(piece):
            self._store(arrival, offsets[arrival[0].file])
        release(reading.rows)

    def _store(self, arrival: Arrival, offsets: Offsets) -> None:
        section, slot, ids, x = arrival
        y = section.labels[ids]
        if isinstance(self.features, Features):
            x = x.astype(self.features.dtype, copy=False)
        if self.alter and section.silo is not None:
            x, y = self.alter(section.silo, x, y, ids)
            self._check_altered(section, x)
        where, arrays = f"{section.file}: {section.split}", (fields(x), fields(y))
        check_arrays(where, *arrays, self.features, self.classes, self.targets)
        kinds = self.kinds(section)
        with _opened(_raw(self.folder, section.file)) as file:
            for path, rows in (by_path("x", arrays[0]) | by_path("y", arrays[1])).items():
                place, dtype = section.span(path, range(slot, slot)).start, kinds[path][1]
                lying = rows.joined if isinstance(rows, Ragged) else rows
                _write_at(file, offsets[section.split][path], place, lying.astype(dtype, copy=False))

    def _check_altered(self, section: Section, x: np.ndarray) -> None:
        """Refuse values that a scheme has brought beyond float32."""
        one = self.features
        if isinstance(one, Features) and not all_seen(x, one.scale, one.offset):
            what = "the scheme brings features beyond float32"
            raise InputError(f"--scheme: {section.file}: {what}; use smaller factors, or another unit")

    def finish(self, shard: NewShard, offsets: Offsets) -> ShardEntry:
        """Put a filled shard's rows into their order, compress them if asked, and return its entry.

        It can be done again until the shard is `settled`, if it may be `resumed`.
        """
        raw, path = _raw(self.folder, shard.file), self.folder / shard.file
        if not raw.exists():
            os.replace(path, raw)
        labels = self._histogram(shard, raw, offsets)
        if self.filters or any(
            section.order(b) is not None for section in shard.sections for b in section.buckets
        ):
            self._rewrite(shard, raw, offsets, path)
        else:
            os.replace(raw, path)
        examples = {section.split: len(section) for section in shard.sections}
        digest = sha256_of(path)
        owned = {one.split: len(np.unique(one.groups)) for one in shard.sections if one.groups is not None}
        facts: dict[str, Any] = {
            "silo": shard.silo,
            "name": shard.name,
            "file": shard.file,
            "bytes": path.stat().st_size,
        }
        facts |= {"examples": examples, "labels": labels, "sha256": digest, "groups": owned or None}
        return ShardEntry.model_validate(facts)

    def settle(self, file: str) -> None:
        """Remove what a finished shard was made from."""
        _raw(self.folder, file).unlink(missing_ok=True)

    def sync(self) -> None:
        """Bring everything that was filled so far to the disk."""
        for path in self.folder.glob("*.raw"):
            sync_file(path)

    def _rewrite(self, shard: NewShard, raw: Path, offsets: Offsets, path: Path) -> None:
        """Put the rows into order that lie in the order of their arrival: in place, or in a file aside."""
        aside = raw.with_suffix(".part") if self.filters or self.resumed else raw
        if aside != raw:
            with self._new(aside, shard, self.filters) as file:
                ordered = self._put_in_order(shard, raw, offsets) if self.filters else ()
                for split, column, place, rows in ordered:
                    file[f"{split}/{column}"][place : place + len(rows)] = rows
                    file.check()
        if not self.filters:
            with _opened(aside) as number:
                for split, column, place, rows in self._put_in_order(shard, raw, offsets):
                    _write_at(number, offsets[split][column], place, rows)
        os.replace(aside, path)

    def _histogram(self, shard: NewShard, raw: Path, offsets: Offsets) -> list[int]:
        """Count the labels of the training split, or of the only one."""
        counted = next((section for section in shard.sections if section.split == "train"), shard.sections[0])
        if self.classes is None:
            return []
        total, kind = np.zeros(self.classes, np.int64), self.kinds(counted)["y"]
        for bucket in counted.buckets:
            labels = _read_at(raw, offsets[counted.split]["y"], counted.span("y", bucket), *kind)
            total += label_counts(labels, self.classes, self.targets)
        return [int(count) for count in total]

    def _put_in_order(
        self, shard: NewShard, raw: Path, offsets: Offsets
    ) -> Iterator[tuple[str, str, int, np.ndarray]]:
        """Yield split, column, place and rows of a shard's buckets,
        from a file of rows in the order of their arrival."""
        for section in shard.sections:
            for bucket in section.buckets:
                order = section.order(bucket)
                for column, kind in self.kinds(section).items():
                    span = section.span(column, bucket)
                    rows = _read_at(raw, offsets[section.split][column], span, *kind)
                    yield (
                        section.split,
                        column,
                        span.start,
                        rows if order is None else _scattered(rows, order),
                    )

    def _new(self, path: Path, shard: NewShard, filters: dict[str, Any] | None) -> WrittenFile:
        labels = {section.split: (len(section), *section.labels.shape[1:]) for section in shard.sections}
        common: dict[str, Any] = {"features": self.features, "classes": self.classes, "filters": filters}
        path.unlink(missing_ok=True)  # in a folder that was kept it might be a link
        common["rows"] = {
            f"{one.split}/{at}": int(of[-1]) for one in shard.sections for at, of in one.offsets.items()
        }
        file = new_shard(path, labels, silo=shard.silo, name=shard.name, targets=self.targets, **common)
        for section in shard.sections:
            for at, of in section.offsets.items():
                file[f"{section.split}/{at}{OFFSETS}"][...] = of
        owned = {one.split: one.groups for one in shard.sections if one.groups is not None}
        write_groups(file, owned, filters)
        given = {one.split: one.given for one in shard.sections if one.given is not None}
        write_provenance(file, given, filters)
        return file


def _raw(folder: Path, file: str) -> Path:
    """Return where a shard is filled; it has its own name only when it is whole."""
    return folder / f"{file}.raw"


def _offsets(file: h5py.File) -> Offsets:
    """Return where every data set of a file begins."""
    offsets: Offsets = {split: {} for split in file}

    def note(name: str, found: object) -> None:
        if isinstance(found, h5py.Dataset):
            split, _, path = name.partition("/")
            offsets[split][path] = found.id.get_offset()

    file.visititems(note)
    return offsets


class _Scratch(threading.local):
    """Memory that a thread uses again for each bucket: new memory costs more time than a copy does."""

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def lend(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array with any content; the next one of that name lies in the same memory."""
        size = math.prod(shape) * dtype.itemsize
        if name not in self._kept or self._kept[name].nbytes < size:
            self._kept[name] = np.empty(size, np.uint8)
        return self._kept[name][:size].view(dtype).reshape(shape)


_SCRATCH = _Scratch()


def _scattered(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the rows at the places that `order` gives them, until this thread asks again."""
    placed = _SCRATCH.lend("placed", rows.shape, rows.dtype)
    placed[order] = rows
    return placed


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Lend a file to write to; it must be no link, which might lead to another's file."""
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        yield file
    finally:
        os.close(file)


def _write_at(file: int, offset: int, place: int, rows: np.ndarray) -> None:
    """Write rows at their place in a contiguous data set; the system may take them in parts."""
    if not rows.size:
        return
    rest = np.ascontiguousarray(rows).data.cast("B")
    offset += place * (rows.nbytes // len(rows))
    while len(rest):
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written


def _read_at(
    path: Path, offset: int, rows: range, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray:
    """Read some rows of a contiguous data set; they are there until this thread reads again."""
    found = _SCRATCH.lend("read", (len(rows), *shape), dtype)
    if found.size:
        with path.open("rb") as file:
            file.seek(offset + rows.start * (found.nbytes // len(rows)))
            if file.readinto(found.data.cast("B")) < found.nbytes:  # it reads as often as it takes
                raise OSError(errno.EIO, f"{path.name} is cut short")
    return found


def sync_file(path: Path) -> None:
    """Bring a file to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(file)
    finally:
        os.close(file)
