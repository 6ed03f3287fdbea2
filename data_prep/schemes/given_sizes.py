"""Schemes whose sizes are stated, in all or of each class; who gets which example is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from data_prep.dataset import Cut, Dataset
from data_prep.schemes.grouping import deal, histogram, sorted_by_label
from data_prep.schemes.scheme import Options, Scheme, check_smallest, column_of
from mpifl.common import InputError

MOST_FILE = 1 << 24
"""Bytes of a file of counts."""


def sizes(labels: np.ndarray, silos: int, rng: np.random.Generator, *, sizes: str = "") -> list[np.ndarray]:
    """Deal shuffled examples in sizes that are given: numbers that add up to all, or shares that add up to 1.

    Of shares, whole examples are left over; they go to the silos with the largest remainders.
    """
    given = _row("--sizes", sizes)
    wanted = counted("--sizes", [[one] for one in given], np.array([len(labels)]), ["examples"])
    return np.split(rng.permutation(len(labels)), np.cumsum(wanted[0])[:-1])


def counts(labels: np.ndarray, silos: int, rng: np.random.Generator, *, counts: str = "") -> list[np.ndarray]:
    """Deal examples so that each silo has as many of each class as a matrix says: a row for each silo, a
    column for each class, as `30,0;0,40`, or a file of such lines.

    A class's column adds up to all of its examples, or to 1: it is shares then.
    """
    matrix = [_row("--counts", row) for row in rows_of(counts)]
    of_class = histogram(labels)
    of_class = np.pad(of_class, (0, max(0, len(matrix[0]) - len(of_class))))  # the last ones may not occur
    names = [f"class {one}" for one in range(len(of_class))]
    wanted = counted("--counts", matrix, of_class, names)
    return deal(sorted_by_label(labels, rng), wanted)


def rows_of(matrix: str) -> list[str]:
    """Return the rows of a matrix, which is given itself or in a file."""
    if not any(mark in matrix for mark in ",;") and matrix:
        path = Path(matrix)
        try:
            if path.stat().st_size > MOST_FILE:
                raise InputError(f"--counts: {matrix} has more than {MOST_FILE:,} bytes; name the matrix")
            matrix = ";".join(line for line in path.read_text("utf-8-sig").splitlines() if line.strip())
        except (OSError, ValueError) as error:
            told = "write rows as 30,0;0,40, or name a file of them"
            raise InputError(f"--counts: {matrix} cannot be read ({error}); {told}") from None
    return matrix.split(";")


def counted(option: str, matrix: list[list[Fraction]], of: np.ndarray, names: list[str]) -> np.ndarray:
    """Return how many of each kind every silo gets, int [kinds, silos]; `of` is how many there are.

    Raises:
        InputError: a row has another length, or a column adds up neither to what there is nor to 1.
    """
    for silo, row in enumerate(matrix):
        if len(row) != len(of):
            raise InputError(f"{option}: row {silo} has {len(row)} numbers; there are {len(of)} classes")
    found = np.zeros((len(of), len(matrix)), np.int64)
    for kind, column in enumerate(zip(*matrix, strict=True)):
        total, size = sum(column), int(of[kind])
        if total == size and all(one.denominator == 1 for one in column):
            found[kind] = [int(one) for one in column]
        elif total == 1:
            exact = [one * size for one in column]
            found[kind] = [int(one) for one in exact]
            left = sorted(range(len(exact)), key=lambda one: (found[kind, one] - exact[one], one))
            found[kind, left[: size - int(found[kind].sum())]] += 1
        else:
            what = f"{names[kind]}: {float(total):g} in all, there are {size:,}"
            raise InputError(f"{option}: {what}; numbers add up to these, and shares to 1")
    return found


def _row(option: str, text: str) -> list[Fraction]:
    try:
        row = [Fraction(word.strip()) for word in text.split(",")] if text.strip() else []
    except (ValueError, ZeroDivisionError):
        row = []
    if not row or min(row) < 0:
        raise InputError(
            f"{option}: '{text[:60]}' given; write numbers or shares of silos, as 100,50 or 0.7,0.3"
        )
    return row


@dataclass(frozen=True)
class Stated(Scheme):
    """A scheme whose options say how many silos there are."""

    def __call__(self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options) -> Cut:
        """Cut a data set into as many silos as are stated."""
        text = options.get("sizes") or options.get("counts") or ""
        stated = len(rows_of(text) if "counts" in options else _row("--sizes", text))
        option = "--counts" if "counts" in options else "--sizes"
        if silos not in (None, stated):
            raise InputError(f"{option}: of {stated} silos, --silos says {silos}; leave --silos out")
        own = {name: options[name] for name in ("sizes", "counts") if name in options}
        parts = self.assign(column_of(data, self), stated, rng, **own)
        check_smallest(parts, options["min_examples"])
        return Cut(parts)
