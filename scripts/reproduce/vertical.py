"""Vertical federated learning: VFLAIR's MNIST halves and its Adult, VertiBench's letter.

Beside each split network stand the same network in one place, and that of the label holder alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from data_prep.sources.adult import read_adult
from mpifl.common.errors import InputError
from mpifl.report.runs.run_summary import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import percent

LETTER = "letter-recognition.data"
SPEC = Path(__file__).with_name("letter.toml")
ONE = "--scheme iid --silos 1"


class NumbersFirst(Cut):
    """Adult with its columns as VFLAIR orders them: six numbers, then workclass (9) and other categories."""

    def source(self, seed: int, quick: bool) -> str:
        """Write the rows to a file of arrays, and name that."""
        if quick:
            return super().source(seed, quick)
        try:
            data = read_adult(None, seed)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        names = data.feature_names or ()
        order = sorted(range(len(names)), key=lambda column: "=" in names[column])
        path = self.folder(seed, quick).with_suffix(".npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        x_test, y_test = data.test
        np.savez(path, x=data.x[:][:, order], y=data.y[:], x_test=x_test[:][:, order], y_test=y_test[:])
        return f"{super().source(seed, quick)} --data {path}"


class Letters(Cut):
    """A cut of the letters, whose file is among the data sets."""

    def source(self, seed: int, quick: bool) -> str:
        """Say where the file is."""
        folder = Path(os.environ.get("MPIFL_DATA", "data"))
        found = next(folder.glob(f"*/{LETTER}"), None)
        if quick:
            return super().source(seed, quick)
        if found is None:
            print(f"error: set MPIFL_DATA to a folder that has letter-recognition/{LETTER}", file=sys.stderr)
            raise SystemExit(2)
        return f"{super().source(seed, quick)} --data {found}"


def figures(runs: list[Summary]) -> tuple[str, ...]:
    """Return the test accuracy after the last round and the best one, over the seeds."""
    curves = [[a for record in run.records if (a := _accuracy(record)) is not None] for run in runs]
    return percent([curve[-1] for curve in curves], 2), percent([max(curve) for curve in curves], 2)


def _accuracy(record: dict[str, float]) -> float | None:
    """Read the accuracy on the test rows, which the server or the only silo holds."""
    return record.get("test_accuracy", record.get("silo_accuracy_pooled"))


DIGITS, HALVES = (
    "digits --scheme iid --silos 1",
    "--scheme vertical --silos 2 --columns contiguous --label-silo 1",
)
QUARTERS = "--scheme vertical --silos 4 --columns contiguous"
MNIST = (
    Cut("vflair-mnist-joined", f"mnist {ONE}", DIGITS),
    Cut("vflair-mnist", f"mnist {HALVES}", f"digits {HALVES}"),
)
PARTIES = "--scheme vertical --sizes {} --columns contiguous --label-silo 1"
ADULT = (
    NumbersFirst("vflair-adult-joined", f"npz {ONE}", DIGITS),
    NumbersFirst("vflair-adult", f"npz {PARTIES.format('15,93')}", f"digits {PARTIES.format('15,49')}"),
)
HELD = "--test 0.2 --no-stratify"
BY_SPEC = f"--option spec={SPEC}"
LETTERS = (
    Letters("vertibench-letter-joined", f"csv {ONE} {HELD} {BY_SPEC}", DIGITS),
    Letters("vertibench-letter", f"csv {QUARTERS} {HELD} {BY_SPEC}", f"digits {QUARTERS}"),
)
"""Each set in one silo, and split."""


def split(hidden: list[int], merge: str, top: str, cut: int, *more: str) -> tuple[str, ...]:
    """Return the settings of a network that is split."""
    network = f"split={{cut_width={cut}, merge='{merge}', top={top}}}"
    return f"model={{name='mlp', hidden={hidden}}}", "algorithm.name=splitnn", network, *more


def whole(cut: Cut, holder: int, *quick: str) -> tuple[Cell, ...]:
    """Return the cells of the network in one place, and of the label holder alone."""
    alone = (f"model.silos=[{holder}]",)
    return (
        Cell("in one place", "", cut, quick=quick),
        Cell("label holder alone", "", cut, alone, quick=quick),
    )


HEAD = "{name='logreg'}"


def of_vflair(cuts: tuple[Cut, Cut], hidden: list[int], cut: int, tiny: str) -> tuple[Cell, ...]:
    """Return the cells of both ways in which VFLAIR merges; `tiny` are the widths of silos of digits."""
    joined, apart = cuts
    ten, widths = "split.cut_width=10", (f"model.widths={tiny}", "model.cut=10")
    return (
        Cell("split, sum", "", apart, split(hidden, "sum", "'none'", cut), quick=(ten,)),
        Cell("split, linear top", "", apart, split(hidden, "concat", HEAD, cut), quick=(ten,)),
        *whole(joined, 1, *widths),
        Cell("in one place, linear top", "", joined, ("model.top=[]",), quick=widths),
    )


def bcd(steps: int) -> Cell:
    """Return a cell of FedBCD at VFLAIR's learning rate, or of what it is held against."""
    settings = split([32], "sum", "'none'", 10, f"algorithm.local_steps={steps}", "local.lr=0.005")
    return Cell(f"split, sum, lr = 0.005, Q = {steps}", "", MNIST[1], settings)


HEADINGS = ("last test accuracy %", "best %")
TABLES = {
    "vflair-mnist": Table(
        "VFLAIR (Zou et al. 2024): MNIST in two halves, the lower with the labels",
        "vflair-mnist.toml",
        (*of_vflair(MNIST, [32], 10, "[32, 32]"), bcd(1), bcd(5)),
        HEADINGS,
        figures,
    ),
    "vflair-adult": Table(
        "VFLAIR (Zou et al. 2024): Adult, 15 and 93 columns, the latter with the labels",
        "vflair-adult.toml",
        of_vflair(ADULT, [64, 128, 64], 2, "[15, 49]"),
        HEADINGS,
        figures,
    ),
    "vertibench-letter": Table(
        "VertiBench (Wu et al. 2024): letter, four parties of four columns, the first with the labels",
        "vertibench-letter.toml",
        (
            Cell("split", "", LETTERS[1], split([100], "concat", "{name='mlp', hidden=[200]}", 100)),
            *whole(LETTERS[0], 0, "model.widths=[16, 16, 16, 16]"),
        ),
        HEADINGS,
        figures,
    ),
}
