"""Tables by their spec: the numbers they become,
statistics that silos add up, and a line for what is wrong."""

import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from data_prep.tables.encoding import Encoder
from data_prep.tables.spec import TableSpec, read_spec
from data_prep.tables.values.moments import Moments, moments_of, read_moments
from mpifl.common.errors import InputError
from mpifl.common.files import sha256_of
from mpifl.data.shards.shards import open_shard, read_federation

SPEC = """
label = "ill"
classes = ["no", ["yes", "Yes."]]
silo = "hospital"
missing = ["?", ""]
[features]
age = { kind = "numeric", missing = "drop" }
sex = { kind = "categorical", levels = ["f", "m"], encoding = "ordinal", missing = "drop" }
pain = { kind = "categorical", levels = ["none", "some", "much"], missing = "level" }
weight = { kind = "numeric", missing = "mean" }
dose = { kind = "numeric", missing = "constant", constant = 2.5 }
"""
HEADER = ["ill", "age", "hospital", "unused", "sex", "pain", "weight", "dose"]
ROWS = [
    ["no", "50", "north", "x", "f", "none", "60", "1"],
    ["yes", "61.5", "south", "x", "m", "much", "?", "?"],
    ["Yes.", "?", "south", "x", "m", "much", "999", "1"],
    ["no", "-3e1", "north", "", "f", "?", "80", "0.125"],
]
NAMES = ("age", "sex", "pain=none", "pain=some", "pain=much", "pain=missing", "weight", "dose")
PLAIN = [[50, 0, 1, 0, 0, 0, 60, 1], [61.5, 1, 0, 0, 1, 0, 70, 2.5], [-30, 0, 0, 0, 0, 1, 80, 0.125]]


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def write(folder, rows=ROWS, spec=SPEC, header=HEADER, name="table.csv"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows] if header else rows)
    path.with_suffix(".toml").write_text(spec)
    return path


def write_parquet(folder, rows=ROWS, spec=SPEC):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = write(folder, rows, spec).with_suffix(".parquet")
    columns = {name: list(values) for name, values in zip(HEADER, zip(*rows, strict=True), strict=True)}
    for name in ("age", "weight", "dose"):
        columns[name] = [None if value == "?" else float(value) for value in columns[name]]
    columns["pain"] = arrow.array(
        [None if value == "?" else value for value in columns["pain"]]
    ).dictionary_encode()
    parquet.write_table(arrow.table(columns), path, row_group_size=2)
    return path


AGES = {"a": "70", "b": "20"}.items()
"""Of a row more that tells the tables of two folders apart."""
WRITERS = {"csv": write, "parquet": write_parquet}
every_kind = pytest.mark.parametrize("kind", WRITERS)


@every_kind
def test_a_table_becomes_the_numbers_its_spec_says(tmp_path, kind):
    dataset = find_source(kind)(WRITERS[kind](tmp_path / "in"), 0)
    assert dataset.feature_names == NAMES
    assert (dataset.x.dtype, dataset.x.tolist()) == (np.float32, PLAIN)
    assert (dataset.y.tolist(), dataset.class_names) == ([0, 1, 0], ("no", "yes"))
    assert (dataset.silo.tolist(), dataset.silo_names) == ([0, 1, 0], {0: "north", 1: "south"})
    assert set(dataset.files) == {f"table.{kind}", "table.toml"}


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_pieces_it_is_read_in_are_no_matter(tmp_path, rows, monkeypatch):
    monkeypatch.setattr("data_prep.tables.files.lines.ROWS", rows)
    assert find_source("csv")(write(tmp_path / "in"), 0).x.tolist() == PLAIN


@every_kind
def test_every_bit_of_a_float_survives(tmp_path, kind):
    values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.random.default_rng(1).integers(
        -30, 30, 200
    )
    rows = [["no", repr(float(v)), "a", "x", "f", "none", "1", "1"] for v in values]
    dataset = find_source(kind)(WRITERS[kind](tmp_path / "in", rows), 0)
    assert np.array_equal(dataset.x[:, 0], values.astype(np.float32))


