"""Numbers of a column that may be mistakes: a few far from all others, two units, and no skewed ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.dataset import odd_among, odd_told
from mpifl.data.shards import read_federation

DATA = Path(os.environ.get("MPIFL_DATA", "no-data-folder"))
SETS = {"heart-disease": (), "tcga-brca": (), "adult": ("--silo", "sex")}


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize("rows", [30, 200, 2000])
def test_skewed_columns_have_none(rows: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        columns = [rng.lognormal(0, sigma, rows) for sigma in (0.3, 1.0, 1.5, 2.0)]
        columns += [rng.normal(60, 12, rows), rng.exponential(1, rows), rng.poisson(2, rows).astype(float)]
        columns += [
            rng.lognormal(0, 1, rows) * (rng.random(rows) < 0.6),
            rng.random(rows),
            rng.gamma(0.5, 1, rows),
        ]
        assert [odd for one in columns if (odd := odd_among("crp", one))] == []


@pytest.mark.parametrize("name", SETS)
def test_sets_of_the_papers_have_none(name: str, tmp_path: Path) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not here")
    run("partition", name, "--data", DATA / name, "--scheme", "natural", *SETS[name], "--out", tmp_path / "s")
    assert odd_told(tmp_path / "s", read_federation(tmp_path / "s")) == []


def test_mistakes_are_told_by_their_rows_and_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    dates = 'seen = { kind = "date", since = "2020-01-01" }'
    Path("columns.toml").write_text(
        f'label = "ill"\nstandardise = "own"\n[features]\nage = "numeric"\ncreatinine = "numeric"\n{dates}\n'
    )
    for site in ("east", "west"):
        ages, levels = rng.normal(60, 10, 300).round(), rng.lognormal(0, 0.3, 300)
        days = [f"2021-{n % 12 + 1:02}-{n % 28 + 1:02}" for n in range(300)]
        if site == "west":
            ages[7], ages[40], days[9] = 640, -45, "2201-03-17"
            levels[::2] *= 88.42
        rows = zip(ages, levels, days, strict=True)
        body = [f"{age:.0f},{level:.2f},{day},{'ab'[n % 2]}" for n, (age, level, day) in enumerate(rows)]
        Path(f"{site}.csv").write_text("\n".join(["age,creatinine,seen,ill", *body]) + "\n")
    said = run("sites", "east.csv", "west.csv", "--spec", "columns.toml", "--test", "0.2", "--out", "s")
    told = (
        "and 1 more, far from all others, which lie from",
        "west: seen is 2201-03-17 (row 10), far from all",
    )
    units = "apart from the others by a factor of about 88.42, as of creatinine in umol/l beside mg/dl"
    for output in (said, run("check", "s", "--no-duplicates"), run("inspect", "s", "--features")):
        assert all(one in output for one in (*told, units, "west: creatinine is"))
        assert "east: age" not in output
    said = run("draft", "east.csv", "west.csv", "--label", "ill", "--out", "d.toml")
    assert "west: age is 640 (line 9) and 1 more, far from all others" in said
    assert units in said
    assert "east: age" not in said
