"""One reader of values: what is a number, a date, a category or none, in CSV and Parquet alike."""

import json
import re

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources.source_registry import find_source
from data_prep.tables import read_spec
from data_prep.tables.encoding import Encoder
from mpifl.common import InputError

NUMERIC = 'label = "y"\n[features]\na = "numeric"\n'


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def table(folder, lines, spec=NUMERIC):
    """Write a CSV table line by line, and its spec."""
    folder.mkdir(exist_ok=True)
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "t.toml").write_text(spec)
    return folder / "t.csv"


def parquet(folder, columns, spec=NUMERIC):
    """Write a Parquet table of these columns, and its spec."""
    arrow, library = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir(exist_ok=True)
    library.write_table(arrow.table(columns), folder / "t.parquet")
    (folder / "t.toml").write_text(spec)
    return folder / "t.parquet"


def refused(path):
    with pytest.raises(InputError) as refusal:
        find_source(path.suffix[1:])(path, 0)
    return str(refusal.value)


PLAIN = {"1": 1, "-2.5": -2.5, "+3": 3, ".5": 0.5, "7.": 7, "1e-2": 0.01, "-1E3": -1000, "007": 7}
NOT_PLAIN = [
    "10_1",
    "\u0661\u0662",
    "\uff11",
    "1\u00a0000",
    "0x10",
    "1e",
    "infinity",
    "- 1",
    "1 000",
    "1.2.3",
]


def test_plain_numbers_are_numbers(tmp_path):
    path = table(tmp_path / "in", ["a,y", *(f"{text},{'pq'[n % 2]}" for n, text in enumerate(PLAIN))])
    assert np.array_equal(np.asarray(find_source("csv")(path, 0).x)[:, 0], np.float32([*PLAIN.values()]))


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("text", NOT_PLAIN)
def test_nothing_but_a_plain_number_is_one(tmp_path, text, gaps):
    spec = NUMERIC.replace('"numeric"', '{ kind = "numeric", missing = "mean" }')
    path = table(tmp_path / "in", ["a,y", "3,p", *([",q"] if gaps else []), f"{text},q"], spec)
    assert f"line {4 if gaps else 3}: a is '{text}', not a finite number" in refused(path)


def test_draft_takes_nothing_but_plain_numbers_for_numbers(tmp_path, capsys):
    path = table(
        tmp_path / "in", ["a,b,y", *(f"{n},{n % 7},{'pq'[n % 2]}" for n in range(20, 60)), "10_1,1,p"]
    )
    assert command("draft", path, "--label", "y", "--force") == 0
    assert "left out: a, all values are numbers but for 1, first '10_1' (line 42)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 0.1", "__index_level_0__", "level_0"])
@pytest.mark.parametrize("fraction", ["", ".5"])
def test_the_index_that_pandas_writes_is_no_feature(tmp_path, name, fraction, capsys):
    rows = [f"{n * 3 % 101}{fraction},{n % 7},{'pq'[n % 2]}" for n in range(60)]
    path = table(tmp_path / "in", [f"{name},b,y", *rows])
    assert command("draft", path, "--label", "y", "--force") == 0
    assert list(read_spec(path.with_suffix(".toml")).features) == ["b"]
    why = (
        f"{name}, its name says that it is an id" if name else "the column without a name, which is an index"
    )
    assert f"left out: {why}" in capsys.readouterr().out


CATEGORY = 'label = "y"\n[features]\na = "categorical"\n'


@pytest.mark.parametrize("step", [2, 1 << 14])
def test_a_header_that_stands_again_is_refused_by_its_line(tmp_path, step, monkeypatch):
    monkeypatch.setattr("data_prep.tables.files.lines.ROWS", step)
    path = table(tmp_path / "in", ["a , y,z", "m,p,1", "f,q,2", "m,p,3", "a ,y, z", "f,q,4"], CATEGORY)
    assert "t.csv: line 5: the names of the columns, and no row; remove it" in refused(path)


