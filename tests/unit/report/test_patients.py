"""Predictions that can be matched to patients: rows in the order in which they were given, with their ids."""

import csv
import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner
from unit.builders import Alone

from data_prep.cli import main
from data_prep.tables import UnlabelledTable
from mpifl.cli import app
from mpifl.common.errors import InputError
from mpifl.data.shards import read_federation
from mpifl.report.judging import predict_run
from mpifl.training.loop import train
from mpifl.wings import wings_of

SPEC = """label = "ill"
id = "patient"
silo = "site"
standardise = "own"
classes = ["no", "yes"]
[features]
age = { kind = "numeric", missing = "drop" }
ward = "categorical"
bmi = { kind = "numeric", missing = "mean" }
"""
SITES = ("south", "north")


def command(*words):
    """Run a command line of data-prep, which must succeed."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert stop.value.code == 0


def patients(path, count=60, seed=0, names=("patient", "site", "age", "ward", "bmi", "ill")):
    """Write a table of patients, some without an age or a BMI; return its rows."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in range(count):
        age, bmi = rng.integers(20, 90), f"{rng.normal(27, 4):.1f}"
        given = {"patient": f"P{row:03}", "site": SITES[row % 2], "age": "" if row % 11 == 5 else str(age)}
        given |= {
            "ward": "abc"[row % 3],
            "bmi": "" if row % 13 == 7 else bmi,
            "ill": "no" if age < 55 else "yes",
        }
        rows.append(given)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def made_run(folder, *words, scheme=("natural",), source="csv", data="patients.csv", **model):
    """Cut data into shards, and train on them; return the run folder."""
    cut = (
        "partition",
        source,
        "--data",
        folder / data,
        "--out",
        folder / "shards",
        "--scheme",
        *scheme,
        *words,
    )
    command(*cut)
    job = {"name": "toy", "shards": str(folder / "shards"), "rounds": 2, "device": "cpu"}
    job |= {"model": model or {"name": "mlp", "hidden": [4]}, "algorithm": {"name": "fedavg"}}
    train(job, folder / "run", (), False, Alone(), wings_of=wings_of)
    return folder / "run"