def test_a_partition_by_the_silo_column_keeps_its_names(tmp_path):
    path = write(tmp_path / "in")
    assert (
        command(
            "partition", "csv", "--data", str(path), "--out", str(tmp_path / "out"), "--scheme", "natural"
        )
        == 0
    )
    spec = read_federation(tmp_path / "out")
    assert [entry.name for entry in spec.silos] == ["north", "south"]
    assert open_shard(tmp_path / "out", spec.silos[0], spec)["train"].x.tolist() == [PLAIN[0], PLAIN[2]]


def test_silos_are_numbered_by_their_names_and_not_as_they_come(tmp_path):
    rows = [[*ROWS[0][:2], silo, *ROWS[0][3:]] for silo in ("9", "10", "9", "-1")]
    dataset = find_source("csv")(write(tmp_path / "in", rows), 0)
    assert (dataset.silo.tolist(), dataset.silo_names) == ([1, 2, 1, 0], {0: "-1", 1: "9", 2: "10"})


def spec_with(**changes):
    text = SPEC
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    return text


def test_levels_and_classes_that_are_not_stated_are_those_that_occur(tmp_path):
    spec = spec_with(
        a=('classes = ["no", ["yes", "Yes."]]\n', ""), b=(', levels = ["none", "some", "much"]', "")
    )
    dataset = find_source("csv")(write(tmp_path / "in", spec=spec), 0)
    assert dataset.feature_names[2:5] == ("pain=much", "pain=none", "pain=missing")
    assert dataset.class_names == ("no", "yes")
    rows = [[label, "1", "a", "x", "f", "none", "1", "1"] for label in ("10", "9", "-1")]
    dataset = find_source("csv")(write(tmp_path / "in", rows=rows, spec=spec), 0)
    assert dataset.class_names == ("-1", "9", "10")


def test_a_threshold_cuts_a_number_into_two_classes(tmp_path):
    spec = spec_with(a=('label = "ill"\nclasses = ["no", ["yes", "Yes."]]', 'label = "num"\nthreshold = 1.5'))
    rows = [[label, *ROWS[0][1:]] for label in ("0", "1.5", "1.6", "4")]
    dataset = find_source("csv")(write(tmp_path / "in", rows=rows, spec=spec, header=["num", *HEADER[1:]]), 0)
    assert (dataset.y.tolist(), dataset.class_names) == ([0, 0, 1, 1], ("<= 1.5", "> 1.5"))


def test_standardising_brings_numeric_columns_to_mean_0_and_deviation_1(tmp_path):
    rng = np.random.default_rng(2)
    rows = [
        ["no", repr(v), "a", "x", "f", "none", repr(w), "7"] for v, w in rng.normal(50, 9, (300, 2)).tolist()
    ]
    rows[5][6] = "?"
    spec = spec_with(a=("silo", 'standardise = "own"\nsilo'))
    x = np.asarray(find_source("csv")(write(tmp_path / "in", rows=rows, spec=spec), 0).x, float)
    assert x[:, [0, 6]].mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert x[:, 0].std() == pytest.approx(1, abs=1e-6)
    assert x[5, 6] == 0  # the mean, in place of the missing value
    assert (x[:, 7] == 0).all()  # a constant column
    assert (x[:, 2] == 1).all()  # levels stay


def test_stated_means_go_before_the_tables(tmp_path):
    spec = spec_with(
        a=(
            'age = { kind = "numeric", missing = "drop" }',
            'age = { kind = "numeric", missing = "drop", mean = 40, deviation = 10 }',
        )
    )
    x = find_source("csv")(write(tmp_path / "in", spec=spec), 0).x
    assert x[:, 0].tolist() == pytest.approx([1, 2.15, -7])
    assert x[:, 6].tolist() == [60, 70, 80]


