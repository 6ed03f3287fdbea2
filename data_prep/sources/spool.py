"""Rows that come one piece after another,
kept in a file without a name so that memory does not grow with them."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from mpifl.common import InputError
from mpifl.data import Column, Ragged


class Spool:
    """Collects pieces [m, *shape] of one dtype; the file, in TMPDIR, goes when nobody uses it any more."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the rows do
        self._rows = 0
        self._like: np.ndarray | None = None

    def append(self, piece: np.ndarray) -> None:
        """Add rows at the end."""
        self._like = piece[:0]
        self._rows += len(piece)
        try:
            self._file.write(np.ascontiguousarray(piece).data)
        except OSError as error:
            where = tempfile.gettempdir()
            raise InputError(
                f"TMPDIR: {where} cannot take the table ({error.strerror}); name a larger one"
            ) from None

    def rows(self) -> np.ndarray:
        """Map all rows into memory; read-only."""
        if self._like is None or not self._rows:
            return np.empty((0, 1), np.float32) if self._like is None else self._like
        self._file.flush()
        shape: Any = (self._rows, *self._like.shape[1:])
        return np.memmap(self._file, dtype=self._like.dtype, mode="r", shape=shape)


class UnevenSpool:
    """Collects pieces that are arrays, or ragged ones: these become an array where all lengths are equal."""

    def __init__(self, ragged: bool = False) -> None:
        self._values, self._lengths, self._ragged = Spool(), list[np.ndarray](), ragged

    def append(self, piece: Column) -> None:
        """Add examples at the end."""
        if isinstance(piece, Ragged):
            self._lengths.append(piece.lengths)
        self._values.append(piece.joined if isinstance(piece, Ragged) else piece)

    def rows(self) -> Column:
        """Map all examples into memory; read-only."""
        values = self._values.rows()
        if not self._lengths:
            return values
        examples = Ragged.flat(values, np.concatenate(self._lengths))
        return examples if self._ragged else evened(examples)


def evened(examples: Column) -> Column:
    """Return ragged examples whose lengths are all equal as an array [n, ...], others as they are."""
    if not isinstance(examples, Ragged) or (examples.lengths != examples.lengths[0]).any():
        return examples
    return examples.joined.reshape(len(examples), int(examples.lengths[0]), *examples.values.shape[1:])
