"""Breast cancer patients of The Cancer Genome Atlas in six regions, as FLamby's Fed-TCGA-BRCA has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from data_prep.model import Dataset
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
    patients, split = (_table(folder, name, files) for name in (PATIENTS, SPLIT))
    where = folder / PATIENTS
    for path, table, columns in (
        (where, patients, ("pid", "E", "T")),
        (folder / SPLIT, split, ("pid", "fold2")),
    ):
        if missing := [name for name in columns if name not in table.column_names]:
            raise InputError(f"{path}: has no column '{missing[0]}'; the folder is {HOLDS}")
    folds = dict(zip(split["pid"].to_pylist(), split["fold2"].to_pylist(), strict=True))
    every = len(patients)
    patients = patients.filter(pc.is_in(patients["pid"], pc.unique(split["pid"])))
    each = [_fold(folder / SPLIT, pid, folds) for pid in patients["pid"].to_pylist()]
    names = [name for name in patients.column_names if name not in ("pid", "E", "T")]
    arrays: dict[str, Any] = {
        "x": np.stack([_numbers(where, patients, name) for name in names], axis=1).astype(np.float32),
        "y_time": _numbers(where, patients, "T").astype(np.float32),
        "y_event": _numbers(where, patients, "E").astype(np.int64),
        "silo": np.array([number for number, _ in each]),
        "held_out": np.array([tested for _, tested in each]),
    }
    dropped = {"rows": every - len(each), "of": every, "columns": {"fold2": every - len(each)}, "silos": {}}
    made, done = dataset_of(where, arrays, files), {"dropped": dropped} if dropped["rows"] else {}
    return replace(made, silo_names=dict(enumerate(REGIONS)), feature_names=tuple(names), done=done)


def _table(folder: Path, name: str, files: dict[str, str]) -> pa.Table:
    path = noted(held_in(folder, folder / name), files)
    try:
        return pyarrow.csv.read_csv(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a table ({str(error).splitlines()[0][:80]}); copy it again") from None


def _fold(path: Path, pid: object, folds: dict[object, object]) -> tuple[int, bool]:
    """Return the region of a patient, and whether the patient is held out."""
    if (fold := folds[pid]) not in FOLDS:
        raise InputError(f"{path}: patient {pid} has fold2 = '{fold}'; copy the file again")
    return FOLDS[str(fold)]


def _numbers(path: Path, table: pa.Table, name: str) -> np.ndarray:
    try:
        return np.asarray(table[name].cast(pa.float64()).to_numpy())
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {name}: {str(error).splitlines()[0][:80]}; copy the file again") from None