def test_silos_that_share_statistics_standardise_as_one_table_would(tmp_path, capsys):
    rng = np.random.default_rng(3)
    rows = [
        ["no", repr(v), "a", "x", "f", "none", repr(w), repr(v * w)]
        for v, w in rng.normal(3, 2, (90, 2)).tolist()
    ]
    rows[70][6] = "?"
    parts = rows[:20], rows[20:60], rows[60:]
    for number, part in enumerate(parts):
        path = write(tmp_path / "in", rows=part, name=f"site{number}.csv")
        assert (
            command(
                "statistics", "csv", "--data", str(path), "--out", str(tmp_path / "in" / f"{number}.json")
            )
            == 0
        )
    shared = spec_with(a=("silo", 'standardise = ["0.json", "1.json", "2.json"]\nsilo'))
    own = spec_with(a=("silo", 'standardise = "own"\nsilo'))
    together = find_source("csv")(write(tmp_path / "in", rows=rows, spec=own), 0).x
    alone = [
        find_source("csv")(write(tmp_path / "in", rows=part, spec=shared, name=f"site{n}.csv"), 0).x
        for n, part in enumerate(parts)
    ]
    assert np.concatenate(alone) == pytest.approx(np.asarray(together), abs=1e-5)
    stated = json.loads((tmp_path / "in" / "1.json").read_text())["columns"]
    assert stated["age"]["count"] == 40
    assert stated["age"]["sum"] == pytest.approx(sum(float(row[1]) for row in parts[1]))
    assert set(stated) == {"age", "weight", "dose"}


def test_moments_are_counts_sums_and_squares():
    values = np.array([1.0, np.nan, 4.0, -2.0])
    one, two = moments_of({"a": values}), moments_of({"a": np.array([10.0]), "b": np.array([1.0, 1.0])})
    a, b = ((one + two).columns[name] for name in "ab")
    assert (a.count, a.sum, a.squares) == (4, 13.0, 121.0)
    assert a.mean == np.mean([1, 4, -2, 10])
    assert a.deviation == pytest.approx(np.std([1, 4, -2, 10]))
    assert (b.mean, b.deviation) == (1.0, 1.0)
    assert one + Moments(columns={}) == one


def test_a_second_table_is_the_servers_test_set_and_teaches_nothing(tmp_path):
    spec = spec_with(a=("silo", 'standardise = "own"\nsilo'))
    path = write(tmp_path / "in", spec=spec)
    other = write(
        tmp_path / "in", rows=[["yes", "1000", "east", "x", "f", "none", "?", "?"]], name="other.csv"
    )
    alone = find_source("csv")(path, 0)
    both = find_source("csv", [f"test={other}"])(path, 0)
    assert np.array_equal(alone.x, both.x)
    assert both.test[0].shape == (1, 8)
    assert both.test[0][0, 0] > 10
    assert both.test[1].tolist() == [1]


def test_every_file_that_is_read_is_noted_though_others_have_its_name(tmp_path, monkeypatch):
    spec = spec_with(a=("silo", 'standardise = ["own.json", "../b/own.json"]\nsilo'))
    tables = {
        name: write(tmp_path / name, spec=spec, rows=[*ROWS, [*ROWS[0][:1], age, *ROWS[0][2:]]])
        for name, age in AGES
    }
    for path in tables.values():
        assert command("statistics", "csv", "--data", path, "--out", path.with_name("own.json")) == 0
    monkeypatch.chdir(tmp_path / "b")  # where the test table's path is no more than its name
    read = [
        tables["a"],
        tables["a"].with_suffix(".toml"),
        tables["b"],
        *(tmp_path / name / "own.json" for name in "ab"),
    ]
    files = find_source("csv", ["test=table.csv"])(tables["a"], 0).files
    assert sorted(files.values()) == sorted(sha256_of(path) for path in read)
    assert {"table.csv", "./table.csv", "table.toml", "own.json"} < set(files)


@pytest.mark.parametrize("changed", ["a/table.csv", "b/table.csv", "a/own.json"])
def test_resuming_with_another_table_or_statistics_is_refused(tmp_path, capsys, changed):
    spec = spec_with(a=("silo", 'standardise = ["own.json"]\nsilo'))
    tables = {
        name: write(tmp_path / name, spec=spec, rows=[*ROWS, [*ROWS[0][:1], age, *ROWS[0][2:]]])
        for name, age in AGES
    }
    statistics = ["statistics", "csv", "--data", tables["b"], "--out", tmp_path / "a" / "own.json"]
    assert command(*statistics) == 0
    words = ["partition", "csv", "--data", tables["a"], "--option", f"test={tables['b']}", "--scheme", "iid"]
    words += ["--silos", 2, "--out", tmp_path / "out", "--resume"]
    assert command(*words) == 0
    path = tmp_path / changed
    if path.suffix == ".json":
        assert command("statistics", "csv", "--data", tables["a"], "--out", path) == 0
    else:
        path.write_text(path.read_text().replace("50", "55"))
    assert command(*words) == 2
    assert "made with other arguments or data" in capsys.readouterr().err


