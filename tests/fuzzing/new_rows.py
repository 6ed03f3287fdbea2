"""Rows to be predicted by a run that keeps how its examples became numbers, with harm done to one of both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from fuzzing.mutations import harmed_bytes, harmed_json
from mpifl.cli.job_tools import Predicting, predict_table

SPEC = """label = "ill"
id = "who"
standardise = "own"
[features]
age = "numeric"
ward = "categorical"
seen = { kind = "date", since = "2000-01-01", missing = "mean" }
"""


def make_table(folder: Path) -> list[str]:
    """Write a table, its spec and new rows; return what cuts it into `shards`."""
    folder.mkdir()
    rows = [f"p{row},{row * 7 % 60},{'ab'[row % 2]},20{row % 20:02}-01-0{1 + row % 9}" for row in range(30)]
    told = [f"{row},{at % 2}" for at, row in enumerate(rows)]
    (folder / "table.csv").write_text("\n".join(["who,age,ward,seen,ill", *told]) + "\n")
    (folder / "table.toml").write_text(SPEC)
    (folder / "new.csv").write_text("\n".join(["who,age,ward,seen", *rows[:9], "x,3,a,"]) + "\n")
    words = "partition", "csv", "--data", folder / "table.csv", "--out", folder / "shards", "--jobs", "1"
    return [*map(str, words), "--scheme", "iid", "--silos", "2"]


def new_rows(draw: Random, valid: Path, folder: Path) -> Path:
    """Harm what a run keeps of its federation, its encoding above all, or the new rows."""
    made = Path(shutil.copytree(valid / "table", folder / "table"))
    if draw.random() < 0.2:
        path = made / "new.csv"
        path.write_bytes(harmed_bytes(draw, path.read_bytes()))
        return made
    path = made / "run" / "environment.json"
    told = json.loads(path.read_bytes())
    within = told["federation"] if draw.random() < 0.3 else told["federation"]["source"]
    harmed = harmed_json(draw, json.dumps(within).encode()).decode("utf-8", "replace")
    whole = json.dumps(told)
    path.write_text(whole.replace(json.dumps(within), harmed, 1))
    return made


def predict_new(folder: Path) -> None:
    predict_table(Predicting(folder / "run", folder / "p.csv"), folder / "new.csv")
