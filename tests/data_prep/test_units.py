"""A column that one site has in another unit is told of, in words that say where and what would do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.dataset import Spread, spreads_told, units_told
from mpifl.data.shards import read_federation

HEART = Path(os.environ.get("MPIFL_DATA", "no-data-folder")) / "heart-disease"
SPEC = 'label = "ill"\nsilo = "site"\nstandardise = "own"\n[features]\nglucose = "numeric"\nsex = "numeric"\n'


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def made(folder: Path, values: dict[str, np.ndarray], scheme: str = "natural", *words: str) -> Path:
    """Write a table of sites and cut it; return the folder of shards."""
    numbered = [(site, at, value) for site, own in values.items() for at, value in enumerate(own)]
    rows = [f"{value:.4f},{at % 2},{at % 3 == 0},{site}" for site, at, value in numbered]
    (folder / "t.csv").write_text("\n".join(["glucose,sex,ill,site", *rows]) + "\n")
    (folder / "t.toml").write_text(SPEC)
    run("partition", "csv", "--data", folder / "t.csv", "--out", folder / "out", "--scheme", scheme, *words)
    return folder / "out"


def drawn(**sites: tuple[float, float]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {site: rng.normal(mean, deviation, 40) for site, (mean, deviation) in sites.items()}


UNITS = {
    "alike": (drawn(a=(5.4, 1), b=(6.1, 2), c=(5, 1)), []),
    "mg/dl beside mmol/l": (drawn(a=(5.4, 1), b=(98, 18)), ["at a", "at b"]),
    "one of three": (drawn(a=(98, 18), b=(97, 18), c=(5.4, 1)), ["at c"]),
    "two of five": (drawn(a=(98, 9), b=(97, 9), c=(96, 9), d=(5.4, 1), e=(5.3, 1)), ["and 1 more"]),
    "degrees": (drawn(a=(37, 0.4), b=(98.6, 0.7)), ["at a", "at b"]),
    "kg beside lb": (
        drawn(a=(78, 14), b=(172, 31), c=(80, 15)),
        ["at b", "; the factor is about 2.", "that of no known unit"],
    ),
    "many overlap": (drawn(a=(78, 14), b=(100, 16), c=(60, 15)), []),
    "what varies much": (drawn(a=(5, 30), b=(60, 30)), []),
    "zeros": (drawn(a=(0, 0), b=(3, 0)), []),
}


def apart(folder: Path) -> list[Path]:
    """Write the table of each site of a table of all."""
    head, *rows = [line.rpartition(",") for line in (folder / "t.csv").read_text().splitlines()]
    sites = {site: [line for line, _, of in rows if of == site] for _, _, site in rows}
    for site, lines in sites.items():
        (folder / f"{site}.csv").write_text("\n".join([head[0], *lines]) + "\n")
    return [folder / f"{site}.csv" for site in sites]


FACTORS = {
    ("glucose", 18.016): "that of glucose in mg/dl beside mmol/l",
    ("Glukose (mmol/l)", 18.0): "that of glucose in mg/dl beside mmol/l",
    ("glucose", 324.6): "about 325, that of no known unit",
    ("age", 365.25): "that of days beside years",
    ("LDL", 38.67): "that of cholesterol in mg/dl beside mmol/l",
    ("bmi", 18.016): "about 18, that of no known unit",
    ("weight", 2.2046): "that of lb beside kg: factor = 0.4536 at b",
    ("crea", 77.6): "that of creatinine in umol/l beside mg/dl: factor = 0.01131 at b",
    ("dose", 77.6): "about 77.6, that of no known unit: factor = 0.012887 at b",
    ("dose", 1 / 77.6): "about 77.6, that of no known unit: factor = 0.012887 at a",
}


@pytest.mark.parametrize(("name", "factor"), FACTORS)
def test_a_factor_is_that_of_a_unit_which_such_a_column_has(name: str, factor: float) -> None:
    spreads = [Spread(site, 40 * by, 50 * by, 70 * by, 100) for site, by in (("a", 1), ("b", factor))]
    (line,) = spreads_told({name: spreads})
    assert f"; the factor is {FACTORS[name, factor]}" in line


@pytest.mark.parametrize("what", UNITS)
def test_another_unit_is_seen_by_medians_in_the_unit_of_the_table(tmp_path: Path, what: str) -> None:
    values, words = UNITS[what]
    folder = made(tmp_path, values)
    told = units_told(folder, read_federation(folder))
    assert len(told) == bool(words)
    for line in told:
        assert line.startswith("column glucose: median ")
        assert "are the units the same? glucose = { kind = 'numeric', factor = ... } in a site's spec" in line
        assert all(word in line for word in words)


@pytest.mark.skipif(not HEART.is_dir(), reason="set MPIFL_DATA to a folder that has heart-disease/")
def test_four_real_hospitals_differ_in_no_unit(tmp_path: Path) -> None:
    """Neither as a table of each, with its gaps, nor as shards."""
    tables = []
    for file in sorted(HEART.glob("processed.*.data")):
        tables.append(tmp_path / f"{file.name.split('.')[1]}.csv")
        tables[-1].write_text(",".join([*(f"c{at}" for at in range(13)), "ill"]) + "\n" + file.read_text())
    assert len(tables) == 4
    said = run("draft", *tables, "--label", "ill", "--out", tmp_path / "h.toml")
    assert "c0" in (tmp_path / "h.toml").read_text()
    assert "are the units" not in said
    words = "--data", HEART, "--scheme", "natural", "--out", tmp_path / "out"
    assert "are the units" not in run("partition", "heart-disease", *words)


def test_the_commands_tell_of_it_and_schemes_that_mix_all_rows_do_not(tmp_path: Path) -> None:
    folder = made(tmp_path, drawn(a=(5.4, 1), b=(98, 18)))
    asked = "are the units the same?"
    for tables, words in (([tmp_path / "t.csv"], ["--silo", "site"]), (apart(tmp_path), [])):
        said = run("draft", *tables, "--label", "ill", *words, "--out", tmp_path / "drafted.toml", "--force")
        assert asked in said
    assert asked in run("check", folder)
    assert asked in run("inspect", folder, "--features")
    assert asked not in run("inspect", folder)
    (tmp_path / "other").mkdir()
    words = "ordered", "--silos", "4", "--order", "glucose"
    other = made(tmp_path / "other", drawn(a=(5.4, 1), b=(98, 18)), *words)
    assert asked not in run("check", other)
