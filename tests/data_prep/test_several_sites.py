"""The tables of several sites at one place: the bits of the commands one by one, and what cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT
from typer.testing import CliRunner

from data_prep.cli import app
from mpifl.common import InputError
from mpifl.data.shards import read_federation

CLINICS = {"east": ",", "north": ";", "south": "\t"}
SPEC = (ROOT / "docs/examples/clinics/columns.toml").read_text()


def run(*arguments: str | float | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def clinics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of each clinic, and its spec beside the folder."""
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "clinics").mkdir()
    for at, (name, delimiter) in enumerate(CLINICS.items()):
        rows = (
            f"{30 + n % (20 + at)},{'fm'[n % 2]},{'' if n % 9 == at else 120 + n % 30 + at},"
            f"{['no', 'yes'][n % 3 == 0]},{['no', 'yes'][n % 4 == 1]}"
            for n in range(50 + at)
        )
        text = "\n".join(["age,sex,pressure,smoker,ill", *rows]) + "\n"
        (folder / f"{name}.csv").write_text(text.replace(",", delimiter))
    (tmp_path / "columns.toml").write_text(SPEC)
    return folder


def test_the_bits_are_those_of_the_commands_one_by_one(clinics: Path) -> None:
    stated, line = (
        [f'"{name}.json"' for name in CLINICS],
        next(one for one in SPEC.splitlines() if "json" in one),
    )
    spec = Path("columns.toml")
    spec.write_text(SPEC.replace(line, f"standardise = [{', '.join(stated)}]"))
    for name in CLINICS:
        run("statistics", "csv", "--data", clinics / f"{name}.csv", "--spec", spec, "--out", f"{name}.json")
    run("spec", "agreed.json", "--name", "clinics", "--table", spec)
    for number, name in enumerate(CLINICS):
        words = ["--option", "spec=columns.toml", "--spec", "agreed.json", "--silo", number, "--name", name]
        run("import", "csv", "--data", clinics / f"{name}.csv", *words, "--test", "0.25", "--out", "single")
    run("assemble", "single")
    spec.write_text(SPEC.replace(line, 'standardise = "own"'))
    said = run("sites", clinics, "--spec", spec, "--name", "clinics", "--test", "0.25", "--out", "joined")
    assert (
        "joined/federation.json: 3 silos; joined/agreed has specs and statistics. Means and deviations are"
        in said
    )
    spec.write_text(
        SPEC.replace(line, 'standardise = "none"').replace(', missing = "mean"', ', missing = "drop"')
    )
    plain = run("sites", clinics, "--spec", spec, "--test", "0.25", "--out", "plain")
    assert "plain/agreed has specs and statistics\n" in plain
    spec.write_text(SPEC.replace(line, 'standardise = "own"'))
    assert said.count("warning: ") == 1  # of gaps that were filled
    for file in ("federation.json", *(f"silo_000{number}.h5" for number in range(3))):
        assert Path("joined", file).read_bytes() == Path("single", file).read_bytes()
    for name in CLINICS:
        assert Path("joined/agreed", f"{name}.json").read_bytes() == Path(f"{name}.json").read_bytes()
    run("check", "joined")


@pytest.mark.parametrize("standardise", ["none", "own"])
@pytest.mark.parametrize(
    ("pressure", "smoker"),
    [("mean", "drop"), ("drop", "level"), ("constant", "constant"), ("mean", "ordinal")],
)
def test_a_site_alone_makes_the_same_shard_or_none(
    clinics: Path, standardise: str, pressure: str, smoker: str
) -> None:
    filled = f'missing = "{pressure}"' + (", constant = 1" if pressure == "constant" else "")
    way = 'encoding = "ordinal"' if smoker == "ordinal" else f'missing = "{smoker}"'
    way += ', constant = "no"' if smoker == "constant" else ""
    spec = Path("columns.toml")
    spec.write_text(
        f'label = "ill"\nmissing = [""]\nstandardise = "{standardise}"\n[features]\n'
        f'pressure = {{ kind = "numeric", {filled} }}\nsmoker = {{ kind = "categorical", {way} }}\n'
    )
    run("sites", clinics, "--spec", spec, "--out", "joined", "--test", "0.25")
    open_ones = [name for name, one in {"pressure": pressure, "smoker": smoker}.items()
                 if one in ("mean", "ordinal") or (name, standardise) == ("pressure", "own")]  # fmt: skip
    for number, name in enumerate(CLINICS):
        words = ["import", "csv", "--data", clinics / f"{name}.csv", "--spec", "joined/agreed/agreed.json"]
        words += ["--silo", number, "--name", name, "--test", "0.25", "--out", "single"]
        agreed = f"spec=joined/agreed/{name}.toml"
        if open_ones:
            line = f"column {open_ones[0]} would become numbers by this site's rows"
            with pytest.raises(InputError, match=line):
                run(*words, "--option", "spec=columns.toml")
        run(*words, "--option", agreed if open_ones else "spec=columns.toml")
        shard = f"silo_000{number}.h5"
        assert Path("joined", shard).read_bytes() == Path("single", shard).read_bytes()


