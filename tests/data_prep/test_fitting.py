"""A spec that leaves nothing to the table: any other table's rows become the same numbers by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.tables import Encoder, read_spec
from data_prep.tables.encoding import Encoded
from data_prep.tables.values import read_moments
from mpifl.common import InputError

SPEC = """
label = "outcome"
silo = "ward"
missing = ["", "?"]
standardise = "own"
[features]
age = "numeric"
chol = { kind = "numeric", missing = "mean" }
stage = { kind = "categorical", missing = "level" }
grade = { kind = "categorical", encoding = "ordinal", missing = "constant", constant = "low" }
admitted = { kind = "date", since = "2000-01-01" }
fixed = { kind = "numeric", mean = 1.0, deviation = 2.0 }
"""
HEAD = "age,chol,stage,grade,admitted,fixed,ward,outcome"
ROWS = [
    f"{20 + n},{'' if n % 5 == 0 else n % 7},{['I', 'II', '?'][n % 3]},{['low', 'high', ''][n % 3]},"
    f"20{10 + n}-01-0{1 + n % 9},{n},{'ab'[n % 2]},{['well', 'ill'][n % 4 == 0]}"
    for n in range(40)
]


def table(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


def run(*arguments: str | Path) -> str:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False).stdout


def silos(encoded: Encoded) -> list[str]:
    """Return the name of each row's silo."""
    names, codes = encoded.silo
    return [names[code] for code in codes]


@pytest.mark.parametrize("standardise", ["own", "none"])
def test_a_part_of_the_table_becomes_the_same_numbers(tmp_path: Path, standardise: str) -> None:
    path, spec, fitted = table(tmp_path / "own.csv", ROWS), tmp_path / "own.toml", tmp_path / "fitted.toml"
    spec.write_text(SPEC.replace('"own"', f'"{standardise}"'))
    assert "levels, classes, means and deviations are those of own.csv" in run("fit", path, "--out", fitted)
    whole = next(Encoder("csv", path, read_spec(spec)).read(path))
    part = table(tmp_path / "new.csv", ROWS[1:3])
    again = Encoder("csv", part, read_spec(fitted))
    found = next(again.read(part))
    assert np.array_equal(found.x, whole.x[1:3])
    assert np.array_equal(found.y, whole.y[1:3])
    assert silos(found) == silos(whole)[1:3]
    other = next(Encoder("csv", part, read_spec(spec)).read(part))
    assert other.x.shape != found.x.shape
    assert again.fitted() == Encoder("csv", path, read_spec(spec)).fitted()


def test_values_without_classes_and_a_table_without_gaps(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'label = { kind = "numeric", column = "chol" }\n[features]\nage = "numeric"\n'
    )
    path = table(tmp_path / "own.csv", [row for row in ROWS if ",," not in row])
    run("fit", path, "--out", tmp_path / "fitted.toml")
    assert read_spec(tmp_path / "fitted.toml") == read_spec(tmp_path / "own.toml")


def test_a_spec_that_is_there_is_kept_unless_forced(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", ROWS)
    (tmp_path / "own.toml").write_text(SPEC)
    with pytest.raises(InputError, match=r"own.toml: is there already; use another --out, or --force"):
        run("fit", path, "--out", tmp_path / "own.toml")
    run("fit", path, "--out", tmp_path / "own.toml", "--force")
    assert "levels = [" in (tmp_path / "own.toml").read_text()


def test_a_table_is_read_though_nothing_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'label = { kind = "numeric", column = "chol" }\n[features]\nage = "numeric"\n'
    )
    with pytest.raises(InputError, match=r"own.csv: cannot be read"):
        run("fit", tmp_path / "own.csv", "--out", tmp_path / "fitted.toml")
    assert not (tmp_path / "fitted.toml").exists()


