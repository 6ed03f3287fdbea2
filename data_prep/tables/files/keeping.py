"""A table that is read twice, first to learn of it: a small one is kept, and no text is parsed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from data_prep.tables import TableSpec
from data_prep.tables.files.stream import pieces
from data_prep.tables.values import Gaps, Piece

MOST_KEPT = 1 << 28
"""Bytes of a table that are kept: its numbers, and the text that messages show."""


class Kept:
    """The pieces of a table, which are kept as they are read unless they become too many.

    Args:
        kind: `csv` or `parquet`.
        spec: What its columns mean.
    """

    def __init__(self, kind: str, path: Path, spec: TableSpec) -> None:
        self._kind, self._path, self._spec = kind, path, spec
        self._pieces: list[Piece] | None = None
        self._commented = 0

    def first(self, gaps: Gaps) -> Iterator[Piece]:
        """Yield the rows, and keep them; comments that look like rows are counted in `gaps`."""
        kept: list[Piece] | None = []
        size = 0
        for piece in pieces(self._kind, self._path, self._spec, gaps):
            size += piece.size
            if size > MOST_KEPT:
                kept = None
            if kept is not None:
                kept.append(piece)
            yield piece
        self._pieces, self._commented = kept, gaps.commented

    def again(self, path: Path, gaps: Gaps) -> Iterator[Piece]:
        """Yield the rows of this table once more, or of another, and keep none any longer."""
        kept, self._pieces = self._pieces, None
        if kept is None or path != self._path:
            yield from pieces(self._kind, path, self._spec, gaps)
            return
        gaps.commented += self._commented
        while kept:
            yield kept.pop(0)
