"""Examples that occur more than once, found by 8-byte hashes of their features and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mpifl.data import Column, Ragged

HELD_OUT = ("valid", "test")
"""The splits that nothing is trained on; the server may train on the public examples."""
MOST_PAIRS = 20
"""Pairs of shards that are named before the rest is counted."""


@dataclass(frozen=True)
class Span:
    """Where the hashes of a split stand among all."""

    file: str
    split: str
    start: int


class Hashes:
    """The hashes of all examples of a folder, in the order they are added."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._arrays: list[np.ndarray] = []
        self._ends: list[np.ndarray] = []
        self._length = 0

    def add(self, file: str, split: str, *arrays: Column, ends: np.ndarray | None = None) -> None:
        """Hash the rows of a piece [m, ...] and their targets [m, ...]; those of a split follow one another.

        It is Python's own hash of bytes (SipHash, 64 bits, other values in every process): of 30 million
        different examples two have the same with a probability of 2e-5.
        """
        if not self.spans or (self.spans[-1].file, self.spans[-1].split) != (file, split):
            self.spans.append(Span(file, split, self._length))
        plain = [part for part in arrays if not isinstance(part, Ragged)]
        hashes = [_hashes(plain)] if plain else []
        hashes += [_hashes_of_ragged(part) for part in arrays if isinstance(part, Ragged)]
        found = hashes[0] if len(hashes) == 1 else _hashes(hashes)
        self._arrays.append(found)
        self._ends.append(np.zeros(len(found), bool) if ends is None else ends)
        self._length += len(found)

    def whole(self) -> np.ndarray:
        """Return all hashes, int64."""
        self._arrays = [np.concatenate(self._arrays)] if self._arrays else [np.zeros(0, np.int64)]
        return self._arrays[0]

    def ends(self) -> np.ndarray:
        """Return which examples are short ends of longer texts, bool."""
        return np.concatenate(self._ends) if self._ends else np.zeros(0, bool)

    def held(self) -> np.ndarray:
        """Return which examples are held out, bool."""
        starts = [span.start for span in self.spans]
        lengths = np.diff([*starts, self._length])
        return np.repeat(np.array([span.split in HELD_OUT for span in self.spans], bool), lengths)

    def places(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the spans of the examples at some positions, by their numbers, and the places in them."""
        starts = np.array([span.start for span in self.spans])
        spans = np.searchsorted(starts, positions, side="right") - 1
        return spans, positions - starts[spans]


def _hashes(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return a hash for each row of some arrays together."""
    columns = [np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8) for part in arrays]
    rows = np.concatenate(columns, axis=1)
    width, content = rows.shape[1], rows.tobytes()
    hashes = (hash(content[at : at + width]) for at in range(0, len(content), width))
    return np.fromiter(hashes, np.int64, len(rows))


def _hashes_of_ragged(examples: Ragged) -> np.ndarray:
    """Return a hash for each example."""
    rows = np.ascontiguousarray(examples.joined)
    content, row = rows.tobytes(), rows[:1].nbytes
    hashes = (hash(content[a * row : b * row]) for a, b in pairwise(examples.offsets.tolist()))
    return np.fromiter(hashes, np.int64, len(examples))


class Equal(NamedTuple):
    """Equal examples: in which file, what was found, whether some are trained on and held out, too, and in
    which other file; that is "" of the rest."""

    file: str
    what: str
    leak: bool
    other: str = ""


def duplicates(hashes: Hashes) -> Iterator[Equal]:
    """Yield what is trained on and held out, too, then what else is twice;
    first what one shard has by itself."""
    leaks, ends, copies = _pairs(hashes)
    for pairs, noun, leak in ((leaks, "example", True), (ends, "short end of longer texts", False)):
        for (file, other), (count, first, second) in _sorted(found := _by_files(hashes, pairs)):
            what = f"{_many(count, noun)} trained on here {'is' if count == 1 else 'are'} held out"
            where = "too, first" if file == other else f"in {other}, first"
            yield Equal(file, f"{what} {where} {first} = {second}{' there' * (file != other)}", leak, other)
        yield from _rest(found, leak=leak)
    for (file, other), (count, first, second) in _sorted(found := _by_files(hashes, copies)):
        twice = "more than once, first" if file == other else f"also in {other}, first"
        yield Equal(
            file, f"{_many(count, 'example')} {twice} {first} = {second}{' there' * (file != other)}", False
        )
    yield from _rest(found, leak=False)


def _sorted(found: Twins) -> list[tuple[tuple[str, str], tuple[int, str, str]]]:
    """Return what one shard has by itself, and the pairs of shards that have most in common."""
    alone = sorted(item for item in found.items() if item[0][0] == item[0][1])
    return [*alone, *_shared(found)[:MOST_PAIRS]]


def _shared(found: Twins) -> list[tuple[tuple[str, str], tuple[int, str, str]]]:
    return sorted((item for item in found.items() if item[0][0] != item[0][1]), key=lambda item: -item[1][0])


def _rest(found: Twins, *, leak: bool) -> Iterator[Equal]:
    if rest := _shared(found)[MOST_PAIRS:]:
        files = sorted({file for pair, _ in rest for file in pair})
        yield Equal(
            files[0],
            f"{len(rest)} more pairs of shards have examples in common, of {len(files)} shards",
            leak,
        )


Twins = dict[tuple[str, str], tuple[int, str, str]]
"""By pairs of files: how many examples of the second are in the first too,
and where the first such example stands."""


def _pairs(hashes: Hashes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hold equal examples against each other, by their positions.

    Returns:
        For every held-out example that is trained on, too: the first that trains, and it [n, 2]. The same of
        short ends of longer texts, which are not among these. For every other that occurred before: the one
        before it, and it [m, 2].
    """
    values, held = hashes.whole(), hashes.held()
    order = np.lexsort((held, values))  # of equal ones those that train come first
    again = np.concatenate([[False], values[order[1:]] == values[order[:-1]]])[: len(order)]
    first = order[np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))]
    leak = held[order] & ~held[first]
    before = np.concatenate([order[:1], order[:-1]])
    short, with_first = hashes.ends()[order], np.stack([first, order], axis=1)
    pairs = (
        with_first[leak & ~short],
        with_first[leak & short],
        np.stack([before, order], axis=1)[again & ~leak],
    )
    leaks, ends, copies = (found[np.argsort(found[:, 0], kind="stable")] for found in pairs)
    return leaks, ends, copies


def _by_files(hashes: Hashes, pairs: np.ndarray) -> Twins:
    """Count pairs of positions by the files that they stand in."""
    if not len(pairs):
        return {}
    files = sorted({span.file for span in hashes.spans})
    number = np.array([files.index(span.file) for span in hashes.spans])
    (first, at_first), (second, at_second) = hashes.places(pairs[:, 0]), hashes.places(pairs[:, 1])
    codes = number[first] * len(files) + number[second]
    both, begins, counts = np.unique(codes, return_index=True, return_counts=True)
    found = {}
    for pair, begin, count in zip(both.tolist(), begins.tolist(), counts.tolist(), strict=True):
        names = [hashes.spans[spans[begin]].split for spans in (first, second)]
        here, there = f"{names[0]} {at_first[begin]}", f"{names[1]} {at_second[begin]}"
        found[files[pair // len(files)], files[pair % len(files)]] = count, here, there
    return found


def _many(count: int, noun: str) -> str:
    first, of, rest = noun.partition(" of ")
    return f"{count:,} {first}{'s' * (count > 1)}{of}{rest}"
