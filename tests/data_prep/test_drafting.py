"""A first spec of a table: guessed from its rows, and one that `partition` takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.tables import read_spec
from data_prep.tables.drafting import Learned, draft
from mpifl.common import InputError

HEAD = "number;person;age;sex;chol;ward;pressure;days;died;outcome"


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    rows = (
        f"{n};p{n};{20 + n % 50};{'fm'[n % 2]};{'' if n % 9 == 4 else 4 + n % 3};"
        f"{['north', '?'][n % 7 == 0]};{100 + n % 40};{n % 31};{n % 2};{['healthy', 'ill'][n % 3 == 0]}"
        for n in range(1, 121)
    )
    (path := tmp_path / "clinic.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    return path


def run(*arguments: str | Path) -> str:
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False).stdout


def test_columns_are_numbers_or_few_texts_or_left_out(clinic: Path) -> None:
    assert "read it through" in run("draft", clinic, "--label", "outcome", "--silo", "sex")
    text, spec = clinic.with_suffix(".toml").read_text(), read_spec(clinic.with_suffix(".toml"))
    kinds = {name: (column.kind, column.missing) for name, column in spec.features.items()}
    assert kinds == {
        "age": ("numeric", "drop"),
        "chol": ("numeric", "mean"),
        "ward": ("categorical", "level"),
        "pressure": ("numeric", "drop"),
        "days": ("numeric", "drop"),
        "died": ("numeric", "drop"),
    }
    assert "# number is left out: it numbers the rows" in text
    assert "# person is left out: 120 different texts" in text
    assert (spec.silo, spec.delimiter, spec.label.column) == ("sex", ";", "outcome")


@pytest.mark.parametrize(
    ("label", "kind", "names"),
    [
        ("outcome", "categorical", None),
        ("age,pressure", "numeric", ["age", "pressure"]),
        ("days,died", "survival", ["time", "event"]),
    ],
)
def test_partition_takes_the_draft(
    clinic: Path, tmp_path: Path, label: str, kind: str, names: list[str] | None
) -> None:
    run("draft", clinic, "--label", label, "--kind", kind, "--out", tmp_path / "spec.toml")
    cut = ["--out", tmp_path / "out", "--scheme", "iid", "--silos", "2", "--option"]
    run("partition", "csv", "--data", clinic, *cut, f"spec={tmp_path / 'spec.toml'}")
    described = json.loads((tmp_path / "out" / "federation.json").read_text())
    assert described.get("targets", {}).get("names") == names
    assert described.get("classes") == (None if names else 2)


def test_a_table_of_parquet_is_drafted(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"age": [3, 1, 2], "sex": ["f", "m", "f"], "ill": [0, 1, 0]}), tmp_path / "t.parquet"
    )
    run("draft", tmp_path / "t.parquet", "--label", "ill")
    assert {n: c.kind for n, c in read_spec(tmp_path / "t.toml").features.items()} == {
        "age": "numeric",
        "sex": "categorical",
    }


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--label", "nosuch"], r"clinic.csv: has no column 'nosuch'; there are number, person"),
        (["--label", "days", "--kind", "survival"], r"--label: survival takes TIME,EVENT; name each"),
        (["--label", "days", "--kind", "best"], r"--kind: 'best' given; there are categorical, numeric"),
        (["--label", "outcome", "--out", "clinic.csv"], r"clinic.csv: is there already; take another --out"),
    ],
)
def test_what_cannot_be_drafted_is_one_line(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], line: str
) -> None:
    monkeypatch.chdir(clinic.parent)
    with pytest.raises(InputError, match=line):
        run("draft", clinic, *more)
    assert clinic.read_text().startswith(HEAD)


def test_a_table_without_a_header_line_is_given_names(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text(
        "".join(f"{20 + n % 9}, {'fm'[n % 2]}, {'well' if n % 3 else 'ill'}\n" for n in range(30))
    )
    with pytest.raises(InputError, match=r"no column 'outcome'; there are 20, f, ill; .* names by --names"):
        run("draft", path, "--label", "outcome")
    run("draft", path, "--label", "outcome", "--names", "age,sex,outcome")
    spec = read_spec(path.with_suffix(".toml"))
    assert {name: column.kind for name, column in spec.features.items()} == {
        "age": "numeric",
        "sex": "categorical",
    }
    shards = ["--out", tmp_path / "shards", "--scheme", "iid", "--silos", "2"]
    assert "2 silos, 30 examples" in run("partition", "csv", "--data", path, *shards)
    with pytest.raises(InputError, match=r"plain.csv"):
        run("draft", path, "--label", "outcome", "--names", "age,outcome", "--force")


def test_parquet_names_its_columns_itself(tmp_path: Path) -> None:
    tables, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    path = tmp_path / "plain.parquet"
    tables.write_table(arrow.table({"age": [1, 2], "outcome": ["a", "b"]}), path)
    with pytest.raises(InputError, match=r"--names: .*plain.parquet is Parquet, which names its columns"):
        run("draft", path, "--label", "outcome", "--names", "age")


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\x00", b"a;b\n", b'"a;b'])
def test_a_table_of_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"t\.csv: "):
        run("draft", tmp_path / "t.csv", "--label", "a")


def test_control_characters_leave_a_spec_that_can_be_read(tmp_path):
    (tmp_path / "t.csv").write_text("a\x7fb,c,y\n1.5,p\x01q,0\n2.5,r,1\n")
    (tmp_path / "t.toml").write_text(draft(tmp_path / "t.csv", Learned("categorical", ("y",))))
    assert list(read_spec(tmp_path / "t.toml").features) == ["a\x7fb", "c"]