def test_names_comments_and_a_delimiter(tmp_path):
    stated = f'names = {json.dumps(HEADER)}\ncomment = "#"\ndelimiter = ";"\nlabel = "ill"'
    path = write(tmp_path / "in", spec=spec_with(a=('label = "ill"', stated)))
    first, *others = ("; ".join(row) for row in ROWS)
    rows = "\n".join([first, ' # in inches; "5', *others])  # the mark opens no field
    text = f"# a comment; with; more\n\n{rows}\n\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert find_source("csv")(path, 0).x.tolist() == PLAIN


@every_kind
def test_a_category_may_stand_for_a_missing_value(tmp_path, kind):
    for levels, names in (
        (', levels = ["none", "some", "much"]', ["none", "some", "much"]),
        ("", ["much", "none", "some"]),
    ):
        constant = ', missing = "constant", constant = "some" }'
        spec = spec_with(a=(', levels = ["none", "some", "much"], missing = "level" }', levels + constant))
        dataset = find_source(kind)(WRITERS[kind](tmp_path / "in", spec=spec), 0)
        assert dataset.feature_names[2:5] == tuple(f"pain={name}" for name in names)
        assert [names[code] for code in np.asarray(dataset.x)[:, 2:5].argmax(axis=1)] == [
            "none",
            "much",
            "some",
        ]


def row(at, value):
    changed = [list(each) for each in ROWS]
    changed[1][at] = value
    return {"rows": changed}