@pytest.fixture
def trained(tmp_path):
    """Train on a table of patients, of whom some are held out; return the folder."""
    patients(tmp_path / "patients.csv")
    (tmp_path / "patients.toml").write_text(SPEC)
    made_run(tmp_path, "--test", 0.3)
    return tmp_path


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def asked(*words):
    """Run a command of mpifl, and return its exit code, what it printed, and its error as one line."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    said = str(result.exception) if isinstance(result.exception, InputError) else ""
    return result.exit_code, result.output, said


def test_predictions_of_shards_are_in_the_order_of_the_table_with_its_ids(trained):
    predict_run(trained / "run", trained / "shards", trained / "p.csv")
    found, rows = read(trained / "p.csv"), read(trained / "patients.csv")
    assert list(found[0]) == ["row", "id", "silo", "split", "y", "p_no", "p_yes"]
    assert [int(one["row"]) for one in found] == [row for row in range(60) if row % 11 != 5]
    for one in found:
        own = rows[int(one["row"])]
        assert (one["id"], one["silo"]) == (own["patient"], own["site"])
        assert one["y"] == str(int(own["ill"] == "yes"))
    predict_run(trained / "run", trained / "shards", trained / "test.csv", split="test")
    assert [one for one in found if one["split"] == "test"] == read(trained / "test.csv")


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_every_form_of_table_has_the_same_order(trained, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    predict_run(trained / "run", trained / "shards", trained / "p.csv")
    predict_run(trained / "run", trained / "shards", trained / f"p.{ending}")
    if ending == "npz":
        other = dict(np.load(trained / "p.npz"))
    else:
        from pyarrow import parquet

        table = parquet.read_table(trained / "p.parquet")
        other = {name: table[name].to_numpy() for name in table.column_names}
    for number, one in enumerate(read(trained / "p.csv")):
        assert one["id"] == str(other["id"][number])
        assert float(one["p_yes"]) == pytest.approx(float(other["p_yes"][number]), rel=1e-6)
    assert not [path.name for path in trained.iterdir() if path.name.startswith(".")]


def test_sites_that_number_their_own_rows_follow_each_other(tmp_path):
    spec = SPEC.replace('standardise = "own"\n', "").replace(
        '"categorical"', '{ kind = "categorical", levels = ["a", "b", "c"] }'
    )
    (tmp_path / "patients.toml").write_text(spec.replace('bmi = { kind = "numeric", missing = "mean" }', ""))
    command("spec", tmp_path / "agreed.json", "--table", tmp_path / "patients.toml")
    for silo in (0, 1):
        rows = patients(tmp_path / f"{silo}.csv", 20 + silo, seed=silo)
        words = "import", "csv", "--data", tmp_path / f"{silo}.csv", "--spec", tmp_path / "agreed.json"
        words = *words, "--silo", silo, "--test", 0.3, "--out", tmp_path / "shards"
        command(*words, "--option", f"spec={tmp_path / 'patients.toml'}")
    command("assemble", tmp_path / "shards")
    job = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "device": "cpu"}
    job |= {"model": {"name": "mlp", "hidden": [4]}, "algorithm": {"name": "fedavg"}}
    train(job, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
    predict_run(tmp_path / "run", tmp_path / "shards", tmp_path / "p.csv")
    found = [(one["silo"], int(one["row"])) for one in read(tmp_path / "p.csv")]
    assert found == sorted(found)
    assert len(rows) == 21
    assert [row for silo, row in found if silo == "1"] == [row for row in range(21) if row % 11 != 5]


def probabilities(path):
    return [float(one["p_yes"]) for one in read(path)]


def test_a_table_that_was_never_cut_is_predicted_as_the_shards_of_its_rows(trained):
    run, rows = trained / "run", read(trained / "patients.csv")
    predict_run(run, trained / "shards", trained / "p.csv")
    (trained / "shards").rename(trained / "away")  # the run alone is enough
    new = [row for row in rows if row["age"]][::-1]
    with (trained / "new.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["extra", "bmi", "ward", "age", "patient"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "extra": "1"} for row in new)
    code, printed, said = asked("predict", run, trained / "new.csv", "--out", trained / "new_p.csv")
    assert (code, said) == (0, "")
    assert "new.csv: columns that the model does not take are not read: extra" in printed
    found = read(trained / "new_p.csv")
    assert list(found[0]) == ["row", "id", "p_no", "p_yes"]
    assert [one["row"] for one in found] == [str(row) for row in range(len(new))]
    assert [one["id"] for one in found] == [row["patient"] for row in new]
    np.testing.assert_allclose(
        probabilities(trained / "new_p.csv")[::-1], probabilities(trained / "p.csv"), rtol=1e-6
    )


NEW = "patient,age,ward,bmi\nx,40,a,\ny,50,{},30\n"
WRONG = {
    "a column that is missing": ("age,ward\n40,a\n", "new.csv: column 'bmi' of the spec is not there"),
    "an unknown category": (NEW.format("d"), "new.csv: line 3: ward is 'd'; its levels are a, b, c"),
    "a category that is missing": (NEW.format(""), "new.csv: line 3: ward is missing, and the model"),
    "no number": ("age,ward,bmi\nold,a,3\n", "new.csv: line 2: age is 'old', not a finite number"),
    "a row that was left out in training": ("age,ward,bmi\n4,a,3\n,a,3\n", "new.csv: line 3: age is missing"),
    "no rows": ("age,ward,bmi\n", "new.csv: has no examples"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_rows_that_cannot_be_encoded_are_one_line_that_names_them(trained, wrong):
    text, wanted = WRONG[wrong]
    (trained / "new.csv").write_text(text)
    code, _, said = asked("predict", trained / "run", trained / "new.csv", "--out", trained / "p.csv")
    assert code
    assert wanted in said
    assert not (trained / "p.csv").exists()


def test_a_gap_that_the_spec_fills_is_filled_and_ids_need_not_be_there(trained):
    (trained / "new.csv").write_text("age,ward,bmi\n40,a,\n40,a,27\n")
    code, printed, _ = asked("predict", trained / "run", trained / "new.csv", "--out", trained / "p.csv")
    assert code == 0
    assert "new.csv: the id column 'patient' is not there, so the predictions have no ids; " in printed
    filled = "1 of 2 rows lack values, which are filled in as in the training: bmi 1"
    assert f"warning: {trained / 'new.csv'}: {filled}\n" in printed
    assert "no known value" not in printed
    before = (trained / "new.csv").read_bytes()
    code, _, said = asked("predict", trained / "run", trained / "new.csv", "--out", trained / "new.csv")
    assert code
    assert f"--out {trained / 'new.csv'}: is read, and would be overwritten; name another file" in said
    assert (trained / "new.csv").read_bytes() == before
    assert [list(one) for one in read(trained / "p.csv")] == [["row", "p_no", "p_yes"]] * 2


ASKED = {
    "nothing": ([], "nothing to predict is given"),
    "two": (["new.csv", "--data", "shards"], "TABLE and --data given"),
    "a split": (["new.csv", "--split", "test"], "--split test: is for shards"),
    "a shard": (["silo_0000.h5"], "silo_0000.h5: is not a table; name shards by --data"),
    "images": (
        ["--images", "folder"],
        "was trained on a table of a csv or parquet source; folder is images or NIfTI volumes",
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_what_is_predicted_is_said_once(trained, what):
    words, wanted = ASKED[what]
    code, _, said = asked("predict", trained / "run", *words, "--out", trained / "p.csv")
    assert code
    assert wanted in said


def test_a_run_whose_shards_say_no_encoding_tells_what_would_do(tmp_path):
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(0).random((40, 3)), y=np.arange(40) % 2)
    run = made_run(tmp_path, "--silos", 2, scheme=("iid",), source="npz", data="in.npz")
    (tmp_path / "new.csv").write_text("a,b,c\n1,2,3\n")
    code, _, said = asked("predict", run, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert code
    assert "does not say how its examples became numbers" in said
    assert f"say: mpifl predict {run} FILE.npz; or cut them by data-prep, and name shards by --data" in said


@pytest.fixture
def other(trained):
    """Cut other patients by their own spec, which gives other numbers; return the folder."""
    patients(trained / "late.csv", 30, seed=7)
    (trained / "late.toml").write_text(SPEC)
    words = "--silos", 1, "--test", 0.5, "--option", f"spec={trained / 'late.toml'}"
    command(
        "partition",
        "csv",
        "--data",
        trained / "late.csv",
        "--out",
        trained / "late",
        "--scheme",
        "iid",
        *words,
    )
    return trained / "late"


def test_shards_that_another_spec_has_cut_are_refused_unless_forced(trained, other):
    words = "predict", trained / "run", "--data", other, "--out", trained / "p.csv"
    code, _, said = asked(*words)
    assert code
    assert "late: was cut by another spec than the training: age has deviation" in said
    assert "or add --force" in said
    code, printed, _ = asked(*words, "--force")
    assert code == 0
    assert "warning:" in printed
    assert "by another spec" in printed
    code, _, said = asked("evaluate", trained / "run", "--data", other)
    assert code
    assert "by another spec" in said


def test_shards_by_the_fitted_spec_are_taken_and_a_later_site_is_scored_alone(trained, other):
    words = "--spec", trained / "patients.toml", "--out", trained / "fitted.toml"
    command("fit", trained / "patients.csv", *words)
    words = "--scheme", "iid", "--silos", 1, "--test", 0.5, "--option", f"spec={trained / 'fitted.toml'}"
    command("partition", "csv", "--data", trained / "late.csv", "--out", trained / "new", *words)
    code, _, said = asked("predict", trained / "run", "--data", trained / "new", "--out", trained / "p.csv")
    assert (code, said) == (0, "")
    found = [one for one in read(trained / "p.csv") if one["split"] == "test"]
    right = sum((float(one["p_yes"]) > 0.5) == (one["y"] == "1") for one in found)
    file = trained / "scores.json"
    for data in ("new", "new/silo_0000.h5"):
        assert asked("evaluate", trained / "run", "--data", trained / data, "--json", file)[0] == 0
        (score,) = json.loads(file.read_text())["silos"].values()
        assert (score["split"], score["examples"]) == ("test", len(found))
        assert score["accuracy"] == pytest.approx(right / len(found))
    assert (
        asked("evaluate", trained / "run", "--data", trained / "new", "--split", "train", "--json", file)[0]
        == 0
    )
    (score,) = json.loads(file.read_text())["silos"].values()
    assert score["split"] == "train"


def test_classes_of_other_numbers_are_not_scored(trained):
    spec = read_federation(trained / "shards")
    shutil.copytree(trained / "shards", trained / "others")
    spec.model_copy(update={"class_names": ["yes", "no"]}).write(trained / "others")
    code, _, said = asked("evaluate", trained / "run", "--data", trained / "others")
    assert code
    assert "class 0 is 'yes', the model has learned 'no'" in said


def test_a_json_of_another_program_beside_a_file_describes_no_shard(trained):
    (trained / "patients.json").write_text('{"runs": []}')
    words = "--data", trained / "patients.csv", "--out", trained / "p.csv"
    code, _, said = asked("predict", trained / "run", *words)
    assert code
    assert "patients.csv: neither federation.json nor patients.json beside it says what it holds" in said
    assert "a table is predicted by mpifl predict RUN TABLE" in said


def test_the_run_keeps_how_examples_became_numbers_and_nothing_of_a_silo(trained):
    kept = json.loads((trained / "run" / "environment.json").read_text())["federation"]
    assert (kept["silos"], kept["scheme"], list(kept["source"])) == ([], {}, ["encoding"])
    assert "P00" not in json.dumps(kept)
    assert kept["source"]["encoding"] == read_federation(trained / "shards").source["encoding"]


def pictures(folder, count, size=(6, 5), first=0):
    """Write grey images, whose names are not in the order of their classes."""
    image = pytest.importorskip("PIL.Image")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        pixels = np.random.default_rng(number).integers(0, 256, size[::-1]).astype(np.uint8)
        image.fromarray(pixels).save(folder / f"{(number * 7) % 31:02}.png")


@pytest.fixture
def drawn(tmp_path):
    for name, first in (("cat", 0), ("dog", 12)):
        pictures(tmp_path / "in" / name, 12, first=first)
    made_run(
        tmp_path,
        "--silos",
        2,
        "--keep",
        "id",
        scheme=("iid",),
        source="images",
        data="in",
        name="mlp",
        hidden=[4],
    )
    return tmp_path


def test_a_folder_of_images_is_predicted_by_the_names_of_its_files(drawn):
    predict_run(drawn / "run", drawn / "shards", drawn / "p.csv")
    (drawn / "in" / "notes.txt").write_text("no image")
    words = "predict", drawn / "run", "--images", drawn / "in", "--out", drawn / "new.csv"
    code, printed, said = asked(*words)
    assert (code, said) == (0, "")
    assert "not read, as they are not images: notes.txt" in printed
    before, found = read(drawn / "p.csv"), read(drawn / "new.csv")
    assert list(found[0]) == ["row", "id", "p_cat", "p_dog"]
    assert [one["id"] for one in found] == [one["id"] for one in before]
    for one, other in zip(found, before, strict=True):
        assert float(one["p_dog"]) == pytest.approx(float(other["p_dog"]), rel=1e-5)


def test_a_folder_of_images_that_is_given_as_a_table_says_what_would_do(drawn):
    _, _, said = asked("predict", drawn / "run", drawn / "in", "--out", drawn / "new.csv")
    assert f"is a folder of images, not a table; name it by --images {drawn / 'in'}" in said


@pytest.mark.parametrize("words", [["predict", "--out", "p.csv", "new.csv"], ["evaluate"]])
def test_a_wrong_run_folder_says_what_would_do(tmp_path, words):
    command, *more = words
    for run, wanted in (
        (tmp_path / "none", "is not there"),
        (tmp_path, "is not a run: it has no job.toml"),
    ):
        _, _, said = asked(command, run, *more)
        assert said.startswith(f"{run}: {wanted}; name the folder of a run")


def test_images_of_another_kind_are_one_line_with_the_file(drawn):
    pictures(drawn / "new", 2)
    pictures(drawn / "new", 1, size=(5, 5), first=3)
    words = "predict", drawn / "run", "--out", drawn / "p.csv", "--images"
    assert "new/21.png: 5x5 pixels, the model learned from 6x5; resize it" in asked(*words, drawn / "new")[2]
    assert "none: is not there" in asked(*words, drawn / "none")[2]
    (drawn / "empty").mkdir()
    assert "has no images" in asked(*words, drawn / "empty")[2]
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((5, 6, 3), np.uint8)).save(drawn / "empty" / "a.png")
    assert "empty/a.png: is in colour, the model learned from grey" in asked(*words, drawn / "empty")[2]


def test_rows_of_which_nothing_is_known_are_named(tmp_path):
    filled = {"kind": "numeric", "missing": "mean", "mean": 50.0, "deviation": 10.0}
    ward = {"kind": "categorical", "levels": ["a", "b"], "missing": "level"}
    (tmp_path / "new.csv").write_text("age,bmi,ward\n,,\n40,,a\n,50,\n,,b\n" + ",,\n" * 6)
    stated = {"features": {"age": filled, "bmi": filled, "ward": ward}}
    told = UnlabelledTable("csv", tmp_path / "new.csv", stated)
    assert [line.partition("new.csv: ")[2] for line in told.told()] == [
        "10 of 10 rows lack values, which are filled in as in the training: age 9, bmi 9",
        "7 of 10 rows have no known value at all (line 2, line 6, line 7, line 8, line 9, ...): their "
        "predictions say nothing of them; leave these rows out",
    ]
