"""T. Dinh et al. 2020 (pFedMe) on MNIST, beside the curves in the authors' repository."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

from data_prep.sources.mnist import read_mnist
from mpifl.common.errors import InputError
from mpifl.report.runs.run_summary import Summary
from scripts.reproduce.cells import Cell, Cut, Table
from scripts.reproduce.scores import percent

SILOS, CLASSES = 20, 10
OWNERS = 2 * SILOS // CLASSES
"""Silos with a digit: silo k has the digits k and k + 1, modulo 10."""
EARLIEST = 10
"""Of so many images the authors' script looks at the labels, where it means a count of what is taken."""
ONE = 7
"""The seed that the cut's folder has in its name; nothing of it is drawn by that."""
OFFSET = 1e-3
"""What is added to the deviation of a pixel."""


def sizes_of(labels: np.ndarray) -> np.ndarray:
    """Draw how many images of each digit its owners have, int [OWNERS, CLASSES]: a fifth to a half of the
    rest.
    """
    rng = np.random.RandomState(1)
    sizes = np.zeros((OWNERS, CLASSES), int)
    for digit, left in enumerate(np.bincount(labels, minlength=CLASSES).tolist()):
        for owner in range(OWNERS - 1):
            sizes[owner, digit] = taken = rng.randint(left // (OWNERS + 1), left // 2)
            left -= taken
        sizes[-1, digit] = left
    return sizes


def deal(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Deal images as the authors' script did when they drew their curves (commit 20729ca).

    Each silo gets the first images of a digit, so silos share images. The first image of a digit is left out
    if it was taken before, and labels are not: one image of such a silo has its other digit's label.

    Args:
        labels: Of all images, training images first, int [n].

    Returns:
        Of each row of a silo the image, the label, the silo, and whether it is tested on.
    """
    images = [np.flatnonzero(labels == digit) for digit in range(CLASSES)]
    begun = labels[:EARLIEST] == CLASSES - 1
    sizes, shuffle = sizes_of(labels).ravel(), random.Random(1)
    silos = []
    for silo in range(SILOS):
        own, said = [], []
        for nth, digit in enumerate((silo % CLASSES, (silo + 1) % CLASSES)):
            size = sizes[2 * silo + nth]
            own.append(images[digit][int(begun[digit]) : size])
            said.append(np.full(size, digit))
            begun[digit] = True
        rows = np.concatenate(own)
        order = list(range(len(rows)))
        shuffle.shuffle(order)
        test = np.arange(len(rows)) >= len(rows) * 3 // 4
        silos.append((rows[order], np.concatenate(said)[order], np.full(len(rows), silo), test))
    image, label, owner, tested = (np.concatenate(part) for part in zip(*silos, strict=True))
    return image, label, owner, tested


class TwoDigits(Cut):
    """The authors' silos of two digits, one cut for all seeds.

    The server's test set has the rows that silos test on.
    """

    def folder(self, seed: int, quick: bool) -> Path:
        """Return the folder of the one cut."""
        return super().folder(ONE, quick)

    def make(self, seed: int, quick: bool) -> None:
        """Cut the data once for all seeds."""
        super().make(ONE, quick)

    def source(self, seed: int, quick: bool) -> str:
        """Write the silos' rows to a file of arrays, and name that."""
        if quick:
            return super().source(seed, quick)
        try:
            data = read_mnist("mnist", None, seed)
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        assert data.test is not None
        x = np.concatenate([data.x[:], data.test[0][:]]).astype(np.float64)
        x = ((x - x.mean(0)) / (x.std(0) + OFFSET)).astype(np.float32)
        image, y, silo, test = deal(np.concatenate([data.y[:], data.test[1][:]]))
        path = self.folder(seed, quick).with_suffix(".npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        x = x[image]
        np.savez(path, x=x, y=y, silo=silo, held_out=test, x_test=x[test], y_test=y[test])
        return f"{super().source(seed, quick)} --data {path}"


def figures(runs: list[Summary]) -> tuple[str, ...]:
    """Return the accuracy over all silos' test rows after the last round: of the silos' models and of the
    global one."""
    keys = ("silo_accuracy_pooled", "test_accuracy")
    return tuple(percent([float(run.records[-1].get(key, 0.0)) for run in runs], 2) for key in keys)


DIGITS = "digits --silos 4 --scheme classes --classes 3 --test 0.25"
CUT = TwoDigits("pfedme-mnist", "npz --scheme natural", DIGITS)
PFEDME = ("algorithm.name=pfedme", "algorithm.lambda=15.0", "algorithm.inner_steps=5")
METHODS = {
    "pFedMe, R = 20": ("94.54 / 93.41", (*PFEDME, "algorithm.inner_lr=0.1")),
    "pFedMe, R = 10": ("– / 92.86", (*PFEDME, "algorithm.inner_lr=0.09", "local.steps=10")),
    "FedAvg, R = 20": ("– / 93.09", ()),
}
"""The last of 800 points of the authors' curves, silos' models / global model, and the settings.

The names of their files hold the settings. pFedMe's are means of several runs: R = 20 of commit 378a4d4,
R = 10 of caf24b1. FedAvg's is of one run, of e6aed96.
"""
TABLES = {
    "pfedme-mnist": Table(
        "T. Dinh et al. 2020 (pFedMe), MNIST: 20 silos of two digits, logistic regression, 800 rounds",
        "pfedme-mnist.toml",
        tuple(
            Cell(name, curve, CUT, settings, seeds=(7, 8, 9)) for name, (curve, settings) in METHODS.items()
        ),
        ("silos' models %", "global model %"),
        figures,
        quick=("cohort.fraction=0.5",),
        published="the authors' curves",
    )
}
