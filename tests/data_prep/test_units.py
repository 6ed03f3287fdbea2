"""A column that one site has in another unit is told of, in words that say where and what would do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.dataset import Spread, codes_told, spreads_told, units_told
from data_prep.tables import Afar
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
        ["at b", "; a factor of about 2.", "of no known unit"],
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
    ("glucose", 18.016): "a factor of 18.016, as of glucose in mg/dl beside mmol/l",
    ("Glukose (mmol/l)", 18.0): "a factor of 18.016, as of glucose in mg/dl beside mmol/l",
    ("glucose", 324.6): "a factor of about 325, of no known unit",
    ("age", 365.25): "a factor of 365.25, as of days beside years",
    ("LDL", 38.67): "a factor of 38.67, as of cholesterol in mg/dl beside mmol/l",
    ("bmi", 18.016): "a factor of about 18, of no known unit",
    ("weight", 2.2046): "a factor of 2.2046, as of lb beside kg: factor = 0.4536 at b",
    ("crea", 77.6): "a factor of 88.42, as of creatinine in umol/l beside mg/dl: factor = 0.01131 at b",
    ("dose", 77.6): "a factor of about 77.6, of no known unit: factor = 0.012887 at b",
    ("crp", 10): "a factor of 10, as of g/l beside g/dl, or mm beside cm: factor = 0.1 at b",
    ("dose", 1 / 77.6): "a factor of about 77.6, of no known unit: factor = 0.012887 at a",
}


@pytest.mark.parametrize(("name", "factor"), FACTORS)
def test_a_factor_is_that_of_a_unit_which_such_a_column_has(name: str, factor: float) -> None:
    spreads = [Spread(site, 40 * by, 50 * by, 70 * by, 100) for site, by in (("a", 1), ("b", factor))]
    (line,) = spreads_told({name: spreads})
    assert f"; {FACTORS[name, factor]}" in line


def skewed(rng: np.random.Generator, median: float, kind: str, rows: int) -> np.ndarray:
    """Draw values of a lab whose quartiles lie further apart than their median is large."""
    shape = rng.normal(size=rows) if kind == "log-normal" else np.log(rng.gamma(1.2, size=rows) + 1e-3)
    return np.round(median * np.exp(shape), 2)


@pytest.mark.parametrize("kind", ["log-normal", "gamma"])
def test_a_skewed_lab_in_another_unit_is_seen_and_ordinary_differences_between_sites_are_not(
    kind: str,
) -> None:
    """Medians of sites differ by a quarter; of 200 labs none is named, of those ten times too small most."""
    rng = np.random.default_rng(7)
    seen = {1.0: 0, 0.1: 0}
    for factor in seen:
        for _ in range(200):
            sites = {site: skewed(rng, 25 * np.exp(rng.normal(0, 0.25)), kind, 90) for site in "abc"}
            sites["b"] = sites["b"] * factor
            told = spreads_told({"crp": [Spread.of(site, own) for site, own in sites.items()]})
            seen[factor] += bool(told)
            assert not told or factor < 1
            assert all(" at b" in line for line in told)
    assert seen[0.1] > 120


def test_new_rows_of_a_skewed_lab_in_another_unit_are_far_from_a_training_by_their_moments() -> None:
    rng = np.random.default_rng(3)
    known = skewed(rng, 25, "log-normal", 400)
    seen = {}
    for factor in (0.1, 1.3):
        afar = Afar({"crp": (float(known.mean()), float(known.std()))}, "Say so")
        afar.look("crp", factor * skewed(rng, 25, "log-normal", 60), str)
        seen[factor] = afar.told("new.csv")
    assert "(a factor of 10, as of g/l beside g/dl, or mm beside cm)" in str(seen[0.1])
    assert seen[1.3] is None


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
def test_four_real_hospitals_differ_in_no_unit_and_have_no_codes(tmp_path: Path) -> None:
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
    said = run("partition", "heart-disease", *words)
    assert "are the units" not in said
    assert "code for a missing value" not in said


def coded(code: float, times: int, others: np.ndarray) -> dict[str, np.ndarray]:
    return {"a": np.concatenate([others, np.full(times, code)]), "b": others + 0.1}


LAB, AGES = np.linspace(2, 8, 40), np.linspace(20, 95, 40)
CODES = {
    "the only negative one": (coded(-9, 3, LAB), "column glucose: -9 occurs 3 times at a, and all others "),
    "far above": (coded(999, 2, AGES), "999 occurs 2 times at a, and all others lie from 20 to 95; is it"),
    "far below": (coded(-999, 2, LAB - 5), "-999 occurs 2 times at a"),
    "once": (coded(999, 1, AGES), ""),
    "near the others": (coded(99, 3, AGES), ""),
    "among negative ones": (coded(-9, 3, np.linspace(-8, 8, 40)), ""),
    "not the lowest": (coded(-9, 3, np.linspace(-30, 30, 40)), ""),
}


@pytest.mark.parametrize("what", CODES)
def test_a_repeated_extreme_that_looks_like_a_missing_value_is_told(tmp_path: Path, what: str) -> None:
    values, line = CODES[what]
    folder = made(tmp_path, values)
    told = codes_told(folder, read_federation(folder))
    assert len(told) == bool(line)
    for command in (("inspect", "--features"), ("check",)) if told else ():
        assert line in told[0]
        assert line in " ".join(run(*command, folder).replace("│", " ").split()), command


def test_draft_tells_of_a_code_for_a_missing_value_that_no_spec_states(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for site in ("hill", "lake"):
        values = [[f"{one:.1f}" for one in row] for row in rng.normal((60, 25), (9, 6), (40, 2)).clip(1)]
        for row in values[:6] if site == "lake" else ():
            row[:] = ["-9", "-9.0"]
        rows = [f"{age},{crp},{at % 2}" for at, (age, crp) in enumerate(values)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["age,crp,ill", *rows]) + "\n")
    words = "draft", tmp_path / "hill.csv", tmp_path / "lake.csv", "--label", "ill", "--out"
    said = run(*words, tmp_path / "all.toml")
    assert (
        "lake: -9 occurs 12 times in age, crp, the only negative value there; is it a missing value?" in said
    )
    assert "hill: " not in said


AMONG = {
    "among texts": (["a", "b", "-9"], "'-9'"),
    "written as a fraction": (["a", "b", "999.0"], "'999.0'"),
    "both": (["a", "-9", "999"], "'-9' and '999'"),
    "among numbers": (["0", "1", "x", "-9"], "'-9'"),
    "far above numbers": (["0", "1", "x", "99"], "'99'"),
    "a number as others": (["40", "55", "x", "99"], ""),
    "a group": (["80-99", "60-79"], ""),
    "negative as others": (["-8", "-7", "x", "-9"], ""),
}


@pytest.mark.parametrize("what", AMONG)
@pytest.mark.parametrize("column", ["ward", "ill"])
def test_a_code_for_a_missing_value_among_the_values_of_a_category_is_told(
    tmp_path: Path, what: str, column: str
) -> None:
    levels, wanted = AMONG[what]
    other = {"ward": "ill", "ill": "ward"}[column]
    rows = [f"{at % 7},{levels[at % len(levels)]},{'pq'[at % 3 == 0]}" for at in range(60)]
    (tmp_path / "t.csv").write_text("\n".join([f"age,{column},{other}", *rows]) + "\n")
    said = run("draft", tmp_path / "t.csv", "--label", "ill")
    asked = "among its values; is it a missing value? Then write the spec's missing = [..., '"
    assert (f"code: {column} has {wanted} {asked}" in said) == bool(wanted)
    words = "--scheme", "iid", "--silos", 2, "--out", tmp_path / "out"
    found = run("partition", "csv", "--data", tmp_path / "t.csv", *words)
    called = "the label" if column == "ill" else f"column {column}"
    line = f"{called}: {wanted} among its values; is it a code for a missing value? List it in 'missing'"
    for told in (found, run("check", tmp_path / "out")):
        assert (line in " ".join(told.replace("│", " ").split())) == bool(wanted)


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