FAULTS = {
    "ragged": ({"rows": [*ROWS[:2], ROWS[2][:-1]]}, "line 4: 7 values, there are 8 columns"),
    "too wide": ({"rows": [[*ROWS[0], "9"]]}, "line 2: 9 values, there are 8 columns"),
    "unknown class": (row(0, "perhaps"), "line 3: ill is 'perhaps', an unknown class; there are no, yes"),
    "no label": (row(0, "?"), "line 3: ill, the label, is missing"),
    "no silo": (row(2, "?"), "line 3: hospital, the silo, is missing"),
    "no number": (row(1, "old"), "line 3: age is 'old', not a finite number"),
    "NaN": (row(1, "nan"), "line 3: age is 'nan', not a finite number"),
    "infinite": (row(6, "-inf"), "line 3: weight is '-inf', not a finite number"),
    "unknown level": (row(5, "awful"), "line 3: pain is 'awful'; its levels are none, some, much"),
    "unknown column": (
        {"header": ["ill", "years", *HEADER[2:]]},
        "column 'age' of the spec is not there; there are ill",
    ),
    "a column twice": (
        {"header": [*HEADER[:3], "age", *HEADER[4:]]},
        "column 'age' of the spec is there twice",
    ),
    "no rows": ({"rows": []}, "csv: has no rows"),
    "all rows dropped": ({"rows": [ROWS[2]]}, "has no rows without a missing value"),
    "an open quote": ({"rows": [['"open', *ROWS[0][1:]]]}, None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_table_is_named(tmp_path, fault):
    given, said = FAULTS[fault]
    path = write(tmp_path / "in", **given)
    if said is None:
        path.write_text(path.read_text().replace('"""open"', '"open'))
        said = "not a CSV table in UTF-8, or damaged"
    with pytest.raises(InputError, match=r".") as error:
        find_source("csv")(path, 0)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_a_bad_table_ends_the_command_with_one_line(tmp_path, capsys):
    path = write(tmp_path / "in", **row(1, "old"))
    assert (
        command(
            "partition", "csv", "--data", str(path), "--out", str(tmp_path / "out"), "--scheme", "natural"
        )
        == 2
    )
    err = capsys.readouterr().err
    assert "line 3: age is 'old'" in err
    assert err.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


def test_too_many_values_of_a_category_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.tables.surveying.MOST_VALUES", 1)
    spec = spec_with(b=(', levels = ["none", "some", "much"]', ""))
    with pytest.raises(InputError, match="column 'pain' has over 1 different values"):
        find_source("csv")(write(tmp_path / "in", spec=spec), 0)


SPECS = {
    "not TOML": ("label = ", "not TOML"),
    "no label": ("[features]\na = 'numeric'", "label: not given"),
    "no features": ("label = 'a'", "features: Field required"),
    "empty features": ("label = 'a'\n[features]", "features: "),
    "another key": ("label = 'a'\nsep = ','\n[features]\nb = 'numeric'", "sep: Extra inputs"),
    "another kind": ("label = 'a'\n[features]\nb = 'dates'", "features.b.kind: "),
    "the label as feature": ("label = 'a'\n[features]\na = 'numeric'", "'a' is the label"),
    "classes and threshold": (
        "label = 'a'\nthreshold = 1\nclasses = ['x', 'y']\n[features]\nb = 'numeric'",
        "exclude",
    ),
    "one class": ("label = 'a'\nclasses = ['x']\n[features]\nb = 'numeric'", "classes: "),
    "levels of numbers": (
        "label = 'a'\n[features]\nb = {kind = 'numeric', levels = ['1']}",
        "are for kind = 'categor",
    ),
    "mean of a category": (
        "label = 'a'\n[features]\nb = {kind = 'categorical', missing = 'mean'}",
        "for kind = 'numeric'",
    ),
    "no constant": ("label = 'a'\n[features]\nb = {kind = 'numeric', missing = 'constant'}", "go together"),
    "a number for a category": (
        "label = 'a'\n[features]\nb = {kind = 'categorical', missing = 'constant', constant = 1}",
        "the constant of a categorical column must be text, as '1'",
    ),
    "a constant that is not a level": (
        "label = 'a'\n[features]\nb = {kind = 'categorical', levels = ['x'], "
        "missing = 'constant', constant = 'y'}",
        "the constant 'y' is not one of the levels",
    ),
    "a NUL": ("label = 'a'\nclasses = ['x', \"y\\u0000\"]\n[features]\nb = 'numeric'", "has a NUL character"),
    "a NUL in a key": ("label = 'a'\n[features]\n\"b\\u0000\" = 'numeric'", "has a NUL character"),
    "one mark for two": (
        "label = 'a'\ndecimal = ','\nthousands = ','\n[features]\nb = 'numeric'",
        "decimal and thousands are both ','",
    ),
    "a mark that is none": ("label = 'a'\ndecimal = ';'\n[features]\nb = 'numeric'", "decimal: "),
    "deviation 0": ("label = 'a'\n[features]\nb = {kind = 'numeric', deviation = 0}", "features.b.deviation"),
}


@pytest.mark.parametrize("fault", SPECS)
def test_a_bad_spec_is_named(tmp_path, fault):
    spec, said = SPECS[fault]
    path = write(tmp_path / "in", spec=spec)
    with pytest.raises(InputError, match=r".") as error:
        find_source("csv")(path, 0)
    assert said in str(error.value)
    assert str(path.with_suffix(".toml")) in str(error.value)


def test_a_spec_that_is_not_there_is_named(tmp_path):
    path = write(tmp_path / "in")
    with pytest.raises(InputError, match=r"other\.toml: cannot be read .* --option spec=FILE"):
        find_source("csv", [f"spec={tmp_path / 'other.toml'}"])(path, 0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "0.json: cannot be read"),
        ("{}", "0.json: columns: Field required"),
        ('{"columns": {"age": {"count": 0}}}', "lack column 'age'"),
        ('{"columns": {"age": {"count": 3, "sum": 1e999}}}', "0.json: columns.age.sum"),
        (f'{{"columns": {{"age": {{"count": 1{"0" * 400}}}}}}}', "0.json: columns.age.count"),
    ],
)
def test_bad_statistics_are_named(tmp_path, content, said):
    path = write(tmp_path / "in", spec=spec_with(a=("silo", 'standardise = ["0.json"]\nsilo')))
    if content is not None:
        (tmp_path / "in" / "0.json").write_text(content)
    with pytest.raises(InputError, match=r".") as error:
        find_source("csv")(path, 0)
    assert said in str(error.value)