def test_draft_refuses_a_header_that_stands_again(tmp_path, capsys):
    path = table(tmp_path / "in", ["a,y", "m,p", "f,q", "a,y", "f,q"], CATEGORY)
    assert command("draft", path, "--label", "y", "--force") == 2
    assert "t.csv: line 4: the names of the columns, and no row; remove it" in capsys.readouterr().err


def test_names_of_a_table_that_has_them_are_refused(tmp_path):
    path = table(tmp_path / "in", ["a,y", "m,p", "f,q"], f'names = ["a", "y"]\n{CATEGORY}')
    assert "line 1: the names of the columns, and no row; remove 'names' from the spec" in refused(path)


def test_a_value_that_is_its_columns_name_is_a_value(tmp_path):
    path = table(tmp_path / "in", ["a,y", "a,p", "f,y"], CATEGORY)
    assert find_source("csv")(path, 0).class_names == ("p", "y")


PROGRAMS = "which programs write for a missing"
MARKED = {
    "class": (
        CATEGORY,
        "m,NULL",
        f"y is 'NULL', {PROGRAMS} value; list it in 'missing' of the spec, or state",
    ),
    "level": (CATEGORY, "N/A,p", f"a is 'N/A', {PROGRAMS} value; list it in 'missing' of the spec, or state"),
    "silo": (
        f'silo = "z"\n{CATEGORY}',
        "m,p,None",
        f"z, the silo, is 'None', {PROGRAMS} one; list it in 'missing' of the spec, or say missing = [\"\"]",
    ),
    "group": (f'group = "z"\n{CATEGORY}', "m,p,?", f"z, the group, is '?', {PROGRAMS} one; list it in"),
}


@pytest.mark.parametrize("where", MARKED)
def test_a_mark_of_which_the_spec_says_nothing_is_no_value(tmp_path, where):
    spec, row, said = MARKED[where]
    path = table(
        tmp_path / "in", ["a,y,z", "m,p,1", "f,q,2", row if row.count(",") == 2 else f"{row},3"], spec
    )
    assert f"t.csv: line 4: {said}" in refused(path)


def test_a_mark_that_the_spec_states_is_a_value(tmp_path):
    stated = (
        'missing = [""]\nsilo = "z"\nlabel = "y"\nclasses = ["p", "None"]\n'
        '[features]\na = { kind = "categorical", levels = ["m", "N/A"] }\n'
    )
    data = find_source("csv")(table(tmp_path / "in", ["a,y,z", "m,p,NA", "N/A,None,EU"], stated), 0)
    assert (data.class_names, data.feature_names) == (("p", "None"), ("a=m", "a=N/A"))
    assert data.silo_names == {0: "EU", 1: "NA"}
    fitted = Encoder("csv", tmp_path / "in/t.csv", read_spec(tmp_path / "in/t.toml")).fitted()
    assert fitted["missing"] == [""]


def test_a_number_for_a_missing_value_is_meant_however_it_is_written(tmp_path):
    features = '[features]\na = { kind = "numeric", missing = "constant", constant = 5.0 }\n'
    spec = f'label = "y"\nmissing = ["-9"]\nstandardise = "none"\n{features}'
    rows = ["a,y", "-9,p", "-9.0,q", "-9.00,p", "-9.5,q", "-90,p"]
    data = find_source("csv")(table(tmp_path / "in", rows, spec), 0)
    assert np.asarray(data.x)[:, 0].tolist() == [5.0, 5.0, 5.0, -9.5, -90.0]
    level = 'b = { kind = "categorical", levels = ["-9.0", "1"] }\n'
    said = refused(table(tmp_path / "level", ["a,b,y", "-9,-9.0,p"], spec + level))
    assert "'-9.0' is a level of 'b', and in 'missing'" in said
    columns = {"a": [-9.0, 3.5, 1.0], "y": ["p", "q", "p"]}
    data = find_source("parquet")(parquet(tmp_path / "file", columns, spec), 0)
    assert np.asarray(data.x)[:, 0].tolist() == [5.0, 3.5, 1.0]


