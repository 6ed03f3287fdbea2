"""Rows with gaps: refused with count and choices where a spec says nothing, told of where left out."""

import json

import pytest

from data_prep.cli import main
from data_prep.tables.files import lines as limits
from mpifl.data.shards import read_federation


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def table(folder, features, rows=200, name="t", label='label = "y"'):
    """Write rows of which every 10th has no age, every 25th no sex, and every 100th neither; their spec."""
    lines = ["age,sex,y,ward"]
    for at in range(rows):
        age, sex = "" if at % 10 == 3 else at, "" if at % 25 == 8 else "fm"[at % 2]
        lines.append(
            f"{'' if at % 100 == 57 else age},{'' if at % 100 == 57 else sex},{'ab'[at % 2]},w{at % 4}"
        )
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.toml").write_text(f'{label}\nsilo = "ward"\n[features]\n{features}\n')
    return folder / f"{name}.csv"


def partition(path, out, *more):
    return command("partition", "csv", "--data", path, "--out", out, "--scheme", "natural", *more)


UNSAID = {
    "numeric": (
        'age = "numeric"\nsex = { kind = "categorical", missing = "level" }',
        "line 5: age is missing, in 22 of 200 rows; say missing = 'drop' (leaves the row out), "
        "'mean' or 'constant' in the spec",
    ),
    "categorical": (
        'age = { kind = "numeric", missing = "mean" }\nsex = "categorical"',
        "line 10: sex is missing, in 10 of 200 rows; say missing = 'drop' (leaves the row out), "
        "'level' or 'constant' in the spec",
    ),
    "both": (
        'age = "numeric"\nsex = "categorical"',
        "line 5: age is missing, in 22 of 200 rows, sex in 10; say",
    ),
    "dropped elsewhere": (
        'age = { kind = "numeric", missing = "drop" }\nsex = "categorical"',
        "line 10: sex is missing, in 4 of 200 rows; say",
    ),
}


@pytest.mark.parametrize("step", [1 << 14, 32])
@pytest.mark.parametrize("what", UNSAID)
def test_a_gap_of_which_the_spec_says_nothing_is_refused(tmp_path, what, step, monkeypatch, capsys):
    monkeypatch.setattr(limits, "ROWS", step)
    features, told = UNSAID[what]
    path = table(tmp_path, features)
    assert partition(path, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["t.csv", "t.toml"]


DROPPED = 'age = { kind = "numeric", missing = "drop" }\nsex = { kind = "categorical", missing = "drop" }'
TOLD = "26 of 200 rows were left out because a value is missing: age 22, sex 10; by silo: w1 "


@pytest.mark.parametrize("step", [1 << 14, 32])
def test_what_is_left_out_stands_everywhere(tmp_path, step, monkeypatch, capsys):
    monkeypatch.setattr(limits, "ROWS", step)
    out = tmp_path / "out"
    assert partition(table(tmp_path, DROPPED), out) == 0
    assert f"warning: {TOLD}" in capsys.readouterr().err
    spec = read_federation(out)
    dropped = spec.source["dropped"]
    assert (dropped["rows"], dropped["of"], dropped["columns"]) == (26, 200, {"age": 22, "sex": 10})
    lost = {entry.name: 50 - sum(entry.examples.values()) for entry in spec.silos}
    assert dropped["silos"] == {name: count for name, count in lost.items() if count}
    assert command("inspect", out) == 0
    assert TOLD[:60] in " ".join(capsys.readouterr().out.split())
    assert command("check", out, "--json") == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(one["kind"], one["severity"]) for one in found if one["kind"] == "left out"] == [
        ("left out", "warning")
    ]


def test_nothing_is_told_where_all_rows_stay(tmp_path, capsys):
    features = (
        'age = { kind = "numeric", missing = "mean" }\nsex = { kind = "categorical", missing = "level" }'
    )
    assert partition(table(tmp_path, features), tmp_path / "out") == 0
    assert "left out" not in capsys.readouterr().err
    assert "dropped" not in read_federation(tmp_path / "out").source


def test_the_servers_test_set_has_its_own_count(tmp_path, capsys):
    path, test = table(tmp_path, DROPPED), table(tmp_path, DROPPED, rows=50, name="u")
    assert partition(path, tmp_path / "out", "--option", f"test={test}") == 0
    assert "; of the test set: 6 of 50 rows were left out" in capsys.readouterr().err


def test_sites_tell_what_they_left_out_and_it_is_added_up(tmp_path, capsys):
    features = DROPPED.replace('"categorical",', '"categorical", levels = ["f", "m"],')
    path = table(tmp_path, features, label='label = "y"\nclasses = ["a", "b"]')
    assert command("spec", tmp_path / "spec.json", "--table", path.with_suffix(".toml")) == 0
    for silo in (0, 1):
        words = ["--spec", tmp_path / "spec.json", "--silo", silo, "--name", f"site {silo}"]
        assert command("import", "csv", "--data", path, *words, "--out", tmp_path / "all") == 0
        assert "26 of 200 rows were left out" in capsys.readouterr().err
    assert command("assemble", tmp_path / "all") == 0
    dropped = read_federation(tmp_path / "all").source["dropped"]
    silos = {"site 0": 26, "site 1": 26}
    assert dropped == {"rows": 52, "of": 400, "columns": {"age": 44, "sex": 20}, "silos": silos}


@pytest.mark.parametrize("told", ["many", {"rows": "x"}, {"rows": 1, "columns": [1]}, [1]])
def test_what_others_wrote_of_it_harms_nobody(tmp_path, told, capsys):
    out = tmp_path / "out"
    assert partition(table(tmp_path, DROPPED), out) == 0
    spec = read_federation(out)
    spec.model_copy(update={"source": {**spec.source, "dropped": told}}).write(out)
    assert command("inspect", out) == 0
    assert command("check", out) == 0
