"""Writes the tables of three clinics that do not exist: python make_tables.py FOLDER"""

import csv
import sys
from pathlib import Path

import numpy as np

CLINICS = {"north": (600, 61, 0.1), "south": (300, 54, 0.3), "east": (150, 66, 0.5)}
"""Of each clinic: its patients, their mean age, the share who smoke."""


def main() -> None:
    folder, draw = Path(sys.argv[1]), np.random.default_rng(5)
    folder.mkdir(parents=True, exist_ok=True)
    for clinic, (patients, mean, smoking) in CLINICS.items():
        age = draw.normal(mean, 11, patients).clip(18, 99).round()
        sex, smoker = draw.choice(["f", "m"], patients), draw.random(patients) < smoking
        pressure = (95 + 0.6 * age + draw.normal(0, 14, patients)).round()
        risk = 0.07 * (age - 60) + 0.05 * (pressure - 130) + 1.5 * smoker + 0.6 * (sex == "m") - 0.8
        ill = draw.random(patients) < 1 / (1 + np.exp(-1.5 * risk))
        measured = np.where(
            draw.random(patients) < 0.05, "", pressure.astype(int).astype(str)
        )  # some were not
        with (folder / f"{clinic}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["age", "sex", "pressure", "smoker", "ill"])
            yes = np.array(["no", "yes"])
            rows.writerows(zip(age.astype(int), sex, measured, yes[smoker * 1], yes[ill * 1], strict=True))


if __name__ == "__main__":
    main()
