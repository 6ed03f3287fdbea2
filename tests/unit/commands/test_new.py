"""A new job: commented, valid, and trained by the commands that are printed with it."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from conftest import python, rank_environment
from typer.testing import CliRunner

import mpifl
from data_prep.cli import app as data_prep
from mpifl.cli import app
from mpifl.cli.job_tools import TEMPLATES
from mpifl.common import InputError, read_toml
from mpifl.run.job import read_job
from mpifl.training.beforehand import validate_job
from mpifl.wings import wings_of

GIVEN = {
    "digits": [],
    "table": ["--data", "own.csv", "--label", "ill"],
    "regression": ["--data", "own.csv", "--label", "age", "--silos", "ward"],
    "survival": ["--data", "own.csv", "--label", "days,ill"],
    "images": ["--data", "pictures", "--silos", "2"],
    "segmentation": ["--data", "scans", "--label", "masks", "--silos", "2"],
    "text": ["--data", "own.txt"],
    "vertical": ["--data", "own.csv", "--label", "ill", "--silos", "2"],
}


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = (f"{20 + n % 50},{'ab'[n % 2]},{n % 31},{n // 2 % 2},{n % 7}" for n in range(80))
    Path("own.csv").write_text("\n".join(["age,ward,days,ill,dose", *rows]) + "\n")
    Path("own.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 40)


def new(*arguments: str) -> list[str]:
    """Run `mpifl new`; return the commands that it prints."""
    done = CliRunner().invoke(app, ["new", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]


def pictures() -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        Path("pictures", name).mkdir(parents=True)
        for n in range(8):
            image.fromarray(np.full((9, 8, 3), 10 * n, np.uint8)).save(f"pictures/{name}/{n}.png")


def scans() -> None:
    image = pytest.importorskip("PIL.Image")
    for name, values in (("scans", 40), ("masks", 1)):
        Path(name).mkdir()
        for n in range(8):
            image.fromarray(np.eye(12, dtype=np.uint8) * values).save(f"{name}/{n}.png")


def test_the_printed_commands_train_the_digits() -> None:
    commands = new("first.toml", "--rounds", "2")
    assert commands[-1].endswith("mpifl train first.toml")
    for command in commands:
        program, *rest = shlex.split(command)
        module = {"data-prep": "data_prep", "mpifl": "mpifl"}[Path(program).name]
        done = subprocess.run([*python(), "-m", module, *rest], env=rank_environment(), timeout=120)
        assert done.returncode == 0
    assert len(Path("runs/first/metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_job_of_each_kind_could_start_with_the_shards_of_its_commands(kind: str) -> None:
    if kind == "images":
        pictures()
    if kind == "segmentation":
        scans()
    *prepared, _ = new("own", "--kind", kind, *GIVEN[kind])
    for command in prepared:
        data_prep(shlex.split(command)[1:], standalone_mode=False)
    validate_job(read_job(Path("own.toml"), ()), "own.toml", wings_of)
    jsonschema.validate(read_toml(Path("own.toml")), json.loads(Path("job.schema.json").read_text()))


@pytest.mark.parametrize("name", ["own.parquet", "own.feather", "-own.csv"])
def test_the_printed_commands_read_a_table_by_its_ending(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv("own.csv")
    {"parquet": table.to_parquet, "feather": table.to_feather, "csv": table.to_csv}[name.split(".")[1]](name)
    for command in new("clinic", "--kind", "table", f"--data={name}", "--label", "ill", "--silos", "2")[:-1]:
        done = CliRunner().invoke(data_prep, shlex.split(command)[1:], catch_exceptions=False)
        assert not done.exit_code, done.output


def test_a_comment_stands_above_each_key_and_says_what_it_means() -> None:
    new("--kind", "table", *GIVEN["table"], "--algorithm", "fedprox")
    lines = Path("table.toml").read_text().splitlines()
    assert lines[0] == "#:schema ./job.schema.json"
    cut = "# data-prep partition csv --data own.csv --spec table-columns.toml --out shards/table"
    assert any(line.startswith(cut) for line in lines)
    for key in ('name = "table"', 'optimizer = "sgd"', 'name = "mlp"', "every = 10"):
        assert lines[lines.index(key) - 1].startswith("# ")
    assert lines[lines.index('name = "fedprox"') - 2].startswith("# FedProx (Li et al. 2020")


def test_a_job_of_values_learns_them_in_their_deviations() -> None:
    new("--kind", "regression", *GIVEN["regression"])
    ages = 20 + np.arange(80) % 50
    task = read_toml(Path("regression.toml"))["task"]
    assert task == {"name": "regression", "mean": 40.75, "deviation": 13.48}
    assert [task["mean"], task["deviation"]] == pytest.approx([ages.mean(), ages.std()], rel=1e-3)


@pytest.mark.parametrize("other_size", [False, True])
def test_masks_of_black_and_white_and_images_of_one_size_are_seen(other_size: bool) -> None:
    scans()
    image = pytest.importorskip("PIL.Image")
    for n in range(8):
        size = 16 if other_size and n == 5 else 12
        image.fromarray(np.eye(size, dtype=np.uint8) * 40).save(f"scans/{n}.png")
        image.fromarray(np.eye(size, dtype=np.uint8) * 255).save(f"masks/{n}.png")
    deep = np.eye(12, dtype=np.uint16) * 500
    image.fromarray(deep).save("scans/7.png")
    told = CliRunner().invoke(app, ["new", "seen", "--data", "scans", "--label", "masks", "--silos", "2"])
    assert "scans/7.png: pixels are uint16, 0.png has uint8; make them alike: 8 bits times 257" in told.output
    image.fromarray(np.eye(12, dtype=np.uint8)).save("scans/7.png")
    cut, _ = new("own", "--data", "scans", "--label", "masks", "--silos", "2")
    assert ("--size 64x64" in cut) == other_size
    assert "--masks masks" in cut
    prepare(cut)
    made = json.loads(Path("shards/own/federation.json").read_text())
    assert made["features"]["shape"] == ([1, 64, 64] if other_size else [1, 12, 12])
    assert made["classes"] == 2
    validate_job(read_job(Path("own.toml"), ()), "own.toml", wings_of)


def clinics() -> list[str]:
    """Write the tables of three clinics, parted by other marks, where few have died."""
    Path("clinics").mkdir()
    for at, (name, mark) in enumerate({"east": ",", "north": ";", "south": "\t"}.items()):
        rows = (f"{20 + n % 50 + at},{'abc'[n % 2 + at % 2]},{['no', 'yes'][n % 10 == 3]}" for n in range(60))
        text = "\n".join(["age,ward,died", *rows]) + "\n"
        Path("clinics", f"{name}.csv").write_text(text.replace(",", mark))
    return ["clinics/east.csv", "clinics/north.csv", "clinics/south.csv"]


def test_a_unit_that_differs_between_sites_is_told_by_new_and_before_a_training() -> None:
    for site, factor in (("a", 1.0), ("b", 2.2046)):
        rows = [f"{factor * (60 + at % 40)},{'yn'[at % 2]}" for at in range(80)]
        Path(f"{site}.csv").write_text("\n".join(["weight,ill", *rows]) + "\n")
    words = ["new", "units", "--kind", "table", "--data", "a.csv", "--data", "b.csv", "--label", "ill"]
    printed = CliRunner().invoke(app, words, catch_exceptions=False).stdout.splitlines()
    assert [line for line in printed if line.startswith("column weight: median ")]
    prepare(next(line.strip() for line in printed if "data-prep sites" in line))
    done = CliRunner().invoke(app, ["check", "units.toml"])
    assert done.exit_code == 0
    assert "are the units the same? " in done.stderr
    own = 'label = "ill"\nstandardise = "own"\n[features]\nweight = { kind = "numeric", factor = 0.4536 }\n'
    Path("b.toml").write_text(own)
    told = CliRunner().invoke(app, [*words, "--force"], catch_exceptions=False).stdout
    assert "column weight" not in told
    assert (
        "b.csv: read by its own spec b.toml; where tables stay at their sites, it needs 'standardise'" in told
    )
    assert "statistics csv --data b.csv --spec b.toml" in told


def test_one_table_is_read_by_the_spec_that_lies_beside_it() -> None:
    rows = [f"{60 + at % 40};{'yn'[at % 2]};{'no' if at % 5 else 'yes'}" for at in range(80)]
    Path("a.csv").write_text("\n".join(["Gewicht;extra;krank", *rows]) + "\n")
    weight = 'weight = { kind = "numeric", rename = "Gewicht", factor = 0.4536 }\n'
    own = f'label = "krank"\nstandardise = "own"\ndelimiter = ";"\n[features]\n{weight}'
    Path("a.toml").write_text(own)
    words = ["new", "one", "--kind", "table", "--data", "a.csv", "--label", "krank", "--silos", "2"]
    told = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert "a.csv: read by its own spec a.toml" in told
    assert "label: krank is 'yes' in 16 of 80 rows; [task] binary" in told
    assert not Path("one-columns.toml").exists()
    prepare(next(line.strip() for line in told.splitlines() if "data-prep partition" in line))
    made = json.loads(Path("shards/one/federation.json").read_text())
    assert [*made["source"]["encoding"]["spec"]["features"]] == ["weight"]
    assert Path("a.toml").read_text() == own
    misspelt = CliRunner().invoke(app, [*("krnk" if word == "krank" else word for word in words), "--force"])
    said = "--label krnk: no spec beside the tables has this column; did you mean 'krank'?"
    assert str(misspelt.exception).startswith(said)
    Path("a.toml").write_text(own.replace("krank", "extra"))
    wrong = CliRunner().invoke(app, [*words, "--force"])
    assert "a.toml: learns extra, and --label is krank" in str(wrong.exception)


def prepare(*commands: str) -> None:
    for command in commands:
        done = CliRunner().invoke(data_prep, shlex.split(command)[1:], catch_exceptions=False)
        assert not done.exit_code, done.output


@pytest.mark.parametrize("one_by_one", [False, True])
def test_each_of_several_tables_is_a_silo_here_and_at_its_site(one_by_one: bool) -> None:
    tables = clinics()
    given = [word for path in tables for word in ("--data", path)] if one_by_one else ["--data", "clinics"]
    printed = new("own", *given, "--label", "died")
    sites, train = printed[:2]
    assert "data-prep sites clinics/east.csv clinics/north.csv" in sites
    assert train.endswith("mpifl train own.toml")
    prepare(sites)
    job = read_job(Path("own.toml"), ())
    validate_job(job, "own.toml", wings_of)
    Path("shards/own").rename("shards/together")
    prepare(*printed[2:])
    for number in range(3):
        own, together = (Path(f"shards/{one}/silo_000{number}.h5") for one in ("own", "together"))
        assert own.read_bytes() == together.read_bytes()
    names = [silo["name"] for silo in json.loads(Path("shards/own/federation.json").read_text())["silos"]]
    assert names == ["east", "north", "south"]


def test_a_regression_is_fitted_to_all_rows_in_the_units_of_columns() -> None:
    clinics()
    printed = new("mort", "--data", "clinics", "--label", "died", "--algorithm", "newton")
    assert "--test 0 " in printed[0]
    assert "0.2" not in " ".join(printed)
    job = read_job(Path("mort.toml"), ())
    assert job.rounds == 10
    prepare(printed[0])
    validate_job(job, "mort.toml", wings_of)
    Path("shards/mort").rename("shards/together")
    prepare(*printed[2:])
    for number in range(3):
        own, together = (Path(f"shards/{one}/silo_000{number}.h5") for one in ("mort", "together"))
        assert own.read_bytes() == together.read_bytes()
    spec = json.loads(Path("shards/mort/federation.json").read_text())
    assert "deviation" not in json.dumps(spec["source"])


def test_an_outcome_of_numbers_is_fitted_as_numbers_and_one_of_texts_is_refused() -> None:
    rows = [f"{20 + n % 50},{n % 4},{'abc'[n % 3]}" for n in range(60)]
    Path("visits.csv").write_text("\n".join(["age,visits,ward", *rows]) + "\n")
    words = ["job", "--kind", "table", "--data", "visits.csv", "--silos", "2", "--algorithm", "newton"]
    printed = new(*words, "--label", "visits")
    assert read_toml(Path("job.toml"))["task"] == {"name": "regression"}
    prepare(printed[0])
    assert json.loads(Path("shards/job/federation.json").read_text())["classes"] is None
    done = CliRunner().invoke(app, ["check", "job.toml"], catch_exceptions=False)
    assert "no rows are held out; all of them are fitted" in done.output
    before = sorted(Path.cwd().iterdir())
    said = r"--label ward: has 3 classes in text, a, b, c; newton takes two classes, or numbers"
    with pytest.raises(InputError, match=said):
        new(*words, "--label", "ward", "--force")
    with pytest.raises(InputError, match=r"--algorithm cox: takes a time and an event; .*--kind survival"):
        new(*words[:-1], "cox", "--label", "ward", "--force")
    assert sorted(Path.cwd().iterdir()) == before


def test_a_regression_refuses_classes_as_numbers() -> None:
    Path("ward.toml").write_text('label = "ward"\nstandardise = "none"\n[features]\nage = "numeric"\n')
    rows = [f"{20 + n % 50},{'abc'[n % 3]}" for n in range(60)]
    Path("own.csv").write_text("\n".join(["age,ward", *rows]) + "\n")
    words = "--data own.csv --spec ward.toml --out shards/w --scheme iid --silos 2 --test 0"
    prepare(f"data-prep partition csv {words}")
    tables = '[model]\nname = "logreg"\n[algorithm]\nname = "newton"\n'
    job = f'name = "w"\nshards = "shards/w"\nrounds = 2\n{tables}'
    for task in ("regression", "counts"):
        Path("w.toml").write_text(f'{job}[task]\nname = "{task}"\n')
        for command in ("check", "train"):
            done = CliRunner().invoke(app, [command, "w.toml", "--out", f"runs/{command}"])
            said = str(done.exception)
            assert said.startswith(f"w.toml: [task] name = '{task}': takes values")
            assert "the shards have class numbers, of 3 classes" in said
            assert 'give the label kind = "numeric" in its spec' in said
            assert "'classification'" not in said
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (("no", "yes"), 'write classes = [["0", "no"], ["1", "yes"]] in the spec'),
        (("1", "2"), "code it alike in all tables"),
    ],
)
def test_sites_that_code_an_outcome_otherwise_are_named_with_what_mends_it(
    other: tuple[str, str], said: str
) -> None:
    for site, codes in (("linz", ("0", "1")), ("graz", other), ("bern", other)):
        rows = [f"{20 + n % 50},{codes[n % 3 == 1]}" for n in range(60)]
        Path(f"{site}.csv").write_text("\n".join(["age,died", *rows]) + "\n")
    tables = [word for site in ("linz", "graz", "bern") for word in ("--data", f"{site}.csv")]
    words = ["new", "codes", "--kind", "table", *tables, "--label", "died", "--algorithm", "newton"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    (line,) = (line for line in done.stdout.splitlines() if "died" in line and "in linz.csv" in line)
    assert line.startswith(f"label: died is 0, 1 in linz.csv; {', '.join(other)} in graz.csv, bern.csv")
    assert said in line
    assert read_toml(Path("codes.toml"))["task"] == {"name": "binary"}
    cut = next(one.strip() for one in done.stdout.splitlines() if "data-prep sites" in one)
    prepare(cut)
    with pytest.raises(InputError, match="takes class numbers 0 and 1; the shards have class") as refused:
        validate_job(read_job(Path("codes.toml"), ()), "codes.toml", wings_of)
    assert 'classes = [["0", "no"], ["1", "yes"]]' in str(refused.value)
    assert "'classification'" not in str(refused.value)
    if other == ("no", "yes"):
        text = Path("codes-columns.toml").read_text().splitlines()
        kept = [one for one in text if not one.startswith("classes =")]
        mended = [one.removeprefix("# ") if one.startswith("# classes") else one for one in kept]
        stated = 'classes = [["0", "no"], ["1", "yes"]]  # in place of that, if that is what they mean'
        assert f"{stated} (1 33.3%, yes 33.3% of rows)" in mended
        Path("codes-columns.toml").write_text("\n".join(mended))
        shutil.rmtree("shards")
        prepare(cut)
        validate_job(read_job(Path("codes.toml"), ()), "codes.toml", wings_of)


def test_a_job_is_not_named_as_the_spec_of_a_table_beside_it() -> None:
    rows = "\n".join(["age,died", *(f"{20 + n % 50},{n % 3 == 1:d}" for n in range(60))])
    for site in ("linz", "graz"):
        Path(f"{site}.csv").write_text(rows + "\n")
    new = ["new", "linz", "--kind", "table", "--data", "linz.csv", "--label", "died"]
    what = "linz: beside linz.csv linz.toml is read as the spec of that table; use another name, as linz-job"
    with pytest.raises(InputError, match=f"^mpifl new {what}$"):
        CliRunner().invoke(app, [*new, "--data", "graz.csv"], catch_exceptions=False)
    assert not Path("linz.toml").exists()
    done = CliRunner().invoke(app, new, catch_exceptions=False)
    assert f"warning: {what}" in done.stdout.splitlines()
    (spec := Path("linz-columns.toml")).rename("linz.toml")
    with pytest.raises(InputError, match=f"^mpifl new {what}$"):
        CliRunner().invoke(app, [*new, "--force"], catch_exceptions=False)
    assert "[features]" in Path("linz.toml").read_text()
    assert not spec.exists()


def test_a_rare_outcome_is_judged_by_the_roc_curve_and_its_probabilities_are_risks() -> None:
    clinics()
    done = CliRunner().invoke(app, ["new", "rare", "--data", "clinics", "--label", "died"])
    assert "label: died is 'yes' in 18 of 180 rows; [task] binary, AUROC first" in done.stdout
    assert read_toml(Path("rare.toml"))["task"] == {"name": "binary"}
    for said in (done.stdout, Path("rare.toml").read_text()):
        assert 'weights = "balanced" in [task] finds more of them' in said
    new("--kind", "table", *GIVEN["table"], "--silos", "2")
    assert read_toml(Path("table.toml"))["task"] == {"name": "binary"}
    new("wards", "--kind", "table", "--data", "own.csv", "--label", "dose", "--silos", "2")
    assert "task" not in read_toml(Path("wards.toml"))


def test_a_spec_that_is_there_is_kept_unless_forced() -> None:
    Path("table-columns.toml").write_text("mine")
    with pytest.raises(InputError, match=r"table-columns.toml: is there already; .*--force"):
        new("--kind", "table", *GIVEN["table"], "--silos", "2")
    assert Path("table-columns.toml").read_text() == "mine"
    assert not Path("table.toml").exists()


@pytest.mark.parametrize("kind", ["text", "jsonl"])
def test_texts_of_each_site_make_a_language_model(kind: str) -> None:
    Path("wards").mkdir()
    text = Path("own.txt").read_text()
    Path("wards/east.txt").write_text(text)
    lines = "".join(f"{json.dumps({'text': line})}\n" for line in text.splitlines())
    Path(f"wards/west.{'txt' if kind == 'text' else 'jsonl'}").write_text(text if kind == "text" else lines)
    *prepared, _ = new("own", "--data", "wards")
    assert f"data-prep partition {kind} --data wards" in " ".join(prepared)
    prepare(*prepared)
    silos = json.loads(Path("shards/own/federation.json").read_text())["silos"]
    assert [silo["name"] for silo in silos if "test" in silo["examples"]] == ["east", "west"]
    job = read_toml(Path("own.toml"))
    assert (job["task"]["name"], job["model"]["name"]) == ("language", "gpt")
    mpifl.train({**job, "rounds": 1, "device": "cpu"}, out="run")
    Path("prompts.txt").write_text("the quick\n")
    asked = ("generate run --prompts prompts.txt --length 2", "predict run --texts own.txt --out p.csv")
    for done in (CliRunner().invoke(app, words.split(), catch_exceptions=False) for words in asked):
        assert done.exit_code == 0


def test_texts_in_the_lines_of_a_file_are_dealt_to_silos_or_have_theirs_by_a_field() -> None:
    Path("own.jsonl").write_text('{"prompt": "so", "completion": " it goes"}\n' * 20)
    cut, _ = new("own", "--data", "own.jsonl", "--silos", "2")
    assert "partition jsonl --data own.jsonl --out shards/own --scheme iid --silos 2 --test 0.2" in cut
    prepare(cut)
    validate_job(read_job(Path("own.toml"), ()), "own.toml", wings_of)
    lines = [json.dumps({"text": "so it goes", "ward": ward}) for ward in ("east", "west") * 20]
    Path("wards.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"wards.jsonl: line 1: site, the silo, is null; name it"):
        new("wards", "--data", "wards.jsonl", "--silos", "site")
    cut, _ = new("wards", "--data", "wards.jsonl", "--silos", "ward")
    prepare(cut)
    silos = json.loads(Path("shards/wards/federation.json").read_text())["silos"]
    assert [(silo["name"], silo["examples"]["test"]) for silo in silos] == [("east", 4), ("west", 4)]


@pytest.mark.parametrize("silos", [None, "parent", "2", "1"])
@pytest.mark.parametrize("deeper", [False, True])
def test_silos_of_texts_are_never_undone(silos: str | None, deeper: bool) -> None:
    for name in ("east", "west"):
        file = Path("wards", name, "note.txt") if deeper else Path("wards", f"{name}.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    cut, _ = new("own", "--data", "wards", *(["--silos", silos] if silos else []))
    assert "--scheme natural" in cut
    told = CliRunner().invoke(
        app, ["new", "own", "--force", "--data", "wards", *(["--silos", silos] * bool(silos))]
    )
    assert (
        "warning: wards: a folder or file of each silo is there; --silos 1 joins some" in told.output
    ) is (silos == "1")
    prepare(cut)
    made = json.loads(Path("shards/own/federation.json").read_text())["silos"]
    assert [silo["name"] for silo in made] == (["east", "west"] if silos != "1" else ["silo 0"])


def test_many_images_have_validation_rows_that_end_the_training() -> None:
    image = pytest.importorskip("PIL.Image")
    for name, at in itertools.product(("cat", "dog"), range(60)):
        Path("pictures", name).mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((9, 8, 3), at, np.uint8)).save(f"pictures/{name}/{at}.png")
    cut, _ = new("own", "--data", "pictures", "--silos", "2")
    assert "--test 0.2 --valid 0.1" in cut
    prepare(cut)
    assert read_toml(Path("own.toml"))["evaluate"] == {"split": "valid", "patience": 10}
    validate_job(read_job(Path("own.toml"), ()), "own.toml", wings_of)


@pytest.mark.parametrize("kind", ["images", "segmentation"])
def test_a_folder_of_each_site_is_a_silo(kind: str) -> None:
    (pictures if kind == "images" else scans)()
    for folder in ("pictures", "scans", "masks"):
        if Path(folder).exists():
            shutil.copytree(folder, f"{'wards' if folder != 'masks' else 'drawn'}/east")
            shutil.copytree(folder, f"{'wards' if folder != 'masks' else 'drawn'}/west")
    more = ["--kind", "segmentation", "--label", "drawn"] if kind == "segmentation" else []
    *prepared, _ = new("own", "--data", "wards", *more)
    prepare(*prepared)
    validate_job(read_job(Path("own.toml"), ()), "own.toml", wings_of)
    silos = json.loads(Path("shards/own/federation.json").read_text())["silos"]
    assert [silo["name"] for silo in silos] == ["east", "west"]
    assert all("test" in silo["examples"] for silo in silos)


@pytest.mark.parametrize("layout", ["deeper", "names", "patients"])
def test_slices_of_a_patient_are_kept_together(layout: str) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, site, patient, at in itertools.product(("scans", "masks"), "ab", range(5), "01"):
        of = {
            "deeper": f"{site}/p{patient}/",
            "names": f"{site}/p{patient}_",
            "patients": f"{site}{patient}/",
        }
        file = Path(part, f"{of[layout]}s{at}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.eye(12, dtype=np.uint8)).save(file)
    words = ["own", "--data", "scans", "--label", "masks", *(["--silos", "2"] * (layout == "patients"))]
    told = CliRunner().invoke(app, ["new", *words, "--force"], catch_exceptions=False)
    assert told.exit_code == 0
    cut, _ = (line.strip() for line in told.stdout.splitlines() if line.startswith("  "))
    assert ("--group '(.+)_'" if layout == "names" else "--group parent") in cut
    assert ("--silo parent" in cut) == (layout != "patients")
    assert "leave out --group" in told.stdout
    prepare(cut)
    silos = json.loads(Path("shards/own/federation.json").read_text())["silos"]
    assert [sum(silo["groups"].values()) for silo in silos] == [5, 5]


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(
    ("image_at", "mask_at", "images", "masks"),
    [
        ("all/{site}/img/{n}.png", "all/{site}/seg/{n}.png", "all", "all"),
        ("all/{site}/{n}.png", "all/{site}/{n}_mask.png", "all", "all"),
        ("all/{site}/{n}.png", "all/{site}/masks/{n}.png", "all", "all"),
        ("all/images/{site}/{n}.png", "all/masks/{site}/{n}.png", "all/images", "all/masks"),
        ("all/{site}{n}.png", "all/{site}{n}_seg.png", "all", "all"),
        ("all/scans/{site}{n}.png", "all/labels/{site}{n}.png", "all/scans", "all/labels"),
        ("all/scans/{site}{n}.png", "all/lesion/{site}{n}.png", "all/scans", "all/lesion"),
    ],
)
def test_images_and_masks_are_seen_by_their_names(image_at, mask_at, images, masks, labelled) -> None:
    image = pytest.importorskip("PIL.Image")
    for site, n, (form, level) in itertools.product("ab", range(40), ((image_at, 40), (mask_at, 255))):
        path = Path(form.format(site=site, n=n))
        path.parent.mkdir(parents=True, exist_ok=True)
        scan = np.arange(144, dtype=np.uint8).reshape(12, 12)
        image.fromarray(scan if level == 40 else np.eye(12, dtype=np.uint8) * level).save(path)
    by_silo = "{site}/" in image_at
    words = ["--data", "all", *(["--label", "all"] * labelled), *(["--silos", "2"] * (not by_silo))]
    cut, _ = new("own", *words)
    assert f"--data {images} --masks {masks} " in cut
    assert "--keep id" in cut
    assert ("--silo parent" in cut, "--group" in cut) == (by_silo, False)
    prepare(cut)
    validate_job(read_job(Path("own.toml"), ()), "own.toml", wings_of)
    made = json.loads(Path("shards/own/federation.json").read_text())
    assert [one["name"] for one in made["silos"]] == (["a", "b"] if by_silo else ["silo 0", "silo 1"])
    assert [sum(one["examples"].values()) for one in made["silos"]] == [40, 40]
    assert (made["classes"], made["features"]["shape"]) == (2, [1, 12, 12])


@pytest.mark.parametrize(
    ("image_at", "mask_at", "read", "more"),
    [
        ("{s}/K0{n}.nii.gz", "{s}/K0{n}_seg.nii.gz", "--data all --masks all", "--silo parent"),
        ("{s}/img/K0{n}.nii", "{s}/seg/K0{n}.nii", "--data all --masks all", "--silo parent"),
        ("imagesTr/{s}0{n}_0000.nii.gz", "labelsTr/{s}0{n}.nii.gz", "all/imagesTr --masks all/labelsTr", ""),
        ("{s}0{n}_left.nii.gz", "{s}0{n}_left_mask.nii.gz", "--data all --masks all", "--group '(.+)_'"),
    ],
)
def test_volumes_and_masks_are_seen_by_their_names(image_at, mask_at, read, more) -> None:
    nibabel = pytest.importorskip("nibabel")
    ends = ("left", "right") if "--group" in more else ("left",)
    for s, n, end, (form, most) in itertools.product("ab", range(5), ends, ((image_at, 900), (mask_at, 1))):
        path = Path("all", form.format(s=s, n=n).replace("left", end))
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(np.full((16, 16, 3), most, np.int16), np.eye(4)), path)
    if "imagesTr" in read:
        Path("all/imagesTs").mkdir()
        shutil.copy("all/imagesTr/a00_0000.nii.gz", "all/imagesTs/c00_0000.nii.gz")
        Path("all/dataset.json").write_text("{}")
    cut, _ = new("own", "--data", "all", *(["--silos", "2"] * ("--silo " not in more)))
    assert "data-prep partition nifti" in cut
    assert f"{read} " in cut
    assert more in cut
    assert ("--group" in cut, "--silo parent" in cut) == ("--group" in more, "--silo" in more)
    prepare(cut)
    validate_job(read_job(Path("own.toml"), ()), "own.toml", wings_of)
    made = json.loads(Path("shards/own/federation.json").read_text())
    assert [one["examples"] for one in made["silos"]] == [
        {"train": 12 * len(ends), "test": 3 * len(ends)}
    ] * 2
    assert (made["classes"], made["features"]["shape"]) == (2, [1, 16, 16])
    mpifl.train({**read_toml(Path("own.toml")), "rounds": 1, "device": "cpu"}, out="run")
    asked = "predict run --data shards/own --split test --out p.csv"
    assert CliRunner().invoke(app, asked.split(), catch_exceptions=False).exit_code == 0
    assert ".nii" in Path("p.csv").read_text()


def test_a_file_that_is_there_is_kept_unless_forced() -> None:
    new()
    Path("digits.toml").write_text("mine")
    with pytest.raises(InputError, match=r"digits.toml: is there already; .*--force"):
        new()
    assert Path("digits.toml").read_text() == "mine"
    new("--force")
    assert read_toml(Path("digits.toml"))["name"] == "digits"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--kind", "tables"],
            r"--kind tables: no such kind; did you mean 'table'\? there are digits, table, regression",
        ),
        (["--kind", "table"], "--data: not given, and there is no terminal to ask"),
        (["--kind", "table", "--data", "own.csv"], "--label: not given, and there is no terminal to ask"),
        (["--data", "own.csv"], "--label: not given, and there is no terminal to ask"),
        (["--kind", "digits", "--data", "own.csv"], "--data: --kind digits has no use for it"),
        (["--data", "nowhere.csv", "--label", "ill"], "--data nowhere.csv: is not there"),
        (["--data", "own.csv", "--label", "il"], "own.csv: has no column 'il'; did you mean 'ill'"),
        (
            ["--data", "own.csv", "--kind", "regression", "--label", "ward", "--silos", "2"],
            r"own.csv: line 2: ward is 'a', not a finite number",
        ),
        (
            ["--data", "own.csv", "--label", "ill", "--encoding", "utf8x", "--silos", "2"],
            "--encoding: 'utf8x' is not a known",
        ),
        (
            ["--data", "own.csv", "--data", "own.txt", "--kind", "table", "--label", "ill", "--silos", "2"],
            "--silos 2: each of 2 tables is a silo; leave it out",
        ),
        (
            ["--data", "own.txt", "--data", "own.txt", "--kind", "text"],
            "own.txt and own.txt given, and --kind text takes one; put a folder or file of each site",
        ),
        (["--data", "empty", "--kind", "images"], "--data empty: has no files that end in .png, .jpg"),
        (["--data", "empty", "--kind", "text"], "--data empty: has no files that end in .txt"),
        (["--data", "odd.jsonl", "--silos", "2"], "odd.jsonl: line 1: has no text; a line is"),
        (["--silos", "ward"], "--silos ward: is not a number of silos"),
        (["--silos", "parent"], "--silos parent: is not a number of silos"),
        (
            ["--data", "own.txt", "--silos", "parent"],
            "own.txt: has no folder for each silo",
        ),
        (["--data", "words", "--silos", "3"], "--silos 3: words has a folder or file for each of 2 silos"),
        (["--kind", "segmentation", "--data", "flat"], "--label: not given, .*; Where are the masks"),
        (["--algorithm", "fedprx"], r"digits.toml: \[algorithm\]"),
        (["../digits"], "is not a name of a file in this folder"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(arguments: list[str], line: str) -> None:
    for folder in ("empty", "flat"):
        Path(folder).mkdir()
    Path("flat/a.png").touch()
    for name in "ab":
        Path("words").mkdir(exist_ok=True)
        Path("words", f"{name}.txt").write_text("so it goes\n" * 40)
    Path("odd.jsonl").write_text('{"note": "so"}\n')
    before = sorted(Path.cwd().iterdir())
    with pytest.raises(InputError, match=line):
        new(*arguments)
    assert sorted(Path.cwd().iterdir()) == before


def test_a_terminal_is_asked() -> None:
    terminal, end = os.openpty()
    os.write(terminal, b"table\nown.csv\nill\n3\nfedprox\n")
    command = [*python(), "-m", "mpifl", "new", "asked"]
    done = subprocess.run(
        command, stdin=end, capture_output=True, text=True, timeout=180, env=rank_environment()
    )
    assert done.returncode == 0, done.stderr
    assert "a CSV table: the time until an event" in done.stderr
    assert "Which column is learned?" in done.stderr
    assert "--silos 3" in done.stdout
    assert read_toml(Path("asked.toml"))["algorithm"] == {"name": "fedprox"}
    for one in (terminal, end):
        os.close(one)