def test_numbers_that_float32_cannot_tell_apart_are_refused(tmp_path):
    rows = [f"{1_600_000_000 + n * 7},{n % 5}.5,{'pq'[n % 2]}" for n in range(60)]
    said = "column 'a' has numbers from 1600000000 to 1600000413, which float32 cannot tell apart; say "
    path = table(tmp_path / "in", ["a,b,y", *rows])
    assert f'{said}standardise = "own", or use another unit' in refused(path)
    path = table(tmp_path / "own", ["a,b,y", *rows], f'standardise = "own"\n{NUMERIC}')
    assert len(np.unique(np.asarray(find_source("csv")(path, 0).x))) == 60
    label = 'label = { kind = "numeric", column = "a" }\n[features]\nb = "numeric"\n'
    path = table(tmp_path / "label", ["a,b,y", *rows], label)
    assert "column 'a' has numbers from 1600000000 to" in (told := refused(path))
    assert "use another unit, or count from another zero" in told


@pytest.mark.parametrize("outlier", ["0", "4e12"])
def test_a_number_far_from_all_others_hides_none_that_float32_cannot_tell_apart(tmp_path, outlier):
    rows = [f"{1_600_000_000 + n * 7},{'pq'[n % 2]}" for n in range(60)]
    path = table(tmp_path / "in", ["a,y", *rows, f"{outlier},p"])
    assert "column 'a' has numbers from " in refused(path)


@pytest.mark.parametrize("outlier", ["1e39", "99999999999999999999", "4e14"])
def test_a_number_far_from_all_others_does_not_make_a_standardised_column_constant(tmp_path, outlier):
    rows = [f"{n * 7},{'pq'[n % 2]}" for n in range(60)]
    path = table(tmp_path / "in", ["a,y", *rows, f"{outlier},p"], f'standardise = "own"\n{NUMERIC}')
    assert f"column 'a' has numbers from 0 to {float(outlier):.15g}, which float32 cannot" in (
        told := refused(path)
    )
    assert "correct what lies far from all others, or use another unit" in told


@pytest.mark.parametrize(
    "values",
    [
        [0.1, 0.2, 0.1 + 0.2, 0.3, 1 - 0.9],
        [0.1, 0.2, 0.3],
        [1e30, 2e30],
        [5e9, 5e9],
        [2**24 + 1, 0],
        [1e9, 2e9 + 1],
    ],
)
def test_numbers_that_float32_tells_apart_are_taken(tmp_path, values):
    path = table(tmp_path / "in", ["a,y", *(f"{value!r},{'pq'[n % 2]}" for n, value in enumerate(values))])
    assert np.array_equal(np.asarray(find_source("csv")(path, 0).x)[:, 0], np.float32(values))


DATES = 'label = "y"\n[features]\na = { kind = "date", since = "2020-01-01" }\n'


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "-03:30"])
def test_parquet_times_with_a_zone_are_those_of_utc(tmp_path, zone):
    arrow = pytest.importorskip("pyarrow")
    hours = (np.datetime64("2020-01-01T00:00", "us") + np.arange(4) * np.timedelta64(6, "h")).astype("int64")
    times = arrow.array(hours, arrow.timestamp("us", zone))
    path = parquet(tmp_path / "in", {"a": times, "y": ["p", "q", "p", "q"]}, DATES)
    assert np.asarray(find_source("parquet")(path, 0).x)[:, 0].tolist() == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("2020-01-02T06:00Z", 1.25),
        ("2020-01-02 06:00:00+06:00", 1),
        ("2020-01-01T18:00:00.5-0600", 1 + 0.5 / 86400),
        ("2020-01-02 06:00", 1.25),
    ],
)
def test_a_time_with_its_zone_is_that_of_utc(tmp_path, text, days):
    path = table(tmp_path / "in", ["a,y", f"{text},p", "2020-01-01,q"], DATES)
    assert np.asarray(find_source("csv")(path, 0).x)[0, 0] == np.float32(days)


