"""What a spec does to a table's values is told: gaps that are filled, spellings that are taken for one."""

import json

import pytest

from data_prep.cli import main
from data_prep.tables.files import lines as limits
from mpifl.data.shards import read_federation

SPEC = """
label = "y"
classes = [["0", "0.0"], ["1", "1.0"]]
silo = "ward"
[features]
age = { kind = "numeric", missing = "mean" }
sex = { kind = "categorical", missing = "level", levels = ["f", ["m", "M"]] }
stage = { kind = "categorical", missing = "constant", constant = "I" }
seen = { kind = "date", since = "2020-01-01", missing = "constant", constant = "2020-02-01" }
town = "categorical"
"""
FILLED = {
    "age": {"the mean": 20},
    "sex": {"the level 'missing'": 8},
    "stage": {"'I'": 10},
    "seen": {"2020-02-01": 5},
}
RESPELLED = {"town": {"blanks behind it": 50}, "ward": {"blanks behind it": 50}}
SPELLED = {"sex": {"'M' as 'm'": 48}, "y": {"'0.0' as '0'": 50, "'1.0' as '1'": 50}}


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def rows(count=200):
    """Return rows as a hospital has them; Ulm always has blanks behind it, Bonn and w1 now and then."""
    found = {name: [] for name in ("age", "sex", "stage", "seen", "town", "y", "ward")}
    for at in range(count):
        found["age"].append(None if at % 10 == 3 else f"{at}.5")
        found["sex"].append(None if at % 25 == 8 else "fmfM"[at % 4])
        found["stage"].append(None if at % 20 == 7 else ("I", "II")[at % 2])
        found["seen"].append(None if at % 40 == 9 else "2020-01-05")
        found["town"].append(("Bonn", "Ulm ", "Bonn ", "Ulm ")[at % 4])
        found["y"].append(("0", "0.0", "1", "1.0")[at % 4])
        found["ward"].append(("w0", "w1", "w1 ", "w0")[at % 4])
    return found


def written(folder, kind, name="t", count=200, spec=SPEC):
    """Write them as a table of that kind, and its spec."""
    found = rows(count)
    if kind == "parquet":
        arrow, library = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        library.write_table(arrow.table(found), folder / f"{name}.parquet")
    else:
        mark = '"{}"' if kind == "quoted" else "{}"
        lines = [
            ",".join(found),
            *(",".join(mark.format(one or "") for one in row) for row in zip(*found.values(), strict=True)),
        ]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.toml").write_text(spec)
    return folder / f"{name}.{'parquet' if kind == 'parquet' else 'csv'}"


def partition(path, out, *more):
    words = "--data", path, "--out", out, "--scheme", "natural"
    return command("partition", path.suffix[1:], *words, *more)


KINDS = ["csv", "quoted", "parquet", "python"]


