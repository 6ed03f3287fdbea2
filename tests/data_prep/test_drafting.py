"""A first spec of a table: guessed from its rows, and one that `partition` takes."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.sources import find_source
from data_prep.tables import TableSpec, label_moments, read_spec
from data_prep.tables.drafting import Learned, draft
from data_prep.tables.files import lines as limits
from data_prep.tables.values.id_columns import is_named_id
from data_prep.tables.values.notation import OTHERS, PLAIN, Notation
from mpifl.common import InputError
from mpifl.data.shards import read_federation

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
    told = run("draft", clinic, "--label", "outcome", "--silo", "sex").splitlines()
    assert "read it through" in told[0]
    assert told[1:] == [
        "left out: number, it numbers the rows, first '1' (line 2)",
        "left out: person, its name says that it is an id: 120 values in 120 rows, first 'p1' (line 2)",
        "missing: '?', 17 times, first in ward (line 8); remove it from 'missing' if it is a value",
    ]
    text, spec = clinic.with_suffix(".toml").read_text(), read_spec(clinic.with_suffix(".toml"))
    kinds = {name: (column.kind, column.missing) for name, column in spec.features.items()}
    assert kinds == {
        "age": ("numeric", None),
        "chol": ("numeric", "mean"),
        "ward": ("categorical", "level"),
        "pressure": ("numeric", None),
        "days": ("numeric", None),
        "died": ("numeric", None),
    }
    assert "# number is left out: it numbers the rows" in text
    assert "# person is left out: its name says that it is an id: 120 values in" in text
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
        (["--label", "outcome", "--out", "clinic.csv"], r"clinic.csv: is there already; use another --out"),
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
    (tmp_path / "t.toml").write_text(draft(tmp_path / "t.csv", Learned("categorical", ("y",))).text)
    assert list(read_spec(tmp_path / "t.toml").features) == ["a\x7fb", "c"]


def drafted(folder: Path, head: str, rows: list[str], ending: str = "csv") -> tuple[TableSpec, list[str]]:
    """Draft a table whose label is y; return the spec, and what was told."""
    path = folder / f"t.{ending}"
    path.write_text("\n".join([head, *rows]) + "\n")
    told = run("draft", path, "--label", "y", "--force").splitlines()
    return read_spec(path.with_suffix(".toml")), told[1:]


def kinds(spec: TableSpec) -> dict[str, str]:
    return {name: column.kind for name, column in spec.features.items()}


def read(folder: Path) -> np.ndarray:
    """Read the table by its draft, not standardised."""
    spec = folder / "t.toml"
    spec.write_text(spec.read_text().replace('standardise = "own"\n', ""))
    return find_source("csv")(folder / "t.csv", 0).x[:]


NUMBERS = {
    "a decimal comma": (["3,5", "1200", "-0,25"], (",", None), [3.5, 1200, -0.25]),
    "and dots": (["1.200,5", "1.234.567", "0,5"], (",", "."), [1200.5, 1234567, 0.5]),
    "commas": (["1,200.5", "1,234,567", "0.5"], (".", ","), [1200.5, 1234567, 0.5]),
    "blanks": (["1 200,5", "1\u00a0234\u202f567", "7"], (",", " "), [1200.5, 1234567, 7]),
    "apostrophes": (["1'200.5", "34", "0.5e3"], (".", "'"), [1200.5, 34, 500]),
    "plain": (["1200.5", "1e-3", "+7"], (".", None), [1200.5, 0.001, 7]),
}


@pytest.mark.parametrize("way", NUMBERS)
def test_numbers_are_read_as_the_table_writes_them(tmp_path: Path, way: str) -> None:
    texts, (decimal, thousands), values = NUMBERS[way]
    rows = [f"{text};{label}" for text, label in zip(texts, "pqp", strict=True)]
    spec, told = drafted(tmp_path, "dose;y", rows)
    assert (kinds(spec), spec.decimal, spec.thousands) == ({"dose": "numeric"}, decimal, thousands)
    assert len(told) == (way != "plain")
    assert not told or told[0].startswith(f"numbers: {' and '.join(spec.notation.written())}, as in dose ")
    assert read(tmp_path)[:, 0].tolist() == np.float32(values).tolist()


def test_a_number_that_means_two_things_is_left_out_and_told(tmp_path: Path) -> None:
    spec, told = drafted(tmp_path, "dose;age;y", ["1,234;30;p", "5,678;40;q"])
    assert (kinds(spec), spec.decimal, spec.thousands) == ({"age": "numeric"}, ".", None)
    both = 'decimal = "," or thousands = ","'
    said = f"left out: dose, '1,234' (line 2) is a number by {both}; write all numbers alike, and say it"
    assert told == [said]
    doses = ["1,193;59,3;1,5;p", "1.234;52,4;3,5;q", "0,582;53,7;2,5;q"]
    said = "left out: dose, '1.234' (line 3) may mean two things, of which one is decimal = \",\" and "
    said += 'thousands = "."; write all numbers alike, and say it'
    spec, told = drafted(tmp_path, "dose;g;h;y", doses)
    assert (kinds(spec), spec.decimal, spec.thousands) == ({"g": "numeric", "h": "numeric"}, ",", None)
    assert told == [said, "numbers: decimal = \",\", as in g '59,3' (line 2)"]
    spec, told = drafted(tmp_path, "dose;g;h;y", [*doses, "1;2,5;1.234,5;p"])
    assert (kinds(spec), spec.decimal, spec.thousands) == ({"g": "numeric", "h": "numeric"}, ",", ".")
    shown = 'numbers: decimal = "," and thousands = ".", as in h \'1.234,5\' (line 5)'
    assert told == [said, shown]


def test_texts_of_digits_that_begin_with_0_are_codes(tmp_path: Path) -> None:
    codes = ["01067", "250", "0250", "250.0", ""]
    rows = [f"{codes[n % 5]},{n:04},{n % 7 / 2},{'pq'[n % 2]}" for n in range(60)]
    spec, told = drafted(tmp_path, "plz,film,dose,y", rows)
    assert spec.features["plz"].levels == (("0250",), ("250",), ("250.0",), ("01067",))
    assert kinds(spec) == {"plz": "categorical", "dose": "numeric"}
    assert told == [
        "code: plz, '01067' (line 2) begins with 0, so texts are categories; say \"numeric\" if not",
        "left out: film, '0000' (line 2) begins with 0, as codes do, and there are 60 different ones",
    ]
    assert read(tmp_path).shape == (60, 6)


@pytest.mark.parametrize("step", [1, 9])
def test_what_shows_how_numbers_are_written_is_of_a_column_of_numbers(tmp_path, monkeypatch, step) -> None:
    monkeypatch.setattr(limits, "ROWS", step)
    (path := tmp_path / "own.csv").write_text("a;b;y\n1,5;;p\nx;1,5;q\n")
    assert (
        "numbers: decimal = \",\", as in b '1,5' (line 3)" in draft(path, Learned("categorical", ("y",))).told
    )


def test_another_column_decides_what_a_number_means(tmp_path: Path) -> None:
    spec, _ = drafted(tmp_path, "dose;age;y", ["1,234;30,5;p", "5,678;40,5;q"])
    assert (kinds(spec), spec.decimal) == ({"dose": "numeric", "age": "numeric"}, ",")
    assert read(tmp_path)[:, 0].tolist() == np.float32([1.234, 5.678]).tolist()


def test_a_column_that_is_written_otherwise_than_the_others_is_left_out(tmp_path: Path) -> None:
    spec, told = drafted(tmp_path, "a;b;c;y", ["1,5;2,5;0.25;p", "2,5;3,5;1.5;q"])
    assert (kinds(spec), spec.decimal) == ({"a": "numeric", "b": "numeric"}, ",")
    assert told[0].startswith("left out: c, '0.25' (line 2) is a number by decimal = \".\"; write all")


def test_few_texts_among_numbers_are_no_categories(tmp_path: Path) -> None:
    rows = [f"{'unknown' if n in (7, 11) else 20 + n % 30},{'pq'[n % 2]}" for n in range(40)]
    spec = tmp_path / "t.toml"
    path = tmp_path / "t.csv"
    path.write_text("age,y\n" + "\n".join(rows) + "\n")
    text, told, *_ = draft(path, Learned("categorical", ("y",)))
    assert told == [
        "left out: age, all values are numbers but for 2, first 'unknown' (line 9); "
        "correct it, or list it in 'missing'",
        'no column is left as a feature: add one to the spec, for example age = "numeric"',
    ]
    assert "# age is left out: all values are numbers but for 2, first 'unknown' (line 9)" in text
    assert not spec.exists()


def test_a_column_without_a_value_is_left_out(tmp_path: Path) -> None:
    _, told = drafted(tmp_path, "a,b,y", [f"{n % 3},,{'pq'[n % 2]}" for n in range(6)])
    assert told == ["left out: b, it has no value"]


@pytest.mark.parametrize("mark", ["N/A", "NULL", "None", "<NA>", "#N/A", "NaN", ".", "?", "n/a"])
def test_what_stands_for_a_missing_value_is_listed_and_told(tmp_path: Path, mark: str) -> None:
    rows = [f"{mark if n == 4 else n % 7 + 0.5},{'pq'[n % 2]}" for n in range(20)]
    spec, told = drafted(tmp_path, "age,y", rows)
    assert (spec.features["age"].kind, spec.features["age"].missing) == ("numeric", "mean")
    assert told == [
        f"missing: '{mark}', 1 times, first in age (line 6); remove it from 'missing' if it is a value"
    ]
    assert np.isfinite(read(tmp_path)).all()


def test_dates_are_days(tmp_path: Path) -> None:
    rows = [f"2001-02-{n + 1:02},{'' if n == 3 else f'2000-01-02 {n:02}:30'},{'pq'[n % 2]}" for n in range(9)]
    spec, told = drafted(tmp_path, "seen,left,y", rows)
    assert {name: (one.kind, one.missing) for name, one in spec.features.items()} == {
        "seen": ("date", None),
        "left": ("date", "mean"),
    }
    assert (str(spec.features["seen"].since), told) == ("2000-01-01", [])
    assert read(tmp_path)[0].tolist() == np.float32([366 + 31, 1 + 0.5 / 24]).tolist()


@pytest.mark.parametrize("wrong", ["02/01/2020", "2021-02-30", "7", "unknown"])
def test_dates_with_few_mistakes_are_no_categories(tmp_path: Path, wrong: str) -> None:
    dates = [wrong if n in (7, 9) else f"2020-01-{n % 28 + 1:02}" for n in range(40)]
    (path := tmp_path / "own.csv").write_text(
        "a,b,y\n" + "".join(f"{one},{n % 5},{n % 2}\n" for n, one in enumerate(dates))
    )
    told = run("draft", path, "--label", "y")
    said = f"all values are dates but for 2, first '{wrong}' (line 9); write dates as 2000-12-31, or list"
    assert f"left out: a, {said} it in 'missing'" in told
    assert f"# a is left out: {said}" in path.with_suffix(".toml").read_text()


@pytest.mark.parametrize("mark", [",", ";"])
def test_a_name_may_go_on_in_the_next_line(tmp_path: Path, mark: str) -> None:
    rows = "".join(f"{n % 7},{n},{n % 2}\n" for n in range(40))
    (path := tmp_path / "own.csv").write_text(('"age\n(years)",b,"y\n"\n' + rows).replace(",", mark))
    run("draft", path, "--label", "y")
    assert [*read_spec(path.with_suffix(".toml")).features] == ["age\n(years)"]
    assert find_source("csv")(path, 0).x[:].shape == (40, 1)


def test_a_column_without_a_name_is_told(tmp_path: Path) -> None:
    _, told = drafted(tmp_path, ",a,y", [f"{n + 3},{n % 7},{'pq'[n % 2]}" for n in range(60)])
    assert told == [
        "left out: the column without a name, which is an index: 60 values in 60 rows, first '3' (line 2)"
    ]


SLASH = 'say { kind = "date", since = "2000-01-01", format = "%d/%m/%Y" }, or "%m/%d/%Y"'
DAYS = {
    "points": ("{0:02}.{1:02}.2021", "%d.%m.%Y"),
    "points, any day": ("{1}.{1}.2021", "%d.%m.%Y"),
    "slashes, the day first": ("{0:02}/{1:02}/2021", "%d/%m/%Y"),
    "slashes, the month first": ("{1}/{0}/2021 23:30", "%m/%d/%Y"),
    "slashes, either": ("{1:02}/{1:02}/2021", None),
    "the year first": ("2021/{1:02}/{0:02}", "%Y/%m/%d"),
    "ISO": ("2021-{1:02}-{0:02}", None),
    "no day": ("{0:02}.{0:02}.2021", None),
    "two orders": ("{2}", None),
}


@pytest.mark.parametrize("what", DAYS)
@pytest.mark.parametrize("name", ["day", "admission"])
def test_dates_in_another_order_are_found_or_asked_for(tmp_path: Path, what: str, name: str) -> None:
    """The name of an id says nothing where values are dates."""
    written, form = DAYS[what]
    mixed = ("2021-01-01", "01.01.2021")
    days = [written.format(n % 28 + 1, n % 12 + 1, mixed[n % 2]) for n in range(60)]
    spec, told = drafted(
        tmp_path, f"{name},a,y", [f"{day},{n % 7},{'pq'[n % 2]}" for n, day in enumerate(days)]
    )
    if what == "slashes, either":
        assert told == [f"left out: {name}, '01/01/2021' (line 2) may be a date in two orders; {SLASH}"]
    elif what == "no day":
        said = "'01.01.2021' (line 2) is a date by format = \"%d.%m.%Y\", and '13.13.2021' (line 14) is none"
        assert told[0].startswith(f"left out: {name}, {said}")
    elif what == "two orders":
        said = "'2021-01-01' (line 2) is a date by format = \"%Y-%m-%d\", and '01.01.2021' (line 3) is none"
        assert told[0].startswith(f"left out: {name}, {said}")
    else:
        assert (spec.features[name].kind, spec.features[name].format, told) == ("date", form, [])
        x = find_source("csv")(tmp_path / "t.csv", 0).x[:]
        assert x.shape == (60, 2)


def test_a_number_beyond_float64_is_told(tmp_path: Path) -> None:
    (path := tmp_path / "own.csv").write_text(
        "a,b,y\n" + "".join(f"{n}e400,{n % 5},{n % 2}\n" for n in range(9))
    )
    assert "left out: a, '1e400' (line 3) is too large a number; correct it, or" in run(
        "draft", path, "--label", "y"
    )


def test_a_draft_without_a_feature_says_so_and_so_does_its_spec(tmp_path: Path) -> None:
    (path := tmp_path / "own.csv").write_text("a,y\n" + "".join(f"{n},{n % 2}\n" for n in range(9)))
    assert 'no column is left as a feature: add one to the spec, for example age = "numeric"' in run(
        "draft", path, "--label", "y"
    )
    with pytest.raises(
        InputError, match=r'there is no column; name one that is a feature, as age = "numeric"'
    ):
        read_spec(path.with_suffix(".toml"))


def test_moments_of_a_label_are_read_as_the_table_writes_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;y\n1;1.000,5\n2;2.000,5\n3;N/A\n")
    assert label_moments([tmp_path / "t.csv"], "y") == (1500.5, 500.0)


NAMED = ("id", "ID", "patient_id", "PatientID", "subjectId", "pid", "MRN", "Patient", "record number")
NAMED += ("case-no", "Unnamed: 0", "__index_level_0__", "", "index")
MEASURED = ("age", "patient age", "number of children", "number", "body_mass_index", "zip code", "grid")
MEASURED += ("paid", "humid", "identity", "case_mix", "0")


@pytest.mark.parametrize("name", [*NAMED, *MEASURED])
def test_a_name_tells_an_id(name: str) -> None:
    assert is_named_id(name) == (name in NAMED)


def test_an_id_becomes_no_feature_and_what_looks_like_one_is_told(tmp_path: Path) -> None:
    """Visits of 30 persons, in their order: what stays the same over the visits of one says who it is."""
    rows = [
        f"{n},{7000 + n // 4},P{n // 4},{n * 37 % 101},{900 + n * 7 % 997},{'pq'[n % 2]}" for n in range(120)
    ]
    spec, told = drafted(tmp_path, "Unnamed: 0,person_id,case,age,film,y", rows)
    assert kinds(spec) == {"age": "numeric", "film": "numeric"}
    assert told == [
        "left out: Unnamed: 0, its name says that it is an id: 120 values in 120 rows, first '0' (line 2)",
        "left out: person_id, its name says that it is an id: 30 values in 120 rows, first '7000' (line 2)",
        "left out: case, its name says that it is an id: 30 values in 120 rows, first 'P0' (line 2)",
        "kept: film, a different whole number in every row, first '900' (line 2); remove it if it is an id",
        "group: person_id, whose rows stay together; remove it if they are not one person's",
    ]
    spec, told = drafted(tmp_path, "a,who,b,age,film,y", rows)
    assert spec.features["who"].kind == "numeric"
    repeated = "30 whole numbers, mostly the same in the next row, first '7000' (line 2)"
    assert f"kept: who, {repeated}; remove it if it is an id" in told


def test_measurements_are_no_ids(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    ages, smokes, chol = draw.integers([20, 0, 100], [90, 2, 300], (200, 3)).T
    few = [f"{n % 3 + 1},{('day', 'in', 'out')[n % 3]},{'pq'[n % 2]}" for n in range(200)]
    rows = [f"{ages[n]},{draw.normal():.3f},{smokes[n]},{chol[n]},{few[n]}" for n in range(200)]
    spec, told = drafted(tmp_path, "age,case index,smokes,chol,admission,patient,y", rows)
    assert (list(spec.features), told) == (
        ["age", "case index", "smokes", "chol", "admission", "patient"],
        [],
    )


@given(
    whole=st.integers(0, 10**12),
    fraction=st.text("0123456789", max_size=4),
    sign=st.sampled_from(["", "-", "+"]),
    way=st.sampled_from([PLAIN, *OTHERS]),
)
@settings(max_examples=200, deadline=None)
def test_a_number_comes_back_however_it_is_written(
    whole: int, fraction: str, sign: str, way: Notation
) -> None:
    groups = f"{whole:,}".replace(",", way.thousands)
    written = f"{sign}{groups}{way.decimal}{fraction}"
    assert float(way.plain(written)) == float(f"{sign}{whole}.{fraction}")
    assert way.plain(f"{sign}{whole}")
    spoilt = (f"{written}{end}" for end in (" ", "x", way.decimal, "_1"))
    assert not any(map(way.plain, (*spoilt, f"x{written}", "", "nan")))


SOUTH = """label = { kind = "categorical", column = "Ereignis" }
classes = [["0", "No", "nein"], ["1", "Yes", "ja"]]
id = "Fallnummer"
group = "Fallnummer"
missing = ["", "k.A."]
delimiter = ";"
encoding = "cp1252"
decimal = ","
standardise = "own"
[features]
sex = { rename = "Größe", kind = "categorical", levels = [["F", "w"], ["M", "m"]], missing = "level" }
glucose = { rename = "Glukose", factor = 18.016, kind = "numeric", missing = "mean" }
"""


def test_a_sites_own_spec_beside_its_table_is_what_draft_reads_it_by(tmp_path: Path) -> None:
    north = [f"N{n % 15},{'FM'[n % 2]},{n % 7},{90 + n},{n % 3 // 2}" for n in range(60)]
    (tmp_path / "north.csv").write_text("\n".join(["patient_id,sex,age,glucose,event", *north]) + "\n")
    south = [f"S{n % 12};{'wm'[n % 2]};{5 + n / 10:.1f};{'nein' if n % 4 else 'ja'}" for n in range(48)]
    lines = ["Fallnummer;Größe;Glukose;Ereignis", *(line.replace(".", ",") for line in south)]
    lines[4] = lines[4].replace(";5,3;", ";k.A.;")
    (tmp_path / "south.csv").write_bytes(("\n".join(lines) + "\n").encode("cp1252"))
    (tmp_path / "south.toml").write_text(SOUTH)
    tables, out = [tmp_path / "north.csv", tmp_path / "south.csv"], tmp_path / "all.toml"
    told = run("draft", *tables, "--label", "event", "--out", out)
    assert f"south.csv: read by its own spec {tmp_path / 'south.toml'}; where tables stay" in told
    assert "left out: age, not in south.csv" in told
    assert "Glukose" not in told, "nor has it another unit"
    own, common = read_spec(tmp_path / "south.toml"), read_spec(out)
    assert (common.label.read, common.classes) == (("event",), own.classes)
    assert (common.group, common.id) == ("patient_id", "patient_id")
    assert (common.encoding, common.delimiter, common.decimal) == ("utf-8", None, ".")
    assert common.features["sex"].levels == own.features["sex"].levels
    assert (common.features["glucose"].rename, common.features["glucose"].factor) == (None, None)
    assert (tmp_path / "south.toml").read_text() == SOUTH
    run("sites", *tables, "--spec", out, "--out", tmp_path / "shards", "--test", 0.2)
    assert [silo.examples["train"] > 20 for silo in read_federation(tmp_path / "shards").silos] == [True] * 2
    (tmp_path / "south.toml").write_text(SOUTH[: SOUTH.index("glucose =")])
    refused = CliRunner().invoke(
        app, ["sites", *map(str, tables), "--spec", str(out), "--out", str(tmp_path / "x")]
    )
    assert "has no column 'glucose', which the federation has" in str(refused.exception)
    (tmp_path / "south.toml").write_text(SOUTH.replace('"Ereignis"', '"Alter"'))
    (tmp_path / "south.csv").write_bytes("event;Größe;Glukose;Alter\n1;m;5;5\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"south.toml: learns Alter, and --label is event, which south.csv"):
        run("draft", *tables, "--label", "event", "--out", tmp_path / "no.toml")


def test_the_tables_of_several_sites_have_one_spec_with_all_their_levels(tmp_path: Path) -> None:
    for name, head, delimiter in (("a", "n,sex,dose,ill", ","), ("b", "n;sex;dose;ill;extra", ";")):
        rows = (
            [f"{n}", f"{name}{n % 2}", f"{n / 2}", f"{n % 2}", "x"][: 4 + (name == "b")] for n in range(1, 21)
        )
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *map(delimiter.join, rows)]) + "\n")
    tables = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(InputError, match=r"^--out: not given; say what the spec of several tables is called"):
        run("draft", *tables, "--label", "ill")
    with pytest.raises(InputError, match=r"a.csv and .*a.csv: tables of two sites are called alike; rename"):
        run("draft", tables[0], tables[0], "--label", "ill", "--out", tmp_path / "both.toml")
    told = run("draft", *tables, "--label", "ill", "--out", tmp_path / "both.toml").splitlines()
    assert told == [
        f"{tmp_path / 'both.toml'}: guessed from 2 tables; read it through before you partition",
        "left out: n, it numbers the rows, first '1' (line 2)",
        "left out: extra, not in a.csv",
        "spellings: sex has a0, a1 in a.csv, and b0, b1 in the others; write together what means the same, "
        "in one [ ]",
    ]
    spec = read_spec(tmp_path / "both.toml")
    (tmp_path / "a.toml").write_text('label = "ill"\n[features]\nsex = "categorical"\n')
    told = run("draft", *tables, "--label", "ill", "--out", tmp_path / "own.toml")
    assert "left out: dose, which a.toml leaves out" in told
    assert "left out: extra, not in a.csv" in told
    assert spec.features["sex"].levels == (("a0",), ("a1",), ("b0",), ("b1",))
    assert (spec.classes, spec.delimiter, [*spec.features]) == ((("0",), ("1",)), None, ["sex", "dose"])


def test_a_table_of_a_site_that_writes_numbers_otherwise_has_its_own_spec(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name, mark, delimiter in (("a", ".", ","), ("b", ".", ","), ("c", ",", ";")):
        rows = [
            delimiter.join([f"{draw.normal(27, 4):.1f}".replace(".", mark), f"x{n % 3}", f"{n % 2}"])
            for n in range(40)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"bmi{delimiter}arm{delimiter}ill", *rows]) + "\n")
    tables = [tmp_path / f"{name}.csv" for name in "abc"]
    words = (*tables, "--label", "ill", "--out", tmp_path / "all.toml")
    said = f'numbers: c.csv has decimal = ",", in its own spec {tmp_path / "c.toml"}'
    assert run("draft", *words).splitlines()[1:] == [said]
    common, own = read_spec(tmp_path / "all.toml"), read_spec(tmp_path / "c.toml")
    assert (common.notation, own.notation) == (Notation(), Notation(decimal=","))
    assert {one.features["bmi"].kind for one in (common, own)} == {"numeric"}
    assert common.features == own.features
    kept = (tmp_path / "c.toml").read_text()
    said = f"c.csv: read by its own spec {tmp_path / 'c.toml'}"
    assert said in run("draft", *tables, "--label", "ill", "--out", tmp_path / "more.toml")
    assert (tmp_path / "c.toml").read_text() == kept
    assert read_spec(tmp_path / "more.toml").features == common.features
    run("sites", *tables, "--spec", tmp_path / "all.toml", "--out", tmp_path / "shards")
    with h5py.File(tmp_path / "shards" / "silo_0002.h5") as file:
        assert np.abs(file["train/x"][:, 0]).max() < 4


def test_a_draft_asks_which_value_says_that_an_event_was_seen(tmp_path: Path) -> None:
    for values, asked in (("12", True), ("01", False)):
        rows = "".join(f"{n},{n % 7 + 1},{values[n % 2]}\n" for n in range(20))
        (path := tmp_path / f"{values}.csv").write_text(f"dose,days,status\n{rows}")
        told = run("draft", path, "--kind", "survival", "--label", "days,status")
        line = (
            'label: status has 1, 2; say which one means that the event was seen, as event = { column = "st'
        )
        assert (line in told) == asked


def test_a_column_that_another_table_calls_otherwise_is_asked_for(tmp_path: Path) -> None:
    for name, head in (("a", "age,glucose,ward,ill"), ("b", "age,glukose,ill"), ("c", "age,glucose,ill")):
        rows = (f"{30 + n % 7},{5 + n % 5 / 4},{'x,' * (name == 'a')}{n % 2}" for n in range(20))
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    (tmp_path / "d.csv").write_text("alter,krank\n1,0\n2,1\n")
    with pytest.raises(
        InputError, match=r"d\.csv: has no column 'ill', which a\.csv has; its columns are alter, krank"
    ):
        run("draft", tmp_path / "a.csv", tmp_path / "d.csv", "--label", "ill", "--out", tmp_path / "all.toml")
    (tmp_path / "d.toml").write_text('label = "krank"\n[features]\nalter = "numeric"\n')
    with pytest.raises(InputError, match=r"a\.csv: no table has a column 'il'; did you mean 'ill'\? its col"):
        run("draft", tmp_path / "d.csv", tmp_path / "a.csv", "--label", "il", "--out", tmp_path / "all.toml")
    tables = [tmp_path / f"{name}.csv" for name in "abc"]
    told = run("draft", *tables, "--label", "ill", "--out", tmp_path / "all.toml").splitlines()
    assert told[1:] == [
        "left out: glucose, not in b.csv; if glukose is the same column, add glucose to the spec, and "
        'in a copy of it, b.toml, say rename = "glukose"',
        "left out: ward, not in b.csv, c.csv",
        "left out: glukose, not in a.csv, c.csv",
    ]
    spec = (tmp_path / "all.toml").read_text() + 'glucose = "numeric"\n'
    (tmp_path / "all.toml").write_text(spec)
    own = 'glucose = { kind = "numeric", rename = "glukose" }'
    (tmp_path / "b.toml").write_text(spec.replace('glucose = "numeric"', own))
    for name in "ac":
        (tmp_path / f"{name}.toml").write_text(spec)
    run("draft", *tables, "--label", "ill", "--out", tmp_path / "ill.toml")
    with pytest.raises(
        InputError, match=r"^--label il: no spec .* has this column; .* mean 'ill'\? there are ill"
    ):
        run("draft", *tables, "--label", "il", "--out", tmp_path / "il.toml")
    run("sites", *tables, "--spec", tmp_path / "all.toml", "--out", tmp_path / "out")


def test_what_a_sites_own_spec_does_not_say_of_other_tables_is_told(tmp_path: Path) -> None:
    for name, wards in (("a", "xy"), ("b", "x")):
        rows = [
            f"{30 + n % 7 if n != 5 or name == 'b' else ''},{wards[n % len(wards)]},{n % 2}"
            for n in range(20)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,ward,ill", *rows]) + "\n")
    own = 'label = { column = "ill", classes = ["0", "1"] }\n[features]\nage = "numeric"\n'
    (tmp_path / "b.toml").write_text(f'{own}ward = {{ kind = "categorical", levels = ["x"] }}\n')
    words = "draft", tmp_path / "a.csv", tmp_path / "b.csv", "--label", "ill", "--out", tmp_path / "all.toml"
    with pytest.raises(
        InputError, match=r"b.toml: label: .*classes stands beside label, on a line of its own"
    ):
        run(*words)
    (tmp_path / "b.toml").write_text((tmp_path / "b.toml").read_text().replace(', classes = ["0", "1"]', ""))
    told = run(*words).splitlines()
    assert "levels: ward has 'y', which b.toml does not list; add it there" in told
    gaps = "gaps: age has 1 missing, and b.toml refuses them; say missing there, as missing"
    assert f'{gaps} = "mean"' in told


def test_a_site_that_writes_dates_in_its_own_order_gets_a_spec_of_its_own(tmp_path: Path) -> None:
    days = [f"{n % 28 + 1:02}" for n in range(40)]
    for name, form in (("east", "{}.05.2021"), ("north", "{}.06.2021"), ("west", "2021-05-{}")):
        rows = [f"{form.format(day)},{n},{'ab'[n % 2]}" for n, day in enumerate(days)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["seen,n,ill", *rows]) + "\n")
    tables = [tmp_path / f"{name}.csv" for name in ("east", "north", "west")]
    drafted = draft(tables, Learned("categorical", ("ill",)))
    line = 'seen = { kind = "date", since = "2000-01-01"'
    assert f'{line}, format = "%d.%m.%Y" }}' in drafted.text
    assert [*drafted.own] == [tables[2]]
    assert f"{line} }}" in drafted.own[tables[2]]
    assert f"dates: west.csv has {line} }}, in its own spec {tmp_path / 'west.toml'}" in drafted.told
    (tmp_path / "west.toml").write_text(f'label = "ill"\n[features]\n{line} }}\n')
    drafted = draft(tables[1:], Learned("categorical", ("ill",)))
    assert f'{line}, format = "%d.%m.%Y" }}' in drafted.text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["24.11.21", "25.12.21"], "'24.11.21' (line 2) is a date whose year has two digits"),
        (["24.11.2021", "2021-12-25"], "'2021-12-25' (line 3) is none; write all dates alike"),
        (["24.11.2021", "25.12.21"], "'25.12.21' (line 3) is none; write all dates alike"),
        (
            ["24.11.2021", "soon"],
            "'soon' (line 3) is none; write all dates alike, or list others in 'missing'",
        ),
    ],
)
def test_advice_on_dates_erases_none(tmp_path: Path, values: list[str], said: str) -> None:
    rows = [f"{values[n % 2]},{n % 7},{'ab'[n % 2]}" for n in range(40)]
    (tmp_path / "one.csv").write_text("\n".join(["seen,n,ill", *rows]) + "\n")
    told = draft(tmp_path / "one.csv", Learned("categorical", ("ill",))).told
    (line,) = (line for line in told if "left out: seen" in line)
    assert said in line
    assert ("list others" in line) is ("soon" in values)