@pytest.mark.parametrize(
    ("form", "text", "days"),
    [
        ("%d.%m.%Y", "2.1.2020", 1),
        ("%m/%d/%Y", "01/02/2020 06:00", 1.25),
        ("%d/%m/%Y", "01/02/2020", 31),
        ("%Y%m%d", "20200201", 31),
        ("%d %m %Y", "01 02 2020", 31),
        ("%d.%m.%Y", "2020-01-02", "a is '2020-01-02', not a date as 31.12.2000; say format = \"%Y-%m-%d\""),
        ("%d.%m.%Y", "2020-01", "not a date as 31.12.2000 or 31.12.2000 23:59; correct it, or list"),
        ("%d.%m.%Y", "02.01.20", "a date whose year has two digits, and nobody knows its century"),
        ("%d/%m/%Y", "31/02/2020", "a is '31/02/2020', and there is no such day; correct it, or"),
        ("%m/%d/%Y", "13/02/2020", 'not a date as 12/31/2000; say format = "%d/%m/%Y" in the spec'),
        (None, "13.02.2020", 'not a date as 2000-12-31; say format = "%d.%m.%Y" in the spec'),
        ("%d.%m", "13.02.", "format '%d.%m' is no order of a date; it has %d, %m and %Y once each, as"),
        ("%d.%m-%Y", "13.02.", "format '%d.%m-%Y' is no order of a date"),
    ],
)
def test_dates_are_read_by_their_format(tmp_path, form, text, days):
    keys = DATES if form is None else DATES.replace(" }", f', format = "{form}" }}')
    path = table(tmp_path / "in", ["a,y", f"{text},p", f"{text},q"], keys)
    if isinstance(days, str):
        with pytest.raises(InputError, match=re.escape(days)):
            find_source("csv")(path, 0)
        return
    assert np.asarray(find_source("csv")(path, 0).x)[0, 0] == np.float32(days)


def test_one_date_in_another_order_is_no_reason_to_read_all_others_by_it(tmp_path):
    keys = DATES.replace(" }", ', format = "%d.%m.%Y" }')
    said = refused(table(tmp_path / "in", ["a,y", "01.02.2020,p", "2020-02-03,q"], keys))
    assert "line 3: a is '2020-02-03', not a date as 31.12.2000 or 31.12.2000 23:59; correct it" in said
    assert "format" not in said


@pytest.mark.parametrize("text", ["2020-01-02Z", "2020-01-02T06:00+25:00", "2020-01-02T06:00 CET"])
def test_what_is_no_zone_is_refused(tmp_path, text):
    assert f"a is '{text}', not a date" in refused(table(tmp_path / "in", ["a,y", f"{text},p"], DATES))


def test_blanks_around_a_text_are_no_part_of_it_in_parquet_either(tmp_path):
    spec = CATEGORY.replace('"categorical"', '{ kind = "categorical", missing = "level" }')
    columns = {"a": [" m", "f ", "m", None], "y": ["p", "q", "p ", "q"]}
    path = parquet(tmp_path / "in", columns, spec)
    data = find_source("parquet")(path, 0)
    assert (data.class_names, data.feature_names) == (("p", "q"), ("a=f", "a=m", "a=missing"))


ONE = {
    "numbers": (["0", "0.0", "1", "1.0"], "'0' and '0.0'", '[["0", "0.0"], ["1", "1.0"]]'),
    "bools": (["True", "False", "TRUE"], "'TRUE' and 'True'", '["False", ["TRUE", "True"]]'),
    "zeros before": (["1", "01", "2"], "'01' and '1'", '[["01", "1"], "2"]'),
    "more digits than float64": (["9007199254740993", "9007199254740992"], None, None),
    "letters": (["a", "A"], None, None),
}


