"""Which row of the source goes where: the sections of the shards, and the pieces in which their rows are
read.

Rows that are cheap anywhere (an array in memory, images in a folder) are gathered in the order of the shards,
so each shard is written from front to back. Rows that are cheap only in their own order (a large or
compressed file) are swept once. A piece of the source holds rows of every shard, and scattering them one by
one would cost a write each. They are appended instead, within buckets of a section, in the order they arrive
in; `Section.order` puts a bucket right later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from data_prep.dataset import Rows, mapping_of, ragged_arrays, row_bytes
from mpifl.data.hdf5 import chunk_rows
from mpifl.data.shards import Provenance

PIECE = 1 << 24
"""Bytes of features that are read at a time; each thread holds a few such pieces."""
BUCKET = 1 << 25
"""Bytes of features that are put into order at a time."""
SMALL = 1 << 28
"""A mapped file of at most so many bytes is expected to fit the page cache: its rows are gathered."""


@dataclass(frozen=True)
class Section:
    """One split of one shard.

    Attributes:
        file: The shard's file name.
        split: The split's name.
        silo: The shard's silo; None for the server's.
        rows: What the features are taken from.
        labels: The targets that belong to `rows`, [n, ...].
        ids: The positions in both of the examples to be stored, in their order.
        groups: Whose each of them is, int64, if it is to be stored.
        given: Where each of them was given, if it is to be stored.
    """

    file: str
    split: str
    silo: int | None
    rows: Any
    labels: Any
    ids: np.ndarray
    groups: np.ndarray | None = None
    given: Provenance | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def swept(self) -> bool:
        """Tell whether the rows are read in their own order; where ragged arrays lie is known beforehand."""
        return sequential(self.rows) and not self.offsets

    @cached_property
    def offsets(self) -> dict[str, np.ndarray]:
        """Where each example of a ragged array begins in the shard, and the last one ends, by the path of the
        array: int64 [n + 1]."""
        ragged = ragged_arrays("x", self.rows) | ragged_arrays("y", self.labels)
        return {path: one[self.ids].offsets for path, one in ragged.items()}

    def span(self, path: str, rows: range) -> range:
        """Return the places in an array of some examples."""
        found = self.offsets.get(path)
        return rows if found is None else range(int(found[rows.start]), int(found[rows.stop]))

    @cached_property
    def bucket(self) -> int:
        """Return the rows of a bucket, a multiple of those of a compressed chunk."""
        if self.offsets:
            return max(1, BUCKET // row_bytes(self.rows))
        chunk = chunk_rows(self.rows.shape[1:], self.rows.dtype)
        return chunk * max(1, BUCKET // (chunk * row_bytes(self.rows)))

    @property
    def buckets(self) -> list[range]:
        """Return the positions of every bucket."""
        return _ranges(len(self), self.bucket)

    def order(self, bucket: range) -> np.ndarray | None:
        """Return the positions in a bucket of the rows in it,
        as they arrived; None if they arrived in order."""
        ids = self.ids[bucket.start : bucket.stop]
        if not self.swept or (ids[:-1] <= ids[1:]).all():
            return None
        return np.argsort(ids, kind="stable")


Arrival = tuple[Section, int, np.ndarray, np.ndarray]
"""Rows to be written: their section, the first place in it, the rows' ids [m] and the rows [m, *features]."""


class Gathering:
    """Sections of rows that are cheap anywhere, read in the order they are stored in."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self.rows = sections[0].rows
        self.sections = sections
        self._starts = np.cumsum([0, *map(len, sections)])

    @property
    def pieces(self) -> list[range]:
        """Cut all positions into pieces."""
        return _ranges(int(self._starts[-1]), max(1, PIECE // row_bytes(self.rows)))

    def read(self, piece: range) -> Iterator[Arrival]:
        """Read the rows of a piece and yield them by sections."""
        first, last = np.searchsorted(self._starts, [piece.start, piece.stop - 1], side="right") - 1
        begins = [max(piece.start, int(start)) for start in self._starts[first : last + 1]]
        ends = [min(piece.stop, int(end)) for end in self._starts[first + 1 : last + 2]]
        slots = [
            begin - int(start) for begin, start in zip(begins, self._starts[first : last + 1], strict=True)
        ]
        sections = self.sections[first : last + 1]
        spans = list(zip(sections, slots, begins, ends, strict=True))
        ids = [section.ids[slot : slot + end - begin] for section, slot, begin, end in spans]
        block = self.rows[np.concatenate(ids)]
        for (section, slot, begin, end), own in zip(spans, ids, strict=True):
            yield section, slot, own, block[begin - piece.start : end - piece.start]


class SweptReading:
    """Sections of rows that are cheap only in their own order, read once from front to back."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self.rows = sections[0].rows
        self.sections = sections
        step = max(1, getattr(self.rows, "step", 1) or 1)
        self.pieces = _ranges(self.rows.shape[0], step * max(1, PIECE // (step * row_bytes(self.rows))))
        self._buckets = [(section, bucket) for section in sections for bucket in section.buckets]
        self._ids = [np.sort(section.ids[bucket.start : bucket.stop]) for section, bucket in self._buckets]
        edges = [piece.start for piece in self.pieces] + [self.rows.shape[0]]
        self._cuts = np.stack([np.searchsorted(ids, edges).astype(np.int32) for ids in self._ids])

    def read(self, piece: range) -> Iterator[Arrival]:
        """Read a piece of the source and yield its rows by buckets,
        each at the next free place of its bucket."""
        number = self.pieces.index(piece)
        begins, ends = self._cuts[:, number], self._cuts[:, number + 1]
        if not (found := np.flatnonzero(ends > begins)).size:
            return
        block = self.rows[piece.start : piece.stop]
        for at in found.tolist():
            section, bucket = self._buckets[at]
            ids = self._ids[at][begins[at] : ends[at]]
            yield section, bucket.start + int(begins[at]), ids, block[ids - piece.start]


def passes(sections: Sequence[Section]) -> list[Gathering | SweptReading]:
    """Group sections by the rows they are taken from; each group is read by itself."""
    groups: dict[int, list[Section]] = {}
    for section in sections:
        if len(section):
            groups.setdefault(id(section.rows), []).append(section)
    return [SweptReading(group) if group[0].swept else Gathering(group) for group in groups.values()]


def sequential(rows: Rows) -> bool:
    """Tell whether rows are cheap only in their own order."""
    large = math.prod(rows.shape) * rows.dtype.itemsize > SMALL
    return bool(getattr(rows, "sequential", False)) or (large and mapping_of(rows) is not None)


def _ranges(length: int, step: int) -> list[range]:
    return [range(start, min(start + step, length)) for start in range(0, length, step)]