@pytest.mark.parametrize("missing", ["level", "constant", "drop"])
def test_what_was_learned_of_nothing_is_not_stated(tmp_path: Path, missing: str) -> None:
    constant = ', constant = "z"' if missing == "constant" else ""
    (tmp_path / "t.toml").write_text(
        f'label = "y"\n[features]\na = {{ kind = "categorical", missing = "{missing}"{constant} }}\n'
    )
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "\n".join(f",{y}" for y in "pqpq") + "\n")
    if missing == "constant":
        run("fit", path, "--out", tmp_path / "fitted.toml")
        assert read_spec(tmp_path / "fitted.toml").features["a"].levels == (("z",),)
    else:
        with pytest.raises(InputError, match=r"t\.csv: (column 'a' has no value|has no rows)"):
            run("fit", path, "--out", tmp_path / "fitted.toml")


def test_one_class_is_not_stated(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('label = "y"\n[features]\na = "numeric"\n')
    (tmp_path / "t.csv").write_text("a,y\n1,p\n2,p\n")
    with pytest.raises(InputError, match=r"t\.csv: the label is 'p' in every row"):
        run("fit", tmp_path / "t.csv", "--out", tmp_path / "fitted.toml")


POUNDS = 0.45359237


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_site_with_another_unit_and_name_makes_the_same_numbers(tmp_path: Path, ending: str) -> None:
    weights = [50 + n % 37 for n in range(40)]
    head = 'label = "ill"\nclasses = ["n", "y"]\nmissing = [""]\nstandardise = "own"\n[features]\n'
    frames = {
        "kilos": (["weight"], weights, 'weight = { kind = "numeric", missing = "mean" }'),
        "pounds": (
            ["mass (lb)"],
            [one / POUNDS for one in weights],
            f'weight = {{ kind = "numeric", missing = "mean", rename = "mass (lb)", factor = {POUNDS} }}',
        ),
    }
    found = {}
    for name, ((column,), values, line) in frames.items():
        rows = [f"{'' if n == 7 else repr(value)},{'ny'[n % 2]}" for n, value in enumerate(values)]
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([f"{column},ill", *rows]) + "\n")
        if ending == "parquet":
            pytest.importorskip("pandas").read_csv(path).to_parquet(path := path.with_suffix(".parquet"))
        (tmp_path / f"{name}.toml").write_text(head + line + "\n")
        run("statistics", ending, "--data", path, "--out", tmp_path / f"{name}.json")
        run("fit", path, "--out", tmp_path / f"{name}-fitted.toml")
        fitted = read_spec(tmp_path / f"{name}-fitted.toml")
        encoder = Encoder(ending, path, fitted)
        found[name] = next(encoder.read(path)).x, read_moments([tmp_path / f"{name}.json"]), encoder.columns
    (x, moments, columns), (again, others, renamed) = found.values()
    np.testing.assert_allclose(x, again, rtol=1e-6)
    assert columns.feature_names == renamed.feature_names == ("weight",)
    assert moments.columns["weight"].mean == pytest.approx(others.columns["weight"].mean)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('age = { kind = "date", since = "2000-01-01", factor = 2 }', "a factor is for kind = 'numeric'"),
        ('age = { kind = "numeric", factor = 0 }', "features.age.factor: "),
        ('age = { kind = "numeric", rename = "ill" }', "'age' and another are both the file's column 'ill'"),
        ('age = { kind = "numeric", renamed = "x" }', "did you mean 'rename'"),
    ],
)
def test_a_factor_and_another_name_that_cannot_be_are_one_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "t.toml").write_text(f'label = "ill"\n[features]\n{line}\n')
    with pytest.raises(InputError) as refused:
        read_spec(tmp_path / "t.toml")
    assert said in str(refused.value)


def test_a_column_that_is_called_otherwise_is_named_as_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,ill\n1,n\n2,y\n")
    (tmp_path / "t.toml").write_text(
        'label = "ill"\n[features]\nage = { kind = "numeric", rename = "Alter" }\n'
    )
    with pytest.raises(
        InputError, match=r"t.csv: column 'Alter' of the spec is not there; .*there are age, ill"
    ):
        run("fit", tmp_path / "t.csv", "--out", tmp_path / "f.toml")
