"""Predictions that can be matched to patients: rows in the order in which they were given, with their ids."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner
from unit.builders import Alone

from data_prep.cli import main
from mpifl.cli import app
from mpifl.common.errors import InputError
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
