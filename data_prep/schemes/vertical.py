"""The scheme that cuts columns in place of examples: every silo has all rows, and one of them the labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.model import Cut, Dataset
from data_prep.schemes.scheme import Options, Scheme
from mpifl.common import InputError


def deal_columns(
    columns_of_all: int,
    silos: int | None,
    rng: np.random.Generator,
    *,
    label_silo: int = 0,
    columns: str = "shuffled",
) -> list[np.ndarray]:
    """Deal columns 0, 1, ... to silos, as many to each but for one unless said; a silo's are in ascending
    order.

    Args:
        columns_of_all: How many columns a flattened example has.
        silos: How many silos there are.
        rng: What draws the columns.
        label_silo: The silo that holds the labels.
        columns: "shuffled", or "contiguous": neighbours stay together and nothing is drawn. Or each silo's
            number of neighbouring columns, as "15,93"; then `silos` may be None.
    """
    if columns.replace(",", "").isdecimal():
        sizes = _sizes(columns, columns_of_all)
        if silos not in (None, len(sizes)):
            raise InputError(f"--silos: {silos} given; --columns {columns} is of {len(sizes)}")
        _check_holder(label_silo, len(sizes))
        return np.split(np.arange(columns_of_all), np.cumsum(sizes)[:-1])
    if silos is None or not 1 <= silos <= columns_of_all:
        given = "not" if silos is None else silos
        raise InputError(
            f"--silos: {given} given; {columns_of_all} columns go to 1 to {columns_of_all} silos"
        )
    _check_holder(label_silo, silos)
    if columns not in ("shuffled", "contiguous"):
        raise InputError(f"--columns: '{columns}' given; it is shuffled, contiguous, or numbers as 15,93")
    order = rng.permutation(columns_of_all) if columns == "shuffled" else np.arange(columns_of_all)
    return [np.sort(block) for block in np.array_split(order, silos)]


def _sizes(columns: str, columns_of_all: int) -> list[int]:
    """Read each silo's number of columns, which are all columns together."""
    sizes = [int(size or 0) for size in columns.split(",")]
    if min(sizes) < 1 or sum(sizes) != columns_of_all:
        told = f"{columns} given, {sum(sizes)} together"
        raise InputError(f"--columns: {told}; each silo has at least 1 of {columns_of_all}")
    return sizes


def _check_holder(label_silo: int, silos: int) -> None:
    if not 0 <= label_silo < silos:
        raise InputError(f"--label-silo: {label_silo} given; the silos are 0 to {silos - 1}")


@dataclass(frozen=True)
class Vertical(Scheme):
    """A scheme of columns; `data_prep.cut.vertical` writes what it deals."""

    def __call__(self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options) -> Cut:
        """Refuse: there is nothing in it for examples."""
        raise InputError(
            "--scheme: vertical cuts columns, not examples; use data_prep.cut.vertical.partition_columns"
        )
