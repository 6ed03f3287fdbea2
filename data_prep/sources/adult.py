"""UCI Adult (census income, Kohavi and Becker 1996), with its own test set."""

from __future__ import annotations

from pathlib import Path

from data_prep.dataset import Dataset
from data_prep.sources.reading import held_in, known_folder
from data_prep.sources.table import table_dataset
from data_prep.tables import TableSpec
from mpifl.common import InputError, choices

NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
NAMES = (
    *(
        "age",
        "workclass",
        "fnlwgt",
        "education",
        "education-num",
        "marital-status",
        "occupation",
        "relationship",
    ),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
CLASSES = (("<=50K", "<=50K."), (">50K", ">50K."))
"""The test file ends its labels with a full stop."""
LACKING = ("workclass", "occupation", "native-country")
"""The columns in which values are missing."""


def read_adult(data: Path | None, seed: int, *, missing: str = "level", silo: str = "") -> Dataset:
    """Read adult.data and adult.test of a folder; `$MPIFL_DATA/adult` if no folder is given.

    Numeric columns are standardised by all rows of adult.data, those included that silos hold out of it
    (`--valid`, `--test`), and none of adult.test. The others become a column for every level, float32 [n,
    108]. A missing value ('?') is a level of its own; with `missing=drop` its row is left out. Label 1 is
    above 50K. `silo` is a column of categories to be natural silos, for instance education (Mohri et al. 2019
    split by it).
    """
    if missing not in ("level", "drop"):
        raise InputError(f"--option: missing={missing} given; it must be level or drop")
    if silo and (silo in NUMERIC or silo not in NAMES[:-1]):
        categories = [name for name in NAMES[:-1] if name not in NUMERIC]
        to_do = choices(silo, categories, "it must be one of")
        raise InputError(f"--option: silo={silo} given; {to_do}")
    folder = known_folder("adult", data, "of adult.data and adult.test")
    files: dict[str, str] = {}
    spec = TableSpec.model_validate(_described(missing, silo))
    data, test = (held_in(folder, folder / name) for name in ("adult.data", "adult.test"))
    return table_dataset("csv", data, test, spec, files)


def _described(missing: str, silo: str) -> dict[str, object]:
    features = {
        name: {
            "kind": "numeric" if name in NUMERIC else "categorical",
            "missing": missing if name in LACKING else None,
        }
        for name in NAMES[:-1]
    }
    described = {
        "label": NAMES[-1],
        "names": NAMES,
        "features": features,
        "classes": CLASSES,
        "missing": ("?",),
    }
    return described | {"standardise": "own", "comment": "|", "silo": silo or None}
