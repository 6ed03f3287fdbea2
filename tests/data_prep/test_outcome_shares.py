"""Outcomes of two classes that sites code in their own way, or the other way round, by their rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.dataset import inverted_told
from data_prep.tables.drafting import Learned, draft
from mpifl.data.shards import read_federation

INVERTED = "is the outcome inverted there? See how its table codes it"


def run(*arguments: str | float | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def table(path: Path, codes: Sequence[str], share: float, rows: int = 120) -> Path:
    """Write a table of which a share of the rows has the second code."""
    body = [f"{20 + n % 50},{codes[n < round(share * rows)]}" for n in range(rows)]
    path.write_text("\n".join(["age,died", *body]) + "\n")
    return path


@pytest.mark.parametrize(
    ("codes", "shares", "classes"),
    [
        (("nein", "ja"), (0.1, 0.125), '[["0", "nein"], ["1", "ja"]]'),
        (("Nein", "Ja"), (0.1, 0.9), '[["0", "Nein"], ["1", "Ja"]]'),
        (("non", "oui"), (0.4, 0.5), '[["0", "non"], ["1", "oui"]]'),
        (("false", "true"), (0.4, 0.5), '[["0", "false"], ["1", "true"]]'),
        (("lebt", "gestorben"), (0.1, 0.125), '[["0", "lebt"], ["1", "gestorben"]]'),
        (("2", "3"), (0.9, 0.125), '[["0", "3"], ["1", "2"]]'),
        (("2", "3"), (0.4, 0.125), ""),
        (("lebt", "gestorben"), (0.1, 0.45), ""),
    ],
)
def test_codes_are_paired_by_words_or_by_shares_that_make_it_clear(
    tmp_path: Path, codes: tuple[str, str], shares: tuple[float, float], classes: str
) -> None:
    tables = [table(tmp_path / "north.csv", "01", shares[0]), table(tmp_path / "east.csv", codes, shares[1])]
    drafted = draft(tables, Learned("categorical", ("died",)))
    (line,) = (one for one in drafted.told if one.startswith("label: died is 0, 1 in north.csv"))
    assert drafted.apart
    if classes:
        assert (
            f"; write classes = {classes} in the spec, if that is what they mean (1 {shares[0]:.1%}" in line
        )
        assert f"# classes = {classes}  # in place of that" in drafted.text
    else:
        assert "of rows do not tell which are one" in line
        assert "# classes" not in drafted.text


def test_no_comes_before_yes_in_a_table_of_such_words(tmp_path: Path) -> None:
    learned = Learned("categorical", ("died",))
    drafted = draft(table(tmp_path / "one.csv", ("nein", "ja"), 0.1), learned)
    assert 'classes = ["nein", "ja"]' in drafted.text
    assert [*drafted.classes] == ["nein", "ja"]
    drafted = draft(table(tmp_path / "one.csv", ("no", "yes"), 0.1), learned)
    assert "classes" not in drafted.text
    (tmp_path / "time.csv").write_text(
        "age,days,died\n" + "".join(f"{n},{n},{'jn'[n % 3 > 0]}\n" for n in range(60))
    )
    told = draft(tmp_path / "time.csv", Learned("survival", ("days", "died"))).told
    assert any('value = "j" }' in line for line in told)


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((0.1, 0.15, 0.875), "east has '1' in 87.5% of its training rows, all others together in 12.5%"),
        ((0.9, 0.85, 0.125), "east has '0' in 87.5% of its training rows, all others together in 12.5%"),
        ((0.1, 0.45, 0.9), ""),
        ((0.1, 0.15, 0.6), ""),
        ((0.02, 0.03, 0.8), ""),
    ],
)
def test_an_outcome_that_is_probably_inverted_at_a_site_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: Sequence[float], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, share in zip(("north", "south", "east"), shares, strict=True):
        table(Path(f"{name}.csv"), "01", share, 200)
    Path("columns.toml").write_text('label = "died"\nstandardise = "own"\n[features]\nage = "numeric"\n')
    said = run("sites", "north.csv", "south.csv", "east.csv", "--spec", "columns.toml", "--out", "s")
    assert told in said
    for output in (said, run("check", "s", "--no-duplicates"), run("assemble", _parted(Path("s")))):
        flat = " ".join(output.replace("│", " ").split())
        assert (INVERTED in flat) is bool(told)


def _parted(folder: Path) -> Path:
    """Return a folder that its sites have still to assemble."""
    (folder / "federation.json").unlink()
    return folder


def test_ordinary_label_skew_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, y = rng.random((600, 3)).astype("f4"), (rng.random(600) < 0.2).astype("i8")
    np.savez("own.npz", x=x, y=y)
    names = ("--option", "feature_names=a,b,c")
    for scheme in (("dirichlet", "--alpha", "0.1"), ("shards", "--shards-per-silo", "2")):
        run(
            "partition",
            "npz",
            "--data",
            "own.npz",
            "--scheme",
            *scheme,
            "--silos",
            "4",
            "--out",
            scheme[0],
            *names,
        )
        assert inverted_told(read_federation(Path(scheme[0]))) == []
