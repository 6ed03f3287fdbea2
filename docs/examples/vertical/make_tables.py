"""Writes what a hospital and a laboratory know of some of the same persons: python make_tables.py FOLDER"""

import csv
import sys
from pathlib import Path

import numpy as np

PERSONS, HOSPITAL, LABORATORY = 2500, 1600, 2000


def main() -> None:
    folder, draw = Path(sys.argv[1]), np.random.default_rng(8)
    folder.mkdir(parents=True, exist_ok=True)
    age, weight = draw.normal(58, 14, PERSONS).round(), draw.normal(78, 13, PERSONS).round(1)
    glucose, crp = draw.gamma(9, 11, PERSONS).round(), draw.gamma(1.5, 4, PERSONS).round(1)
    group = draw.choice(["A", "B", "AB", "0"], PERSONS)
    risk = 0.05 * (age - 58) + 0.03 * (weight - 78) + 0.04 * (glucose - 99) + 0.15 * (crp - 6)
    back = np.where(draw.random(PERSONS) < 1 / (1 + np.exp(1 - 1.3 * risk)), "yes", "no")
    write(
        folder / "hospital.csv",
        ["patient", "age", "weight", "readmitted"],
        [age, weight, back],
        HOSPITAL,
        draw,
    )
    write(
        folder / "laboratory.csv",
        ["sample_of", "glucose", "crp", "group"],
        [glucose, crp, group],
        LABORATORY,
        draw,
    )


def write(
    path: Path, names: list[str], columns: list[np.ndarray], rows: int, draw: np.random.Generator
) -> None:
    """Write some of all persons, in an order of its own."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(names)
        for person in draw.permutation(PERSONS)[:rows]:
            table.writerow([f"P{person:05}", *(column[person] for column in columns)])


if __name__ == "__main__":
    main()
