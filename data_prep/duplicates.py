"""Examples that occur more than once, found by 8-byte hashes of their features and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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
        self._length = 0

    def add(self, file: str, split: str, x: np.ndarray, y: np.ndarray) -> None:
        """Hash the rows of a piece [m, ...] and their labels [m, ...]; those of a split follow one another.

        It is Python's own hash of bytes (SipHash, 64 bits, other values in every process): of 30 million different
        examples two have the same with a probability of 2e-5.
        """
        if not self.spans or (self.spans[-1].file, self.spans[-1].split) != (file, split):
            self.spans.append(Span(file, split, self._length))
        columns = [np.ascontiguousarray(part).reshape(len(part), -1).view(np.uint8) for part in (x, y)]
        rows = np.concatenate(columns, axis=1)
        width, content = rows.shape[1], rows.tobytes()
        hashes = (hash(content[at : at + width]) for at in range(0, len(content), width))
        self._arrays.append(np.fromiter(hashes, np.int64, len(rows)))
        self._length += len(rows)

    def whole(self) -> np.ndarray:
        """Return all hashes, int64."""
        self._arrays = [np.concatenate(self._arrays)] if self._arrays else [np.zeros(0, np.int64)]
        return self._arrays[0]

    def places(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the spans of the examples at some positions, by their numbers, and the places in them."""
        starts = np.array([span.start for span in self.spans])
        spans = np.searchsorted(starts, positions, side="right") - 1
        return spans, positions - starts[spans]


def duplicates(hashes: Hashes) -> Iterator[tuple[str, str]]:
    """Yield file and finding: first what is twice in one shard, then what several share."""
    twins = _twins(hashes)
    alone = {pair: found for pair, found in twins.items() if pair[0] == pair[1]}
    for (file, _), (count, first, second) in sorted(alone.items()):
        yield file, f"{_examples(count)} more than once, first {first} = {second}"
    shared = sorted(((pair, found) for pair, found in twins.items() if pair[0] != pair[1]), key=lambda one: -one[1][0])
    for (file, other), (count, first, second) in shared[:MOST_PAIRS]:
        yield file, f"{_examples(count)} also in {other}, first {first} = {second} there"
    if rest := shared[MOST_PAIRS:]:
        files = sorted({file for pair, _ in rest for file in pair})
        yield files[0], f"{len(rest)} more pairs of shards have examples in common, of {len(files)} shards"


Twins = dict[tuple[str, str], tuple[int, str, str]]
"""By pairs of files: how many examples of the second are in the first too, and where the first such example stands."""


def _twins(hashes: Hashes) -> Twins:
    """Hold every example that occurred before against the one before it."""
    values = hashes.whole()
    order = np.argsort(values, kind="stable")
    again = np.flatnonzero(values[order[1:]] == values[order[:-1]])
    again = again[np.argsort(order[again])]
    if not len(again):
        return {}
    files = sorted({span.file for span in hashes.spans})
    number = np.array([files.index(span.file) for span in hashes.spans])
    (first, at_first), (second, at_second) = hashes.places(order[again]), hashes.places(order[again + 1])
    codes = number[first] * len(files) + number[second]
    pairs, begins, counts = np.unique(codes, return_index=True, return_counts=True)
    found = {}
    for pair, begin, count in zip(pairs.tolist(), begins.tolist(), counts.tolist(), strict=True):
        names = [hashes.spans[spans[begin]].split for spans in (first, second)]
        here, there = f"{names[0]} {at_first[begin]}", f"{names[1]} {at_second[begin]}"
        found[files[pair // len(files)], files[pair % len(files)]] = count, here, there
    return found


def _examples(count: int) -> str:
    return f"{count:,} example{'s' * (count > 1)}"
