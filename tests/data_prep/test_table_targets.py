"""What may be learned of a table besides a category, and dates among its features; commands as typed."""

import csv
import hashlib
from datetime import date

import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError
from mpifl.data.shards.shards import open_shard, read_federation

HEADER = ["ward", "age", "sex", "admitted", "sys", "dia", "cough", "fever", "days", "died"]
ROWS = [
    ["north", "50", "f", "2000-01-03", "120.5", "80", "0", "1", "12", "1"],
    ["south", "61", "m", "1999-12-31", "140", "-90", "1", "1", "0.5", "0"],
    ["south", "33", "m", "2000-03-01 12:00", "1e2", "70", "1", "0", "7", "0"],
    ["north", "70", "f", "2024-02-29", "99", "60", "0", "0", "30", "1"],
]
FEATURES = """
silo = "ward"
missing = ["", "?"]
[features]
age = "numeric"
sex = { kind = "categorical", levels = ["f", "m"] }
admitted = { kind = "date", since = "2000-01-01" }
"""
NAMES = ["age", "sex=f", "sex=m", "admitted"]
LABELS = {
    "a number": '{ column = "sys", kind = "numeric" }',
    "numbers": '{ columns = ["sys", "dia"], kind = "numeric" }',
    "labels": '{ columns = ["cough", "fever"], kind = "multilabel" }',
    "survival": '{ time = "days", event = "died", kind = "survival" }',
}
Y = {
    "a number": [120.5, 140, 100, 99],
    "numbers": [[120.5, 80], [140, -90], [100, 70], [99, 60]],
    "labels": [[0, 1], [1, 1], [1, 0], [0, 0]],
    "survival": [[12, 1], [0.5, 0], [7, 0], [30, 1]],
}
TOLD = {
    "a number": ("float32", (), ["sys"]),
    "numbers": ("float32", (2,), ["sys", "dia"]),
    "labels": ("bool", (2,), ["cough", "fever"]),
    "survival": ("float32", (2,), ["time", "event"]),
}
every_kind = pytest.mark.parametrize("kind", LABELS)