def test_statistics_are_read_in_their_order(tmp_path):
    for name, value in (("a", 1.0), ("b", 5.0)):
        moments_of({"x": np.array([value, value + 1])}).write(tmp_path / name)
    assert read_moments([tmp_path / "a", tmp_path / "b"]).columns["x"].mean == 3.5


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = write_parquet(tmp_path / "in")
    for content in (b"PAR1", b"x,y\n1,2\n", path.read_bytes()[:-30]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a Parquet table of plain columns, or damaged"):
            find_source("parquet")(path, 0)


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "in")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow; pip install 'mpifl\[tables\]'"):
        find_source("parquet")(path, 0)


def test_a_spec_of_python_values_reads_as_one_of_toml():
    spec = TableSpec.model_validate(
        {"label": "a", "features": {"b": "numeric"}, "classes": (("x", "X"), ("y",))}
    )
    assert spec.classes == (("x", "X"), ("y",))


DATA = Path(os.environ.get("MPIFL_DATA", "no-data-folder"))
needs_adult = pytest.mark.skipif(
    not (DATA / "adult").is_dir(),
    reason="set MPIFL_DATA to a folder that has adult/ with adult.data and adult.test",
)


@needs_adult
def test_the_real_adult():
    dataset = find_source("adult", ["silo=education"])(None, 0)
    assert dataset.x.shape == (32_561, 108)
    assert np.bincount(dataset.y).tolist() == [32_561 - 7_841, 7_841]
    assert dataset.test[0].shape == (16_281, 108)
    assert np.bincount(dataset.test[1]).tolist() == [16_281 - 3_846, 3_846]
    assert dataset.class_names == ("<=50K", ">50K")
    assert len(dataset.silo_names) == 16
    assert (dataset.silo == {v: k for k, v in dataset.silo_names.items()}["Doctorate"]).sum() == 413
    numeric = [at for at, name in enumerate(dataset.feature_names) if "=" not in name]
    x = np.asarray(dataset.x, float)
    assert x[:, numeric].mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-5)
    assert x[:, numeric].std(axis=0) == pytest.approx(np.ones(6), abs=1e-4)
    assert (np.delete(x, numeric, axis=1).sum(axis=1) == 8).all()  # one level of each of the 8 other columns


@needs_adult
def test_the_real_adult_without_the_rows_that_lack_something():
    dataset = find_source("adult", ["missing=drop"])(None, 0)
    assert (len(dataset.y), dataset.y.sum()) == (30_162, 7_508)
    assert (len(dataset.test[1]), dataset.test[1].sum()) == (15_060, 3_700)


@pytest.mark.parametrize(
    ("option", "said"), [("missing=mean", "must be level or drop"), ("silo=age", "silo=age given")]
)
def test_a_bad_option_of_adult_is_named(tmp_path, option, said):
    with pytest.raises(InputError, match=said):
        find_source("adult", [option])(tmp_path, 0)


def plain(folder, lines, spec='label = "y"\n[features]\na = "numeric"\n'):
    """Write a table line by line, and its spec."""
    folder.mkdir(exist_ok=True)
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "t.toml").write_text(spec)
    return folder / "t.csv"


@pytest.mark.parametrize("change", ["", 'standardise = "own"\n'])
def test_a_feature_too_large_for_float32_is_named(tmp_path, change):
    spec = f'label = "y"\n{change}[features]\na = {{ kind = "numeric", mean = 0, deviation = 1 }}\n'
    path = plain(tmp_path / "in", ["a,y", "1,no", "1e39,yes"], spec)
    with pytest.raises(InputError, match=r"t\.csv: line 3: a is '1e39', as a feature too large"):
        find_source("csv")(path, 0)


