"""UCI Heart Disease: four hospitals that are silos by nature, prepared as FLamby's Fed-Heart-Disease is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Dataset
from data_prep.schemes import Shares
from data_prep.sources.reading import held_in, known_folder
from mpifl.common import InputError
from mpifl.common.machine import floors

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")
"""The columns that are used; slope, ca and thal, which most hospitals lack,
and the diagnosis stand behind them."""
WIDTH = 14
LEVELS = {"sex": (0, 1), "cp": (1, 2, 3, 4), "fbs": (0, 1), "restecg": (0, 1, 2), "exang": (0, 1)}
"""The values that a column of categories may have."""
DUMMIES = ("cp", "restecg")
"""Columns of which each value but the lowest becomes a column of zeros and ones."""
DIAGNOSES = (0, 1, 2, 3, 4)
HELD_OUT = Shares(test=0.34)
"""FLamby's test share of every hospital."""
FLAMBYS = {"train_size": 0.66, "test_size": 1 - 0.66, "random_state": 43}
"""How FLamby has scikit-learn split a hospital's rows: once for all seeds."""
FEWEST = 2
"""Up to so many rows of a class FLamby's split of a hospital is not stratified."""
ROUNDING = 1e-6
"""A deviation this small beside its mean is what rounding leaves of a constant column."""


def read_heart(data: Path | None, seed: int, *, flamby: bool = False) -> Dataset:
    """Read the four `processed.*.data` files of a folder; `$MPIFL_DATA/heart-disease` if no folder is given.

    Rows that lack a used value are left out (du Terrail et al. 2022, "FLamby", Fed-Heart-Disease). Features
    become float32 [n, 13], standardised by counts, sums and sums of squares that hospitals can add up without
    showing a row. They come of the rows that train with `--scheme natural --test 0.34`: no row that this, or
    a lower share, holds out has a part in them: so rows are held out without regard to their class. A label
    is 1 where the diagnosis is above 0. There is no test set of the server's: what hospitals hold out stays
    with them.

    Args:
        flamby: Whether hospitals hold out the rows that FLamby does, and each is standardised by its own
            other rows, as there.
    """
    folder = known_folder("heart-disease", data, "of the four processed.*.data")
    files: dict[str, str] = {}
    paths = [held_in(folder, folder / f"processed.{name}.data") for name in HOSPITALS]
    every = [_read_hospital(path, files) for path in paths]
    tables = [table[~np.isnan(table).any(axis=1)] for table in every]
    hospitals = [_features(table) for table in tables]
    labels = [(table[:, -1] > 0).astype(np.int64) for table in tables]
    held = [held_out_by_flamby(own) for own in labels] if flamby else None
    x = _standardised(hospitals, seed) if held is None else _standardised_alone(hospitals, held)
    y = np.concatenate(labels)
    silo = np.repeat(np.arange(len(HOSPITALS)), [len(table) for table in tables])
    names = dict(enumerate(HOSPITALS))
    more: dict[str, Any] = {"silo": silo, "silo_names": names, "class_names": ("healthy", "diseased")}
    more |= {"by_rows": True} if held is None else {"held": np.concatenate(held)}
    return Dataset(str(folder), x, y, 2, files, done=_done(every, tables), **more)


def held_out_by_flamby(labels: np.ndarray) -> np.ndarray:
    """Return which rows of a hospital FLamby tests on, bool [n], by its labels 0 and 1.

    Raises:
        InputError: scikit-learn, which splits them, is not installed.
    """
    try:
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise InputError("--flamby: scikit-learn makes that split; pip install 'mpifl[digits]'") from None
    floors.hold("digits")
    rows = np.arange(len(labels))
    few = min(np.bincount(labels, minlength=2)) <= FEWEST
    return np.isin(rows, train_test_split(rows, stratify=None if few else labels, **FLAMBYS)[1])