def run(*words, ends=0):
    """Run a command as typed; it must end so."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert (ended.value.code or 0) == ends


def write(folder, label, rows=ROWS, features=FEATURES, name="own.csv"):
    folder.mkdir(exist_ok=True)
    with (path := folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    path.with_suffix(".toml").write_text(f"label = {LABELS.get(label, label)}\n{features}")
    return path


def changed(column, value, at=1):
    rows = [list(row) for row in ROWS]
    rows[at][HEADER.index(column)] = value
    return rows


def cut(path, out, *more, ends=0, scheme="natural"):
    run("partition", "csv", "--data", path, "--out", out, "--scheme", scheme, *more, ends=ends)
    return out


@every_kind
def test_columns_become_targets_with_their_names(tmp_path, capsys, kind):
    folder = cut(write(tmp_path, kind), tmp_path / "out")
    spec = read_federation(folder)
    assert (spec.classes, spec.class_names, spec.feature_names) == (None, None, NAMES)
    assert (spec.targets.dtype, spec.targets.shape, spec.targets.names) == TOLD[kind]
    north, south = (open_shard(folder, entry, spec)["train"] for entry in spec.silos)
    assert north.y.tolist() == [Y[kind][0], Y[kind][3]]
    assert south.y.tolist() == Y[kind][1:3]
    run("check", folder)
    capsys.readouterr()
    run("inspect", folder, "--features")
    assert TOLD[kind][2][0] in capsys.readouterr().out


def test_a_value_of_ones_own_says_that_an_event_was_seen(tmp_path):
    rows = [[*row[:-1], status] for row, status in zip(ROWS, ["2", "1", "0", "2.0"], strict=True)]
    label = '{ kind = "survival", time = "days", event = { column = "died", value = %s } }'
    for value in ("2", '"2"', "2.0"):
        data = find_source("csv")(write(tmp_path, label % value, rows), 0)
        assert data.y.tolist() == Y["survival"]
        assert data.targets.names == ["time", "event"]
    lacks = find_source("csv")(write(tmp_path, label % "3", rows), 0).lacks
    assert lacks == "no row has '3' in died, so no event was seen"
    with pytest.raises(InputError, match=r"line 2: died is '2', it must .* event = \{ column = 'died', val"):
        find_source("csv")(write(tmp_path, "survival", rows), 0)


@every_kind
def test_the_bits_are_the_same_for_any_jobs(tmp_path, kind):
    rows = [
        [f"w{n % 3}", f"{n}", "fm"[n % 2], f"2001-01-{n % 28 + 1:02}", f"{n / 7}", "1", "0", "1", f"{n}", "1"]
        for n in range(200)
    ]
    path = write(tmp_path, kind, rows)
    for jobs in (1, 3):
        cut(
            path,
            tmp_path / str(jobs),
            "--silos",
            3,
            "--seed",
            4,
            "--valid",
            0.2,
            "--jobs",
            jobs,
            scheme="iid",
        )
    ones, threes = (
        {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in (tmp_path / jobs).iterdir()}
        for jobs in "13"
    )
    assert ones == threes
    assert len(ones) == 4


def test_parquets_own_types_are_taken(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = write(tmp_path, "labels").with_suffix(".parquet")
    columns = {name: list(values) for name, values in zip(HEADER, zip(*ROWS, strict=True), strict=True)}
    columns["cough"] = [value == "1" for value in columns["cough"]]
    columns["admitted"] = arrow.array([date(2000, 1, 1 + n) for n in range(4)])
    parquet.write_table(arrow.table(columns), path)
    dataset = find_source("parquet")(path, 0)
    assert dataset.y.tolist() == Y["labels"]
    assert dataset.x[:, 3].tolist() == [0, 1, 2, 3]
    columns["admitted"] = columns["admitted"].cast(arrow.timestamp("ns"))
    parquet.write_table(arrow.table(columns), path)
    assert find_source("parquet")(path, 0).x[:, 3].tolist() == [0, 1, 2, 3]


def test_dates_become_days(tmp_path):
    x = find_source("csv")(write(tmp_path, "a number"), 0).x
    assert x[:, 3].tolist() == [2, -1, 60.5, (date(2024, 2, 29) - date(2000, 1, 1)).days]


def test_a_missing_date_is_filled_and_dates_are_standardised(tmp_path):
    rows = changed("admitted", "?")
    for how, value in (('"mean"', (2 + 60.5 + 8825) / 3), ('"constant", constant = "2000-01-11"', 10)):
        stated = FEATURES.replace('since = "2000-01-01"', f"since = 2000-01-01, missing = {how}")
        x = find_source("csv")(write(tmp_path, "a number", rows, stated), 0).x
        assert x[1, 3] == pytest.approx(value)
    x = find_source("csv")(write(tmp_path, "a number", features=f'standardise = "own"{FEATURES}'), 0).x
    assert x[:, 3].mean() == pytest.approx(0, abs=1e-6)
    assert x[:, 3].std() == pytest.approx(1, abs=1e-6)
    dropped = FEATURES.replace('since = "2000-01-01"', 'since = 2000-01-01, missing = "drop"')
    assert len(find_source("csv")(write(tmp_path, "a number", rows, dropped), 0)) == 3


@every_kind
def test_a_missing_target_is_refused_or_its_row_left_out(tmp_path, kind):
    column = {"a number": "sys", "numbers": "dia", "labels": "fever", "survival": "died"}[kind]
    rows = changed(column, "?")
    with pytest.raises(InputError, match=rf"own\.csv: line 3: {column}, the label, is missing"):
        find_source("csv")(write(tmp_path, kind, rows), 0)
    dropping = LABELS[kind].replace("}", ', missing = "drop" }')
    dataset = find_source("csv")(write(tmp_path, dropping, rows), 0)
    assert dataset.y.tolist() == [Y[kind][0], *Y[kind][2:]]
    assert dataset.silo.tolist() == [0, 1, 0]


def test_a_category_written_as_a_table_is_the_same(tmp_path):
    labels = ('"died"', '{ column = "died" }')
    plain, long = (find_source("csv")(write(tmp_path, label), 0) for label in labels)
    assert (plain.class_names, plain.targets) == (long.class_names, long.targets) == (("0", "1"), None)
    assert plain.y.tolist() == long.y.tolist() == [1, 0, 0, 1]


FAULTS = {
    "a word": ("a number", changed("sys", "high"), "line 3: sys is 'high', not a finite number"),
    "NaN": ("numbers", changed("dia", "nan"), "line 3: dia is 'nan', not a finite number"),
    "too large": ("a number", changed("sys", "1e39"), "line 3: sys is '1e39', too large for float32"),
    "no mark": ("labels", changed("fever", "2", at=2), "line 4: fever is '2', it must be 0 or 1"),
    "half a mark": ("labels", changed("fever", "0.5"), "line 3: fever is '0.5', it must be 0 or 1"),
    "a negative time": ("survival", changed("days", "-1"), "line 3: days is '-1', a time below 0"),
    "times that become ties": (
        "survival",
        [[*row[:-2], str(1_500_000_000 + nth), row[-1]] for nth, row in enumerate(ROWS)],
        "days: times 1500000000 and 1500000001 are one in float32; count from a zero nearer to them",
    ),
    "no event": ("survival", changed("died", "3"), "line 3: died is '3', it must be 0 or 1"),
    "all censored": (
        "survival",
        [[*row[:-1], "0"] for row in ROWS],
        "no row has '1' in died, so no event was seen; at least one row needs it",
    ),
    "no date": (
        "a number",
        changed("admitted", "2001-02-30"),
        "line 3: admitted is '2001-02-30', and there is no such day",
    ),
    "another date": (
        "a number",
        changed("admitted", "1/2/2001"),
        "line 3: admitted is '1/2/2001', not a date",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_value_ends_the_command_with_one_line(tmp_path, capsys, fault):
    kind, rows, said = FAULTS[fault]
    cut(path := write(tmp_path, kind, rows), tmp_path / "out", ends=2)
    error = capsys.readouterr().err
    assert said in error
    assert str(path) in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


DATE = 'admitted = { kind = "date", since = "2000-01-01" }'
SPECS = {
    "no column": (
        '{ kind = "numeric" }',
        FEATURES,
        "label: kind = 'numeric' needs column or columns",
    ),
    "both": (
        '{ kind = "numeric", column = "sys", columns = ["dia"] }',
        FEATURES,
        "column and columns is given",
    ),
    "half of survival": (
        '{ kind = "survival", time = "days" }',
        FEATURES,
        "needs time and event, and time is",
    ),
    "one label": ('{ kind = "multilabel", column = "cough" }', FEATURES, "kind = 'multilabel' needs columns"),
    "a column twice": ('{ kind = "numeric", columns = ["sys", "sys"] }', FEATURES, "a column is named twice"),
    "another kind": ('{ kind = "ordinal", column = "sys" }', FEATURES, "label.kind: "),
    "another key": ('{ kind = "numeric", column = "sys", unit = "mm" }', FEATURES, "label.unit: "),
    "a feature": ('{ kind = "numeric", columns = ["sys", "age"] }', FEATURES, "'age' is the label"),
    "classes": (
        LABELS["a number"] + "\nclasses = ['a', 'b']",
        FEATURES,
        "are for a categorical label, not kind",
    ),
    "no since": ('"died"', FEATURES.replace(', since = "2000-01-01"', ""), "kind = 'date' and since"),
    "since is none": ('"died"', FEATURES.replace("2000-01-01", "2000"), "'2000' is not a date"),
    "since a number": ('"died"', FEATURES.replace('"2000-01-01"', "5"), "'5' is not a date"),
    "levels of dates": (
        '"died"',
        FEATURES.replace(DATE, DATE.replace(" }", ', levels = ["a"] }')),
        "are for kind = 'categorical'",
    ),
    "a constant": (
        '"died"',
        FEATURES.replace(DATE, DATE.replace(" }", ', missing = "constant", constant = "May" }')),
        "the constant 'May' is not a date",
    ),
}


@pytest.mark.parametrize("fault", SPECS)
def test_a_bad_spec_is_named(tmp_path, fault):
    label, features, said = SPECS[fault]
    path = write(tmp_path, label, features=features)
    with pytest.raises(InputError) as error:
        find_source("csv")(path, 0)
    assert said in str(error.value)
    assert str(path.with_suffix(".toml")) in str(error.value)
