"""Joins predictions with the hospital's own ids: python whom.py"""

import csv
from pathlib import Path

with Path("whose.csv").open() as file:
    whose = {row["id"]: row["whose"] for row in csv.DictReader(file)}
with Path("predictions.csv").open() as file:
    rows = sorted(csv.DictReader(file), key=lambda row: -float(row["p_yes"]))
print("most likely to come back:")
for row in rows[:3]:
    print(f"  {whose[row['id']]}  {float(row['p_yes']):.2f}")
