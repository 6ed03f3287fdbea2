"""Writes the tables of two companies that know some of the same persons, for the tutorial on columns.

    python scripts/examples/two_companies.py FOLDER

A bank knows age, income, debt and who did not pay back; a shop visits, spending, returns and the city. What
the bank wants to know depends on both. No person is real: all is drawn from a fixed seed.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

PERSONS, BANK, SHOP = 4000, 3000, 3200
"""Persons in the country, and customers of each company."""
CITIES = ("Basel", "Bern", "Chur", "Genf")


def main() -> None:
    """Write `bank.csv` and `shop.csv`."""
    folder, draw = Path(sys.argv[1]), np.random.default_rng(11)
    folder.mkdir(parents=True, exist_ok=True)
    age, income = draw.integers(18, 80, PERSONS), draw.lognormal(10.5, 0.4, PERSONS)
    debt = income * draw.beta(2, 5, PERSONS)
    visits, spending = draw.poisson(6, PERSONS), draw.gamma(2.0, 150.0, PERSONS)
    returns, city = draw.binomial(visits, 0.2), draw.integers(0, len(CITIES), PERSONS)
    risk = 5.0 * (debt / income - 0.3) + 0.004 * (spending - 300) + 0.9 * (returns - 1.2)
    risk += 0.02 * (40 - age) + 0.5 * (city == 2)
    failed = draw.random(PERSONS) < 1 / (1 + np.exp(1.2 - 1.5 * risk))
    bank = [age, income.round(), debt.round(), np.where(failed, "yes", "no")]
    shop = [visits, spending.round(2), returns, np.array(CITIES)[city]]
    write(folder / "bank.csv", ("person", "age", "income", "debt", "default"), bank, draw, BANK)
    write(folder / "shop.csv", ("customer", "visits", "spending", "returns", "city"), shop, draw, SHOP)


def write(
    path: Path, names: tuple[str, ...], columns: list[np.ndarray], draw: np.random.Generator, customers: int
) -> None:
    """Write a company's table: some of all persons, in an order of its own."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        for person in draw.permutation(PERSONS)[:customers]:
            rows.writerow([f"CH-{person:05d}", *(column[person] for column in columns)])


if __name__ == "__main__":
    main()