def test_sums_too_large_are_named(tmp_path, capsys):
    spec = 'label = "y"\nstandardise = "own"\n[features]\na = "numeric"\nb = "numeric"\n'
    path = plain(tmp_path / "in", ["a,b,y", "1,1e200,no", "2,3,yes"], spec)
    with pytest.raises(InputError, match=r"t\.csv: column 'b' has values too large"):
        find_source("csv")(path, 0)
    assert command("statistics", "csv", "--data", path, "--out", tmp_path / "s.json") == 2
    assert "column 'b' has values too large" in capsys.readouterr().err


TIMES = [1_700_000_000 + 3 * n for n in range(1000)]


@pytest.mark.parametrize("shared", [False, True])
def test_a_deviation_far_smaller_than_the_mean_is_found(tmp_path, shared):
    manner = '["0.json", "1.json"]' if shared else '"own"'
    spec = 'label = "y"\nstandardise = "own"\n[features]\na = "numeric"\nb = "numeric"\n'
    lines = ["a,b,y", *(f"{t},0.1,{n % 2}" for n, t in enumerate(TIMES))]
    for part, held in enumerate((lines[:400], [lines[0], *lines[400:]])):
        path = plain(tmp_path / "in", held, spec)
        out = path.with_name(f"{part}.json")
        assert command("statistics", "csv", "--data", path, "--out", out) == 0
    path = plain(tmp_path / "in", lines, spec.replace('"own"', manner))
    x = find_source("csv")(path, 0).x
    assert (x[:, 0].mean(), x[:, 0].std()) == pytest.approx((0, 1), abs=1e-5)
    assert np.abs(x[:, 1]).max() < 1e-6  # a constant one stays one


def test_statistics_of_before_are_read_as_they_were(tmp_path):
    sums = {"count": 4, "sum": 10.0, "squares": 30.0}
    (tmp_path / "old.json").write_text(json.dumps({"columns": {"x": sums}}))
    moments_of({"x": np.array([7.0])}).write(tmp_path / "new.json")
    old, both = (
        read_moments([tmp_path / name for name in names]).columns["x"]
        for names in (["old.json"], ["old.json", "new.json"])
    )
    assert (old.mean, old.deviation) == (2.5, np.sqrt(1.25))
    assert (both.count, both.deviation) == (5, pytest.approx(np.std([1, 2, 3, 4, 7])))


def test_a_stated_deviation_means_one_thing_whatever_stands_beside_it(tmp_path):
    own = 'a = { kind = "numeric", deviation = 1.0 }\n'
    lines = ["a,b,y", *(f"{n},{n},{n % 2}" for n in (1, 2, 3, 4))]
    for more in ("", 'b = { kind = "numeric", missing = "mean" }\n'):
        path = plain(tmp_path / "in", lines, f'label = "y"\nclasses = ["0", "1"]\n[features]\n{own}{more}')
        assert find_source("csv")(path, 0).x[:, 0].tolist() == [-1.5, -0.5, 0.5, 1.5]


def test_a_nan_of_parquet_is_missing_and_a_text_stays_one(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"x": [1.0, 2.0, 3.0], "y": [1.0, float("nan"), 0.0], "word": ["nan", "b", None]}
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    features = (
        '[features]\nx = "numeric"\nword = {kind = "categorical", levels = ["nan"], missing = "level"}\n'
    )
    (tmp_path / "t.toml").write_text(f'label = {{ column = "y", missing = "drop" }}\n{features}')
    data = find_source("parquet")(tmp_path / "t.parquet", 0)
    assert (data.classes, data.x[:, 0].tolist(), data.y.tolist()) == (2, [1, 3], [1, 0])
    assert data.feature_names == ("x", "word=nan", "word=missing")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            'a = {kind = "categorical", levels = ["p", "p"]}',
            "a level, or one of its spellings, is stated twice",
        ),
        ('a = {kind = "categorical", missing = "level"}', "column 'a' has the value 'missing'"),
    ],
)
def test_two_levels_of_one_name_are_refused(tmp_path, spec, said):
    path = plain(tmp_path / "in", ["a,y", "missing,1", ",0"], f'label = "y"\n[features]\n{spec}\n')
    with pytest.raises(InputError, match=said):
        find_source("csv")(path, 0)


