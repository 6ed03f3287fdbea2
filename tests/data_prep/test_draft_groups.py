"""What `draft` makes of a column that repeats and measures nothing: a group, or a line that asks."""

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.tables import read_spec
from mpifl.data.shards import read_federation


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def visits(folder, name, ids):
    """Write a table in which rows have these ids; return its path."""
    rng = np.random.default_rng(0)
    ages, labels = rng.uniform(20, 80, len(ids)).round(2), rng.integers(0, 2, len(ids))
    rows = zip(ids, ages, [("no", "yes")[label] for label in labels], strict=True)
    path = folder / "visits.csv"
    path.write_text(f"{name},age,outcome\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    return path


def drafted(path, capsys, *more):
    assert command("draft", path, "--label", "outcome", *more) == 0
    return read_spec(path.with_suffix(".toml")), capsys.readouterr().out


@pytest.mark.parametrize("name", ["id", "patient_id", "MRN", "SubjectID", "case no"])
def test_an_id_of_persons_that_repeats_is_the_group(tmp_path, name, capsys):
    path = visits(tmp_path, name, np.random.default_rng(1).permutation(np.repeat(np.arange(40), 5)))
    spec, told = drafted(path, capsys)
    assert (spec.group, spec.id, list(spec.features)) == (name, name, ["age"])
    assert f"group: {name}, whose rows stay together; remove it" in told
    words = ["--out", tmp_path / "out", "--scheme", "iid", "--silos", 2, "--test", 0.2]
    assert command("partition", "csv", "--data", path, *words) == 0
    assert sum(sum(entry.groups.values()) for entry in read_federation(tmp_path / "out").silos) == 40


def test_an_id_of_something_else_that_repeats_is_asked_about(tmp_path, capsys):
    spec, told = drafted(visits(tmp_path, "scanner_id", np.arange(200) % 20), capsys)
    assert (spec.group, list(spec.features)) == (None, ["age"])
    assert 'repeated: scanner_id; say group = "scanner_id" if its rows are one person\'s' in told


@pytest.mark.parametrize(("value", "asked"), [("S{}", True), ("0{}", True), ("comment {}", False)])
def test_texts_too_many_for_categories_that_repeat_are_asked_about(tmp_path, value, asked, capsys):
    ids = np.arange(300) % (120 if asked else 290)
    spec, told = drafted(visits(tmp_path, "Fallnummer", [value.format(one) for one in ids]), capsys)
    assert (spec.group, list(spec.features)) == (None, ["age"])
    assert ('repeated: Fallnummer; say group = "Fallnummer" if its rows are' in told) == asked


def test_an_id_of_its_own_in_every_row_is_no_group(tmp_path, capsys):
    spec, told = drafted(visits(tmp_path, "patient_id", np.arange(200)), capsys)
    assert spec.group is None
    assert "group" not in told


def test_a_group_that_is_named_is_no_feature(tmp_path, capsys):
    spec, told = drafted(visits(tmp_path, "household", np.arange(200) % 90), capsys, "--group", "household")
    assert (spec.group, list(spec.features)) == ("household", ["age"])
    assert "group: household" in told


NUMBERS = {
    "record numbers": (lambda rng: rng.choice(rng.integers(10**5, 10**6, 60), 300), True),
    "rounded amounts": (lambda rng: 5000 * rng.integers(1, 99, 300), False),
    "ages": (lambda rng: rng.integers(18, 95, 300), False),
    "platelets": (lambda rng: rng.normal(260, 90, 300).round().astype(int), False),
    "counts with a long tail": (lambda rng: rng.lognormal(3, 1.5, 300).round().astype(int), False),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_that_repeat_though_far_apart_are_told_of(tmp_path, what, capsys):
    draw, odd = NUMBERS[what]
    spec, told = drafted(visits(tmp_path, "nhs", draw(np.random.default_rng(2))), capsys)
    assert list(spec.features) == ["nhs", "age"]
    assert ("kept: nhs, " in told and "far apart and yet repeated" in told) == odd
    assert ("remove it if it is an id" in told) == odd


def test_ids_of_persons_that_tables_of_sites_call_otherwise_or_lack_are_told(tmp_path, capsys):
    ids, tables = np.random.default_rng(1).permutation(np.repeat(np.arange(40), 5)), []
    for site, column in (("hill", "patient_id"), ("lake", "pid"), ("wood", "height")):
        tables.append(visits(tmp_path, column, ids).rename(tmp_path / f"{site}.csv"))
    out, asked = tmp_path / "all.toml", ["--label", "outcome", "--out", tmp_path / "all.toml", "--force"]
    assert command("draft", *tables[:2], *asked) == 0
    told = capsys.readouterr().out
    assert (
        "warning: no column that all tables have says whose a row is: patient_id of hill.csv and pid" in told
    )
    assert "trained on and tested. Write" in told
    assert 'hill.toml with group = "patient_id" and lake.toml with group = "pid"' in told
    assert "rename" not in told, "an id is no feature"
    cut = ["sites", *tables, "--spec", out, "--test", 0.25, "--out"]
    assert command(*cut, tmp_path / "parted") == 0
    lost = "hill: patient_id says whose a row is, and its spec names no group: rows of one person may be both"
    assert f"warning: {lost} trained on and tested; say group = 'patient_id' in it" in capsys.readouterr().err
    for site, column in (("hill", "patient_id"), ("lake", "pid")):
        (tmp_path / f"{site}.toml").write_text(f'group = "{column}"\n{out.read_text()}')
    assert command(*cut, tmp_path / "whole") == 0
    silos = read_federation(tmp_path / "whole").silos
    assert [one.groups and sum(one.groups.values()) for one in silos] == [40, 40, None]
    told = capsys.readouterr().err
    assert "wood: its spec names no group, as that of hill does (patient_id); if a person has several" in told
    assert "names no group: " not in told
    assert command("draft", *tables, *asked) == 0
    told = capsys.readouterr().out
    assert "warning: wood.csv: no column says whose a row is, as group does in specs beside others" in told
    assert "no column that all tables have" not in told
    for site in ("hill", "lake"):
        (tmp_path / f"{site}.toml").unlink()
    (tmp_path / "lake.csv").write_text((tmp_path / "hill.csv").read_text())
    assert command("draft", *tables[:2], *asked) == 0
    assert "warning" not in capsys.readouterr().out
    assert read_spec(out).group == "patient_id"


def test_spellings_that_one_site_alone_has_are_told(tmp_path, capsys):
    """Levels 1 and 2 of a site beside F and M of the others would be four sexes."""
    rows = {"north": "F M", "east": "M F", "south": "1 2"}
    for name, sexes in rows.items():
        labels = ("yes", "no") if name == "south" else ("1", "0")
        lines = [f"{nth}.5,{sexes.split()[nth % 2]},{labels[nth % 3 > 0]}\n" for nth in range(60)]
        (tmp_path / f"{name}.csv").write_text("age,sex,ill\n" + "".join(lines))
    tables = [tmp_path / f"{name}.csv" for name in rows]
    assert command("draft", *tables, "--label", "ill", "--out", tmp_path / "all.toml") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "spellings: sex has 1, 2 in south.csv, and F, M in the others; write together what means" in told
    assert "label: ill is 0, 1 in north.csv, east.csv; no, yes in south.csv; write classes = " in told
    assert "spellings: age" not in told
    (tmp_path / "south.csv").write_text("age,sex,ill\n" + "1.5,W,1\n2.5,m,0\n" * 30)
    assert command("draft", *tables, "--label", "ill", "--out", tmp_path / "other.toml") == 0
    told = " ".join(capsys.readouterr().out.split())
    said = (
        "spellings: sex has W in south.csv, and F in the others; write together what means the same, in one"
    )
    assert said in told
    words = [*tables, "--spec", tmp_path / "other.toml", "--out", tmp_path / "out"]
    assert command("sites", *words) == 0
    lone = "column sex: south alone has 'W', and lacks 'F', which all others have"
    merged = "30 values were read by other spellings that the spec states: sex 30 'm' as 'M' at south"
    said = capsys.readouterr().err
    assert lone in said
    assert merged in said
    assert command("check", tmp_path / "out") == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "levels" in said
    assert "spelled" in said
    (tmp_path / "north.csv").write_text("age,sex,ill\n" + "1.5,W,1\n2.5,F,0\n3.5,M,0\n" * 20)
    assert command("sites", *words[:-1], tmp_path / "again") == 0
    assert "alone has" not in capsys.readouterr().err
    (tmp_path / "south.csv").write_text("age,sex,ill\n" + "1.5,W,1\n2.5,F,2\n3.5,M,1\n" * 20)
    spec = tmp_path / "third.toml"
    spec.write_text('label = "ill"\nstandardise = "none"\n[features]\nage = "numeric"\nsex = "categorical"\n')
    assert command("sites", *tables, "--spec", spec, "--out", tmp_path / "coded") == 0
    assert "label: south alone has '2', and lacks '0', which all others have" in capsys.readouterr().err