def test_a_site_without_an_event_is_a_silo_and_is_told(
    clinics: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Curves and Cox's model take it, and so does a regression of a site with one class."""
    for name, mark in CLINICS.items():
        rows = [f"{30 + n % 20}{mark}{n + 1}{mark}{int(n % 3 == 0 and name != 'south')}" for n in range(40)]
        (clinics / f"{name}.csv").write_text("\n".join([mark.join(["age", "days", "died"]), *rows]) + "\n")
    label = '{ kind = "survival", time = "days", event = "died" }'
    Path("died.toml").write_text(f'standardise = "none"\nlabel = {label}\n[features]\nage = "numeric"\n')
    said = run("sites", clinics, "--spec", "died.toml", "--test", 0, "--out", "joined") + "".join(
        capfd.readouterr()
    )
    assert "south: 40 train" in said
    what = "clinics/south.csv: no row has '1' in died, so no event was seen; newton, cox and kaplanmeier take"
    assert said.count(what) == 1
    run("check", "joined")
    words = [
        "--spec",
        "joined/agreed/agreed.json",
        "--option",
        "spec=died.toml",
        "--silo",
        2,
        "--test",
        0,
    ]
    run("import", "csv", "--data", clinics / "south.csv", *words, "--name", "south", "--out", "single")
    assert Path("single/silo_0002.h5").read_bytes() == Path("joined/silo_0002.h5").read_bytes()


def test_a_yes_or_no_in_other_numbers_at_one_site_is_told(
    clinics: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, codes in zip(CLINICS, ((0, 1), (1, 2), (0, 1)), strict=True):
        ages = [-9 if n % 15 == 7 and name != "east" else 30 + n % 20 for n in range(60)]
        rows = [f"{ages[n]},{codes[n % 3 == 0]},{'ny'[n % 4 == 0]}" for n in range(60)]
        (clinics / f"{name}.csv").write_text("\n".join(["age,smoker,ill", *rows]) + "\n")
    age = 'age = { kind = "numeric", missing = "constant", constant = 0 }'
    columns = f'[features]\n{age}\nsmoker = "numeric"\n'
    stated = f'label = "ill"\nstandardise = "none"\n{columns}'
    Path("coded.toml").write_text(stated)
    Path("clinics/north.toml").write_text(f'missing = ["-9"]\n{stated}')
    said = run("sites", clinics, "--spec", "coded.toml", "--out", "joined")
    assert "column smoker: 0, 1 at east and 1, 2 at north; is it coded alike?" in said
    code = "column age: -9 occurs 4 times at south, and all others lie from 30 to 49"
    assert code in said
    assert "column age: median" not in said
    differ = "missing: of east and north only east's spec reads '' as missing; "
    line = f"{differ}only north's spec reads '-9' as missing (gaps there: age); does the other use it, too?"
    assert (said + "".join(capfd.readouterr())).count(line) == 1
    run("spec", "agreed.json", "--name", "clinics", "--table", "joined/agreed/east.toml")
    for number, name in enumerate(CLINICS):  # each by itself, and the same is told
        spec = "clinics/north.toml" if name == "north" else "coded.toml"
        words = ["--option", f"spec={spec}", "--spec", "agreed.json", "--silo", number, "--name", name]
        told = run("import", "csv", "--data", clinics / f"{name}.csv", *words, "--out", "single")
        assert ("column age: -9 occurs" in told + "".join(capfd.readouterr())) == (name == "south")
    assert f"warning: {line}" in run("assemble", "single") + "".join(capfd.readouterr())


def test_what_a_spec_leaves_to_the_table_is_of_all_sites(clinics: Path) -> None:
    for name in CLINICS:  # each clinic has a ward that no other has, and one of them no smoker at all
        lines = (clinics / f"{name}.csv").read_text().splitlines()
        rows = [f"{line}{CLINICS[name]}{name if n else 'ward'}" for n, line in enumerate(lines)]
        (clinics / f"{name}.csv").write_text("\n".join(rows) + "\n")
    Path("columns.toml").write_text(
        'label = "ill"\nmissing = [""]\n[features]\nward = "categorical"\n'
        'pressure = { kind = "numeric", missing = "mean" }\n'
    )
    run("sites", *(clinics / f"{name}.csv" for name in CLINICS), "--spec", "columns.toml", "--out", "joined")
    made = read_federation(Path("joined"))
    assert made.feature_names == ["ward=east", "ward=north", "ward=south", "pressure"]
    assert (made.class_names, made.name) == (["no", "yes"], "joined")
    assert [entry.name for entry in made.silos] == [*CLINICS]


def test_a_site_has_its_own_names_and_units_by_the_spec_beside_its_table(clinics: Path) -> None:
    table = clinics / "south.csv"
    table.write_text(table.read_text().replace("age\t", "months\t", 1))
    own = SPEC.replace('"numeric"', '{ kind = "numeric", rename = "months", factor = 12 }', 1)
    (clinics / "south.toml").write_text(own)
    run("sites", clinics, "--spec", "columns.toml", "--out", "joined")
    found = json.loads(Path("joined/agreed/south.json").read_text())["columns"]["age"]
    assert found["sum"] == 12 * sum(30 + n % 22 for n in range(52))
    assert read_federation(Path("joined")).feature_names[0] == "age"


def test_a_column_in_another_unit_at_one_site_is_told(clinics: Path) -> None:
    lines = [line.split("\t") for line in (clinics / "south.csv").read_text().splitlines()]
    for row in lines[1:]:
        row[2] = row[2] and f"{float(row[2]) / 7.5:.2f}"
    assert "units" not in run("sites", clinics, "--spec", "columns.toml", "--out", "alike")
    (clinics / "south.csv").write_text("\n".join("\t".join(row) for row in lines) + "\n")
    said = run("sites", clinics, "--spec", "columns.toml", "--out", "joined")
    assert re.search(r"warning: column pressure: median 13\d at \w+, 1\d\.\d at south; are the units", said)
    assert said.count("units") == 1


def test_a_person_at_two_sites_is_told(clinics: Path) -> None:
    for name, delimiter in CLINICS.items():
        lines = (clinics / f"{name}.csv").read_text().splitlines()
        who = [f"{name}{n // 2}" if n > 5 or name == "south" else f"p{n // 2}" for n in range(len(lines))]
        rows = [f"{line}{delimiter}{who[n - 1] if n else 'patient'}" for n, line in enumerate(lines)]
        (clinics / f"{name}.csv").write_text("\n".join(rows) + "\n")
    words = "--spec", "columns.toml", "--test", "0.25"
    said = run("sites", clinics, *words, "--group", "patient", "--out", "joined")
    assert "warning: 3 groups of patient have rows at two sites or more (3 at east and north); " in said
    assert "keep each at one site" in said
    (clinics / "north.csv").unlink()
    assert "groups of patient" not in run("sites", clinics, *words, "--group", "patient", "--out", "two")


def test_the_seed_of_the_sites_is_recorded(clinics: Path) -> None:
    run("sites", clinics, "--spec", "columns.toml", "--test", "0.25", "--seed", 7, "--out", "joined")
    assert read_federation(Path("joined")).seed == 7
    assert "seed 7" in run("inspect", "joined")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["clinics/east.csv"], r"clinics/east.csv: has tables of at least 2 sites, 1 found; name a table"),
        (["clinics/east.csv", "clinics/west.csv"], r"clinics/west.csv: is not there; name a table, or"),
        (["clinics/east.csv", "east.csv"], r"clinics/east.csv and east.csv: are both of a site 'east'"),
        (["clinics"], r"--spec: not given, and east has none beside its table \(clinics/east.toml\)"),
        (
            ["clinics/east.csv", "scans"],
            r"scans: has no tables; folders of images become silos by",
        ),
        (["clinics", "--spec", "none.toml"], r"none.toml: cannot be read"),
        (["clinics", "--spec", "wrong.toml"], r"clinics/east.csv: column 'weight' of the spec is not there"),
        (["clinics", "--spec", "columns.toml", "--test", "2"], r"--test: "),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_left(clinics: Path, words: list[str], line: str) -> None:
    Path("east.csv").write_text("age\n1\n")
    Path("scans").mkdir()
    Path("scans/a.png").touch()
    Path("wrong.toml").write_text(SPEC + 'weight = "numeric"\n')
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(InputError, match=line):
        run("sites", *words, "--out", "joined")
    assert sorted(Path.cwd().rglob("*")) == before


CODED = 'label = "ill"\nmissing = ["", "NA"]\ngroup = "person"\n[features]\nage = "numeric"\n'


def clinic(name: str, rows: list[str], spec: str = "") -> None:
    """Write a site's table of person, age and outcome, and its own spec."""
    Path(f"{name}.csv").write_text("\n".join(["person,age,ill", *rows]) + "\n")
    if spec:
        Path(f"{name}.toml").write_text(spec)


def test_what_sites_left_out_is_told_of_the_rows_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("columns.toml").write_text(CODED.replace('"numeric"', '{ kind = "numeric", missing = "drop" }'))
    clinic("east", [f"p{n},{'' if n < 4 else 20 + n},{'ab'[n % 2]}" for n in range(40)])
    clinic("west", [f"q{n},{20 + n},{'ab'[n % 2]}" for n in range(30)])
    said = run("sites", "east.csv", "west.csv", "--spec", "columns.toml", "--out", "s", "--test", "0.2")
    assert "4 of 70 rows were left out because a value is missing: age 4; by silo: east 4" in said
    assert "1 in 2" not in said


@pytest.mark.parametrize(("other", "first"), [("S{}", "s{}"), ("{}", "{}.0")])
def test_an_id_in_two_spellings_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, first: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("columns.toml").write_text(CODED)
    visits = [form.format(n) for n in range(10, 30) for form in (first, other)]
    clinic("east", [f"{person},{20 + n},{'ab'[n % 2]}" for n, person in enumerate(visits)])
    clinic("west", [f"q{n},{20 + n},{'ab'[n % 2]}" for n in range(30)])
    said = run("sites", "east.csv", "west.csv", "--spec", "columns.toml", "--out", "s", "--test", "0.2")
    one = f"'{first.format(10)}' and '{other.format(10)}'"
    assert f"east: person: 20 ids are spelled in several ways, as {one}, and not taken for one" in said
    assert "west: person" not in said


def test_a_factor_is_the_product_with_the_one_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = [f"{0.5 + n % 10 / 10:.1f}" for n in range(60)]
    spec = CODED.replace("age", "creatinine")
    multiplied = spec.replace('"numeric"', '{ kind = "numeric", factor = 88.42, rename = "age" }')
    clinic("east", [f"p{n},{one},{'ab'[n % 2]}" for n, one in enumerate(values)], spec)
    Path("east.toml").write_text(spec.replace('"numeric"', '{ kind = "numeric", rename = "age" }'))
    clinic(
        "west", [f"q{n},{float(one) * 88.42:.0f},{'ab'[n % 2]}" for n, one in enumerate(values)], multiplied
    )
    said = run("sites", "east.csv", "west.csv", "--out", "s")
    found = re.search(r"factor = ([0-9.e-]+) at west, in place of 88.42", said)
    assert found is not None, said
    assert abs(float(found[1]) * 88.42 - 1) < 0.02
    assert found[0] in " ".join(run("check", "s", "--no-duplicates").replace("│", " ").split())
    Path("west.toml").write_text(multiplied.replace("88.42", found[1]))
    assert "are the units the same" not in run("sites", "east.csv", "west.csv", "--out", "again")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "west.csv: is empty; it must have a line of names, and rows"),
        ("person,age,ill\n", "west.csv: has no rows"),
        ("person,age,ill\nq,1,a\n,,\n,,\n", "west.csv: line 3: has no value in any column, as 2 lines of 3"),
    ],
)
def test_an_empty_table_or_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("columns.toml").write_text(CODED)
    clinic("east", [f"p{n},{20 + n},{'ab'[n % 2]}" for n in range(30)])
    Path("west.csv").write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        run("sites", "east.csv", "west.csv", "--spec", "columns.toml", "--out", "s")
    if ",," not in text:
        Path("west.toml").write_text(CODED)
        with pytest.raises(InputError, match=re.escape(said)):
            run("draft", "east.csv", "west.csv", "--label", "ill", "--out", "d.toml")