@pytest.mark.parametrize("key", ["classes", "levels"])
@pytest.mark.parametrize("what", ONE)
def test_spellings_of_one_value_are_refused_unless_the_spec_says_so(tmp_path, key, what):
    values, told, line = ONE[what]
    rows = [f"{value},{'pq'[n % 2]}" for n, value in enumerate(values * 2)]
    column, spec = ("a", CATEGORY) if key == "levels" else ("z", CATEGORY.replace('"y"', '"z"'))
    head = f"{column},y" if key == "levels" else "z,a"
    path = table(tmp_path / "in", [head, *rows], spec)
    if told is None:
        assert find_source("csv")(path, 0).classes == 2
        return
    said = (
        f"column '{column}' has {told}, which are one value; say in the spec which are one, as {key} = {line}"
    )
    assert refused(path).endswith(said)
    stated = f'a = {{ kind = "categorical", levels = {line} }}'
    spec = spec.replace('a = "categorical"', stated) if key == "levels" else f"classes = {line}\n{spec}"
    data = find_source("csv")(table(tmp_path / "in", [head, *rows], spec), 0)
    wanted = len(json.loads(line))
    assert (len(data.feature_names) if key == "levels" else data.classes) == wanted
    fitted = Encoder("csv", path, read_spec(tmp_path / "in/t.toml")).fitted()
    assert (fitted["features"]["a"]["levels"] if key == "levels" else fitted["classes"]) == json.loads(line)


def test_numbers_of_a_class_are_one_as_the_table_writes_them(tmp_path):
    spec = f'delimiter = ";"\ndecimal = ","\n{CATEGORY}'
    assert "'0' and '0,0'" in refused(table(tmp_path / "in", ["a;y", "m;0", "f;0,0", "m;1"], spec))


def test_a_level_that_stands_for_a_missing_value_is_refused(tmp_path):
    levels = CATEGORY.replace('"categorical"', '{ kind = "categorical", levels = ["None", "m"] }')
    spec = f'missing = ["", "None"]\n{levels}'
    assert "'None' is a level of 'a', and in 'missing'" in refused(
        table(tmp_path / "in", ["a,y", "m,p"], spec)
    )
    spec = f'missing = ["", "None"]\nclasses = ["p", "None"]\n{CATEGORY}'
    assert "'None' is a class, and in 'missing'" in refused(table(tmp_path / "in", ["a,y", "m,p"], spec))


def test_draft_states_spellings_and_says_so(tmp_path, capsys):
    bools, labels = ("True", "False", "TRUE"), ("0", "1", "0.0", "1")
    rows = [f"{bools[n % 3]},{n},{labels[n % 4]}" for n in range(120)]
    path = table(tmp_path / "in", ["a,b,y", *rows])
    assert command("draft", path, "--label", "y", "--force") == 0
    told = capsys.readouterr().out
    assert (
        "spelled: a 'TRUE' (40 times) and 'True' (40 times), taken for one; list them apart in 'levels'"
        in told
    )
    assert (
        "spelled: y '0' (30 times) and '0.0' (30 times), taken for one; list them apart in 'classes'" in told
    )
    spec = read_spec(path.with_suffix(".toml"))
    assert spec.classes == (("0", "0.0"), ("1",))
    assert spec.features["a"].levels == (("False",), ("TRUE", "True"))
    words = ["--out", tmp_path / "o", "--scheme", "iid", "--silos", 2]
    assert command("partition", "csv", "--data", path, *words) == 0


@pytest.mark.parametrize("step", [4, 1 << 14])
@pytest.mark.parametrize("first", ["numbers", "dates"])
def test_an_order_is_of_numbers_alone_or_of_dates_alone(tmp_path, step, first, monkeypatch):
    monkeypatch.setattr("data_prep.tables.files.lines.ROWS", step)
    values = [[str(n) for n in range(6)], [f"2020-01-0{n}" for n in range(1, 7)]]
    values = values if first == "numbers" else values[::-1]
    rows = [f"{n},{'pq'[n % 2]},{place}" for n, place in enumerate([*values[0], *values[1]])]
    path = table(tmp_path / "in", ["a,y,t", *rows], f'order = "t"\n{NUMERIC}')
    what = "not a finite number" if first == "numbers" else "not a date"
    assert f"line 8: t is '{values[1][0]}', {what}" in refused(path)
