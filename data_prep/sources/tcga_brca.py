"""Breast cancer patients of The Cancer Genome Atlas in six regions, as FLamby's Fed-TCGA-BRCA has them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset
from data_prep.sources.arrays import dataset_of
from data_prep.sources.reading import held_in, known_folder, noted
from mpifl.common import InputError

REGIONS = ("northeast", "south", "west", "midwest", "europe", "canada")
"""By their numbers in `fold2`."""
PATIENTS, SPLIT = "brca.csv", "train_test_split.csv"
HOLDS = f"of {PATIENTS} and {SPLIT}, from flamby/datasets/fed_tcga_brca of FLamby's repository"
FOLDS = {
    f"{split}_{number}": (number, split == "test")
    for number in range(len(REGIONS))
    for split in ("train", "test")
}


def read_tcga_brca(data: Path | None, seed: int) -> Dataset:
    """Read brca.csv and train_test_split.csv of a folder; `$MPIFL_DATA/tcga-brca` if no folder is given.

    The 39 clinical features of FLamby (du Terrail et al. 2022, "FLamby", Fed-TCGA-BRCA) become float32 [n,
    39]; nothing is standardised, as there. Targets are `time`, in days, and `event`. Regions are silos by
    nature, and each holds out the patients that FLamby does. Patients without a fold are left out.
    """
    folder = known_folder("tcga-brca", data, HOLDS)
    files: dict[str, str] = {}
    every = _rows(folder, PATIENTS, ("pid", "E", "T"), files)
    where, split = folder / PATIENTS, _rows(folder, SPLIT, ("pid", "fold2"), files)
    folds = {row["pid"]: row["fold2"] for row in split}
    rows = [row for row in every if row["pid"] in folds]
    each = [_fold(folder / SPLIT, row["pid"], folds) for row in rows]
    names = [name for name in every[0] if name not in ("pid", "E", "T")]
    arrays: dict[str, Any] = {
        "x": np.stack([_numbers(where, rows, name) for name in names], axis=1).astype(np.float32),
        "y_time": _numbers(where, rows, "T").astype(np.float32),
        "y_event": _numbers(where, rows, "E").astype(np.int64),
        "silo": np.array([number for number, _ in each]),
        "held_out": np.array([tested for _, tested in each]),
    }
    lost = len(every) - len(rows)
    dropped = {"rows": lost, "of": len(every), "columns": {"fold2": lost}, "silos": {}}
    made, done = dataset_of(where, arrays, files), {"dropped": dropped} if lost else {}
    return replace(made, silo_names=dict(enumerate(REGIONS)), feature_names=tuple(names), done=done)


def _rows(folder: Path, name: str, columns: Sequence[str], files: dict[str, str]) -> list[dict[str, str]]:
    """Return the rows of a file that has at least one, and these columns."""
    path = noted(held_in(folder, folder / name), files)
    try:
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines(), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a table ({error}); copy it again") from None
    if missing := [column for column in columns if not rows or column not in rows[0]]:
        raise InputError(f"{path}: has no column '{missing[0]}'; the folder is {HOLDS}")
    return rows


def _fold(path: Path, pid: str, folds: dict[str, str]) -> tuple[int, bool]:
    """Return the region of a patient, and whether the patient is held out."""
    if (fold := folds[pid]) not in FOLDS:
        raise InputError(f"{path}: patient {pid} has fold2 = '{fold}'; copy the file again")
    return FOLDS[fold]


def _numbers(path: Path, rows: Sequence[dict[str, str]], name: str) -> np.ndarray:
    try:
        return np.array([float(row[name]) for row in rows])
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {name}: {error}; copy the file again") from None