@pytest.mark.parametrize("step", [1 << 14, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_filled_and_taken_for_one_stands_everywhere(tmp_path, kind, step, monkeypatch, capsys):
    monkeypatch.setattr(limits, "ROWS", step)
    if kind == "python":
        monkeypatch.setattr("data_prep.tables.files.csv_table.next_block", lambda *_: None)
    out = tmp_path / "out"
    assert partition(written(tmp_path, kind), out) == 0
    said = capsys.readouterr().err
    assert (
        "warning: 43 missing values were filled: age 20 by the mean, stage 10 by 'I', sex 8 by the level "
        "'missing', " in said
    )
    assert "seen 5 by 2020-02-01; by silo: " in said
    assert "warning: 100 values were read as another spelling: town 50 blanks behind it, ward 50 " in said
    assert (
        "warning: 148 values were read by other spellings that the spec states: y 50 '0.0' as '0', y" in said
    )
    source = read_federation(out).source
    assert source["filled"]["columns"] == FILLED
    assert source["respelled"]["columns"] == RESPELLED
    assert source["spelled"]["columns"] == SPELLED
    wards = {"w0": [0, 3], "w1": [1, 2]}
    found = rows()
    for ward, rests in wards.items():
        own = [at for at in range(200) if at % 4 in rests]
        gaps = sum(found[name][at] is None for name in FILLED for at in own)
        assert source["filled"]["silos"][ward] == gaps
    assert sum(source["respelled"]["silos"].values()) == 100
    assert command("inspect", out) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "43 missing values were filled: age 20 by the mean" in told
    assert "100 values were read as another spelling" in told
    assert "other spellings that the spec" not in told
    assert command("check", out, "--json") == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [
        (one["kind"], one["severity"])
        for one in findings
        if one["kind"] in ("filled", "respelled", "spelled")
    ] == [
        ("filled", "warning"),
        ("respelled", "warning"),
        ("spelled", "warning"),
    ]


def test_blanks_that_make_no_two_values_one_are_not_told(tmp_path, capsys):
    text = "a,y\n" + "".join(f"{'fm'[at % 2]}  ,{'pq'[at % 2]} \n" for at in range(40))
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.toml").write_text('label = "y"\n[features]\na = "categorical"\n')
    words = ["--out", tmp_path / "out", "--scheme", "iid", "--silos", 2]
    assert command("partition", "csv", "--data", tmp_path / "t.csv", *words) == 0
    assert "otherwise" not in capsys.readouterr().err
    assert set(read_federation(tmp_path / "out").source) == {"name", "files", "encoding"}


def test_without_silos_of_its_own_columns_alone_are_told(tmp_path, capsys):
    path = written(tmp_path, "csv", spec=SPEC.replace('silo = "ward"\n', ""))
    words = ["--out", tmp_path / "out", "--scheme", "iid", "--silos", 2]
    assert command("partition", "csv", "--data", path, *words) == 0
    source = read_federation(tmp_path / "out").source
    assert source["filled"] == {"columns": FILLED}
    assert "by silo" not in capsys.readouterr().err


def test_rows_that_are_left_out_are_neither_filled_nor_respelled(tmp_path, capsys):
    spec = SPEC.replace('missing = "mean"', 'missing = "drop"')
    assert partition(written(tmp_path, "csv", spec=spec), tmp_path / "out") == 0
    source = read_federation(tmp_path / "out").source
    kept = [at for at in range(200) if at % 10 != 3]
    assert source["filled"]["columns"]["sex"] == {"the level 'missing'": sum(at % 25 == 8 for at in kept)}
    assert source["spelled"]["columns"]["y"] == {
        "'0.0' as '0'": sum(at % 4 == 1 for at in kept),
        "'1.0' as '1'": sum(at % 4 == 3 for at in kept),
    }


def test_the_servers_test_set_has_its_own_counts(tmp_path, capsys):
    path, test = written(tmp_path, "csv"), written(tmp_path, "csv", "u", count=40)
    assert partition(path, tmp_path / "out", "--option", f"test={test}") == 0
    said = capsys.readouterr().err
    assert "; of the test set: 9 missing values were filled: age 4 by the mean" in said
    source = read_federation(tmp_path / "out").source
    assert source["filled"]["test"]["columns"]["age"] == {"the mean": 4}
    assert "; of the test set: 30 values were read by" in said
    assert source["spelled"]["test"]["columns"]["y"] == {"'0.0' as '0'": 10, "'1.0' as '1'": 10}


def test_sites_tell_it_and_it_is_added_up(tmp_path, capsys):
    spec = SPEC.replace('"categorical"\n', '{ kind = "categorical", levels = ["Bonn", "Ulm"] }\n')
    spec = spec.replace('constant = "I"', 'constant = "I", levels = ["I", "II"]').replace(
        'silo = "ward"\n', ""
    )
    spec = spec.replace('missing = "mean"', 'missing = "mean", mean = 40')
    path = written(tmp_path, "csv", spec=spec)
    assert command("spec", tmp_path / "spec.json", "--table", path.with_suffix(".toml")) == 0
    for silo in (0, 1):
        words = ["--spec", tmp_path / "spec.json", "--silo", silo, "--name", f"site {silo}"]
        assert command("import", "csv", "--data", path, *words, "--out", tmp_path / "all") == 0
        said = capsys.readouterr().err
        assert "warning: 43 missing values were filled: age 20 by the mean" in said
        assert "warning: 50 values were read as another spelling" in said
        assert "warning: 148 values were read by other spellings that the spec states" in said
    assert command("assemble", tmp_path / "all") == 0
    assert "other spellings" not in capsys.readouterr().err
    source = read_federation(tmp_path / "all").source
    assert source["filled"]["columns"] == {
        name: {what: 2 * count for what, count in whats.items()} for name, whats in FILLED.items()
    }
    assert source["filled"]["silos"] == {"site 0": 43, "site 1": 43}
    assert source["respelled"]["silos"] == {"site 0": 50, "site 1": 50}
    assert source["spelled"]["sites"] == {"site 0": SPELLED, "site 1": SPELLED}
    assert source["spelled"]["silos"] == {"site 0": 148, "site 1": 148}


@pytest.mark.parametrize("told", ["many", {"columns": {"a": 1}}, {"columns": {"a": {"b": "c"}}}, [1]])
def test_what_others_wrote_of_it_harms_nobody(tmp_path, told):
    out = tmp_path / "out"
    assert partition(written(tmp_path, "csv"), out) == 0
    spec = read_federation(out)
    spec.model_copy(update={"source": {**spec.source, "filled": told, "respelled": told}}).write(out)
    assert command("inspect", out) == 0
    assert command("check", out) == 0


COMMENTED = 'label = "y"\ncomment = "#"\n[features]\na = "categorical"\n'


def test_a_comment_that_looks_like_a_row_is_told(tmp_path, capsys):
    lines = ["# made, in 2020, by hand", "a,y", "f,p", "#m,q", "# end of part 1", "m,q", "f,q", "#f,p"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "t.toml").write_text(COMMENTED)
    words = ["--out", tmp_path / "out", "--scheme", "iid", "--silos", 1]
    assert command("partition", "csv", "--data", tmp_path / "t.csv", *words) == 0
    said = capsys.readouterr().err
    assert "warning: 2 lines that begin with the mark of comments have as many values as a row" in said
    assert read_federation(tmp_path / "out").source["dropped"]["commented"] == 2


def test_times_of_other_zones_are_told(tmp_path, capsys):
    times = ["2020-01-02T06:00+06:00", "2020-01-02 06:00", "2020-01-02T06:00Z", "2020-01-02T06:00-0330"]
    rows = "".join(f"{one},{'pq'[at % 2]}\n" for at, one in enumerate(times))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}")
    (tmp_path / "t.toml").write_text('label = "y"\n[features]\na = { kind = "date", since = "2020-01-01" }\n')
    words = ["--out", tmp_path / "out", "--scheme", "iid", "--silos", 1]
    assert command("partition", "csv", "--data", tmp_path / "t.csv", *words) == 0
    assert "read as another spelling: a 2 another zone than UTC" in capsys.readouterr().err


def test_statistics_tell_of_rows_that_they_leave_out(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,p\n,3,q\n4,5,p\n")
    features = 'a = { kind = "numeric", missing = "drop" }\nb = "numeric"\n'
    (tmp_path / "t.toml").write_text(f'label = "y"\n[features]\n{features}')
    words = ["--data", tmp_path / "t.csv", "--out", tmp_path / "s.json"]
    assert command("statistics", "csv", *words) == 0
    assert "warning: 1 of 3 rows were left out because a value is missing: a 1" in capsys.readouterr().err


def test_a_table_index_that_is_a_feature_is_told(tmp_path, capsys):
    rows = "".join(f"{at},{at % 3},{'pq'[at % 2]}\n" for at in range(40))
    (tmp_path / "t.csv").write_text(f"Unnamed: 0,a,y\n{rows}")
    (tmp_path / "t.toml").write_text('label = "y"\n[features]\n"Unnamed: 0" = "numeric"\na = "numeric"\n')
    words = ["--out", tmp_path / "out", "--scheme", "iid", "--silos", 2]
    assert command("partition", "csv", "--data", tmp_path / "t.csv", *words) == 0
    assert (
        "warning: features 'Unnamed: 0': programs give a table's index such a name" in capsys.readouterr().err
    )


def test_an_import_and_labels_of_several_columns_tell_what_partition_tells(tmp_path, capsys):
    """Marks in two spellings, a factor of the spec, and classes without a test row."""
    rows = [f"{at},{[0, 1, '1.0', 'true'][at % 4]},{at % 2},{'n' if at < 38 else 'y'}" for at in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["kg,cough,fever,ill", *rows]) + "\n")
    features = '[features]\nkg = { kind = "numeric", factor = 0.4536 }\n'
    of = {
        "several": f'label = {{ kind = "multilabel", columns = ["cough", "fever"] }}\n{features}',
        "one": f'label = "ill"\nclasses = ["n", "y"]\n{features}',
    }
    wanted = {
        "several": ["20 values were read as another spelling: cough 10 '1.0' as '1', cough 10 'true' as '1'"],
        "one": ["has 2 training examples of class 'y', and its test split has none"],
    }
    for name, text in of.items():
        (tmp_path / f"{name}.toml").write_text(text)
        words = "--data", tmp_path / "t.csv", "--option", f"spec={tmp_path / name}.toml", "--test", "0.1"
        held = [*words, *(["--no-stratify", "--seed", 3] if name == "one" else [])]
        out = tmp_path / name
        assert command("spec", tmp_path / f"{name}.json", "--table", tmp_path / f"{name}.toml") == 0
        capsys.readouterr()
        assert command("partition", "csv", *held, "--out", out, "--scheme", "iid", "--silos", 1) == 0
        cut = capsys.readouterr().err
        site = "--spec", tmp_path / f"{name}.json", "--silo", 0
        assert command("import", "csv", *held, "--out", tmp_path / f"{name}-site", *site) == 0
        own = capsys.readouterr().err
        for line in [*wanted[name], "columns that were multiplied, by the spec: kg by 0.4536"]:
            assert line in cut
            assert line in own