def _read_hospital(path: Path, files: dict[str, str]) -> np.ndarray:
    """Read the rows of a hospital, float64 [n, used columns and diagnosis], NaN for a value that is missing;
    note the file's sha256."""
    try:
        stored = path.read_bytes()
        lines = stored.decode("ascii").splitlines()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); --data names the folder that holds it"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text; fetch the file again") from None
    files[path.name] = hashlib.sha256(stored).hexdigest()
    rows = [
        _row(line.split(","), f"{path}: line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if all(np.isnan(row).any() for row in rows):
        raise InputError(f"{path}: has no row without a '?' in {', '.join(COLUMNS)}; fetch the file again")
    return np.array(rows)


def _done(every: Sequence[np.ndarray], kept: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return which rows were left out, as `source` of `federation.json` has it."""
    lost = [len(table) - len(own) for table, own in zip(every, kept, strict=True)]
    lacking = np.isnan(np.concatenate(every)).sum(axis=0)
    columns = {name: int(count) for name, count in zip(COLUMNS, lacking, strict=False) if count}
    silos = {name: count for name, count in zip(HOSPITALS, lost, strict=True) if count}
    dropped = {"rows": sum(lost), "of": sum(map(len, every)), "columns": columns, "silos": silos}
    return {"dropped": dropped} if sum(lost) else {}


def _row(fields: Sequence[str], where: str) -> list[float]:
    """Return the used columns and the diagnosis, NaN for a '?'."""
    if len(fields) != WIDTH:
        raise InputError(f"{where}: {len(fields)} values, there must be {WIDTH}; fetch the file again")
    row = [_number(field, f"{where}: {name}") for name, field in zip(COLUMNS, fields, strict=False)]
    for name, levels in LEVELS.items():
        _check_level(row[COLUMNS.index(name)], levels, f"{where}: {name}", missing=True)
    diagnosis = _number(fields[-1], f"{where}: diagnosis")
    _check_level(diagnosis, DIAGNOSES, f"{where}: diagnosis", missing=False)
    return [*row, diagnosis]


def _number(field: str, where: str) -> float:
    if field.strip() == "?":
        return np.nan
    try:
        value = float(field)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"{where} is '{field.strip()[:20]}'; it must be a number, or ? where it is missing")
    return value


def _check_level(value: float, levels: Sequence[int], where: str, *, missing: bool) -> None:
    if not (value in levels or (missing and np.isnan(value))):
        shown = "missing" if np.isnan(value) else f"{value:g}"
        raise InputError(f"{where} is {shown}; it must be one of {', '.join(map(str, levels))}")


def _features(table: np.ndarray) -> np.ndarray:
    """Return the columns as they are, but of a dummy column one for every value above the lowest,
    float64 [n, 13]."""
    columns: list[np.ndarray] = []
    for name, column in zip(COLUMNS, table.T, strict=False):
        columns += [column == level for level in LEVELS[name][1:]] if name in DUMMIES else [column]
    return np.stack(columns, axis=1).astype(np.float64)


def _standardised(hospitals: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """Bring all rows to mean 0 and deviation 1 over the training rows of all hospitals, float32 [n, 13]."""
    train = [x[HELD_OUT.split(np.arange(len(x)), seed, silo)["train"]] for silo, x in enumerate(hospitals)]
    count = sum(len(x) for x in train)
    mean = np.sum([x.sum(axis=0) for x in train], axis=0) / count
    square = np.sum([(x**2).sum(axis=0) for x in train], axis=0) / count
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    constant = deviation <= ROUNDING * np.abs(mean)
    x: np.ndarray = (np.concatenate(hospitals) - mean) / np.where(constant, 1.0, deviation)
    return x.astype(np.float32)


def _standardised_alone(hospitals: Sequence[np.ndarray], held: Sequence[np.ndarray]) -> np.ndarray:
    """Bring each hospital's rows to mean 0 and sample deviation 1 over its own training rows, float32 [n,
    13]."""
    found = list[np.ndarray]()
    for x, tested in zip(hospitals, held, strict=True):
        mean, deviation = x[~tested].mean(axis=0), x[~tested].std(axis=0, ddof=1)
        constant = deviation <= ROUNDING * np.abs(mean)
        found.append((x - mean) / np.where(constant, 1.0, deviation))
    return np.concatenate(found).astype(np.float32)