def test_a_class_stated_twice_is_refused(tmp_path):
    spec = 'label = "y"\nclasses = ["0", ["1", "0"]]\n[features]\na = "numeric"\n'
    with pytest.raises(InputError, match="a class, or one of its spellings, is stated twice"):
        find_source("csv")(plain(tmp_path / "in", ["a,y", "1,1", "2,0"], spec), 0)


def test_a_nul_in_a_name_is_refused_by_its_row(tmp_path):
    path = plain(tmp_path / "in", ["a,y", "1,p", "2,q\0"])
    with pytest.raises(InputError, match=r"t\.csv: line 3: has a NUL character"):
        find_source("csv")(path, 0)


@pytest.mark.parametrize("column", ["a", "y"])
def test_a_nul_in_a_parquet_table_is_refused_by_its_row(tmp_path, column):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = {"a": ["p", "q", "p"], "y": ["u", "v", "v"]} | {column: ["p", "q", "r\0"]}
    parquet.write_table(arrow.table(values), tmp_path / "t.parquet")
    (tmp_path / "t.toml").write_text('label = "y"\nsilo = "a"\n[features]\na = "categorical"\n')
    with pytest.raises(InputError, match=rf"t\.parquet: row 2: {column} has a NUL character"):
        find_source("parquet")(tmp_path / "t.parquet", 0)


def test_a_spec_with_a_byte_order_mark_is_read(tmp_path):
    path = plain(tmp_path / "in", ["a,y", "1,p", "2,q"])
    spec = path.with_suffix(".toml")
    spec.write_bytes(b"\xef\xbb\xbf" + spec.read_bytes())
    assert find_source("csv")(path, 0).class_names == ("p", "q")


WRITTEN = {
    "no groups of three": ('thousands = ","', "1,23", "'1,23', not a finite number"),
    "a zero before a group": ('thousands = "."\ndecimal = ","', "0.123", "'0.123', not a finite number"),
    "a point": ('decimal = ","', "3.5", "'3.5', not a finite number"),
    "groups behind": ('thousands = " "', "1.234 5", "'1.234 5', not a finite number"),
    "a comma": (
        "",
        "3,5",
        "list it in 'missing' of the spec, or say decimal = \",\" in the table's spec (--spec",
    ),
    "a date": (
        "",
        "01.12.2024",
        '\'01.12.2024\', no number; a date is kind = "date" with since = "2000-01-01" and',
    ),
    "both": ("", "1.234,5", 'or say decimal = "," and thousands = "."'),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_a_number_that_is_written_otherwise_is_refused_by_its_line(tmp_path, what):
    keys, text, said = WRITTEN[what]
    spec = f'label = "y"\ndelimiter = ";"\n{keys}\n[features]\na = "numeric"\n'
    with pytest.raises(InputError) as refusal:
        find_source("csv")(plain(tmp_path / "in", ["a;y", f"{text};p", "7;q"], spec), 0)
    assert "t.csv: line 2: a is '" in str(refusal.value)
    assert said in str(refusal.value)


def test_targets_thresholds_and_events_are_read_as_the_table_writes_them(tmp_path):
    common = 'delimiter = ";"\ndecimal = ","\n[features]\na = "numeric"\n'
    labels = {
        'label = { kind = "numeric", column = "y" }\n': [1.5, 0.0],
        'label = "y"\nthreshold = 1\n': [1, 0],
        'label = { kind = "survival", time = "a", event = "z" }\n': [[2.5, 1.0], [3.0, 0.0]],
    }
    for number, (label, wanted) in enumerate(labels.items()):
        features = common.replace('a = "num', 'y = "num') if "survival" in label else common
        path = plain(tmp_path / f"in{number}", ["a;y;z", "2,5;1,5;1", "3;0;0,0"], label + features)
        assert find_source("csv")(path, 0).y.tolist() == wanted


def test_a_fitted_spec_keeps_how_numbers_are_written(tmp_path):
    spec = 'label = "y"\ndelimiter = ";"\ndecimal = ","\nthousands = "."\n[features]\na = "numeric"\n'
    path = plain(tmp_path / "in", ["a;y", "1.000,5;p", "7;q"], spec)
    fitted = Encoder("csv", path, read_spec(path.with_suffix(".toml"))).fitted()
    assert (fitted["decimal"], fitted["thousands"]) == (",", ".")
