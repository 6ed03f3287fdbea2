"""Writes the tables of three hospitals that do not exist: python make_tables.py FOLDER"""

import csv
import sys
from pathlib import Path

import numpy as np

HOSPITALS = {"linz": (420, 64, 0.5), "graz": (260, 58, 0.6), "bern": (170, 69, 0.4)}
"""Of each hospital: its patients, their mean age, the share with the new treatment."""
STUDY = 1460
"""Days after which nobody is followed any more."""


def main() -> None:
    folder, draw = Path(sys.argv[1]), np.random.default_rng(8)
    folder.mkdir(parents=True, exist_ok=True)
    for hospital, (patients, mean, treated) in HOSPITALS.items():
        age = draw.normal(mean, 10, patients).clip(30, 95).round()
        sex, smoker = draw.choice(["f", "m"], patients), draw.random(patients) < 0.3
        bmi, new = draw.normal(27, 4, patients).round(1), draw.random(patients) < treated
        risk = 0.05 * (age - 62) + 0.06 * (bmi - 27) + 0.7 * smoker - 0.5 * new
        again = draw.random(patients) < 1 / (1 + np.exp(1.2 - risk))
        until = np.ceil(draw.exponential(1100 * np.exp(-0.8 * risk)))
        seen = np.ceil(draw.uniform(200, STUDY, patients))  # a patient is followed so long
        weighed = np.where(draw.random(patients) < 0.04, "", bmi.astype(str))  # some were not
        with (folder / f"{hospital}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["age", "sex", "bmi", "smoker", "treatment", "readmitted", "days", "died"])
            yes, arm = np.array(["no", "yes"]), np.array(["usual", "new"])
            told = yes[smoker * 1], arm[new * 1], yes[again * 1]
            days = np.minimum(until, seen).astype(int)
            rows.writerows(zip(age.astype(int), sex, weighed, *told, days, (until <= seen) * 1, strict=True))


if __name__ == "__main__":
    main()
