"""Columns standardised by all rows, or by those that train alone, whatever is held out of them later."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from data_prep.cli import app
from data_prep.sources import standardising
from data_prep.sources.new_arrays import unlabelled_arrays
from data_prep.tables import Encoder, TableSpec
from mpifl.common import InputError
from mpifl.data.shards import encoding_of, open_shard, provenance_of, read_federation

HELD = "--silos", "3", "--test", "0.3", "--valid", "0.1"


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def arrays(folder: Path, kind: str = "npz") -> Path:
    """Write 60 rows of three columns, with a test set of the server's."""
    draw = np.random.default_rng(0)
    x = draw.normal([5, -300, 7], [1, 40, 0], (60, 3)).astype("f4")
    told = {"x": x, "y": np.arange(60) % 2, "x_test": x[:5] + 1, "y_test": np.arange(5) % 2}
    path = folder / f"own.{kind}"
    if kind == "npz":
        np.savez(path, **told)
    else:
        with h5py.File(path, "w") as file:
            for name, array in told.items():
                file.create_dataset(name, data=array, chunks=(5, *array.shape[1:]))
    return path


def split(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features in a split of all silos, and the numbers of their rows."""
    spec = read_federation(folder)
    x = [np.asarray(open_shard(folder, entry, spec)[name].x) for entry in spec.silos]
    rows = [provenance_of(folder, entry)[name].rows for entry in spec.silos]
    return np.concatenate(x), np.concatenate(rows)


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
@pytest.mark.parametrize("way", ["own", "train"])
def test_arrays_are_standardised_by_the_rows_that_are_asked_for(
    tmp_path: Path, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = arrays(tmp_path, kind)
    words = "partition", kind, "--data", path, "--scheme", "iid", *HELD, "--standardise", way
    run(*words, "--out", tmp_path / "out", "--jobs", "1")
    monkeypatch.setattr(standardising, "PIECE", 100)
    run(*words, "--out", tmp_path / "pieces", "--jobs", "3")
    with np.load(arrays(tmp_path, "npz")) as stored:
        x, tested = stored["x"], stored["x_test"]
    (found, rows), (held, held_rows) = (split(tmp_path / "out", name) for name in ("train", "test"))
    known = x[rows if way == "train" else slice(None)].astype("f8")
    mean, deviation = known.mean(axis=0), np.where(known.std(axis=0) > 1e-6, known.std(axis=0), 1)
    spec = read_federation(tmp_path / "out")
    record = encoding_of(spec.source)
    assert (record["kind"], record["by"]) == ("arrays", way)
    told = [*record["columns"].values()]
    assert np.allclose(told, np.stack([mean, deviation], axis=1))
    server = np.asarray(open_shard(tmp_path / "out", spec.test, spec)["test"].x)
    for had, given in ((found, x[rows]), (held, x[held_rows]), (server, tested)):
        assert np.allclose(had, (given - mean) / deviation, atol=1e-5)
    assert np.allclose(split(tmp_path / "pieces", "train")[0], found, atol=1e-5)


def test_arrays_to_be_predicted_are_standardised_as_the_training_was(tmp_path: Path) -> None:
    path = arrays(tmp_path)
    words = "partition", "npz", "--data", path, "--scheme", "iid", *HELD, "--standardise", "train"
    run(*words, "--out", tmp_path / "out")
    spec = read_federation(tmp_path / "out")
    train, rows = split(tmp_path / "out", "train")
    new, told = unlabelled_arrays(path, spec.features, encoding_of(spec.source))
    assert np.array_equal(new[rows], train)
    assert told == []
    with np.load(path) as stored:
        other = stored["x"].astype("f4").copy()
    name, (mean, deviation) = next(iter(encoding_of(spec.source)["columns"].items()))
    other[:, 0] += 6 * deviation
    np.savez(tmp_path / "other.npz", x=other)
    _, (line,) = unlabelled_arrays(tmp_path / "other.npz", spec.features, encoding_of(spec.source))
    assert line.startswith(f"warning: {tmp_path / 'other.npz'}: far from the training: {name} has mean ")
    assert f"{mean:.4g} in the training" in line
    assert line.endswith("Another unit? Give x in that of the training")


TABLE = """
label = "ill"
missing = [""]
standardise = "train"
[features]
age = { kind = "numeric", missing = "mean" }
sex = "categorical"
fixed = { kind = "numeric", mean = 1.0, deviation = 2.0 }
"""


def table(folder: Path, spec: str = TABLE) -> Path:
    rows = [f"{'' if n % 9 == 0 else 20 + n * n % 50},{'fm'[n % 2]},{n},{n % 3 == 0}" for n in range(60)]
    (folder / "own.csv").write_text("\n".join(["age,sex,fixed,ill", *rows]) + "\n")
    (folder / "own.toml").write_text(spec)
    return folder / "own.csv"


def test_a_table_is_standardised_by_the_rows_that_train_and_new_rows_become_the_same(tmp_path: Path) -> None:
    path = table(tmp_path)
    run("partition", "csv", "--data", path, "--out", tmp_path / "out", "--scheme", "iid", *HELD)
    spec = read_federation(tmp_path / "out")
    assert spec.feature_names == ["age", "sex=f", "sex=m", "fixed"]
    age = np.array([np.nan if n % 9 == 0 else 20 + n * n % 50 for n in range(60)])
    (train, rows), (held, held_rows) = (split(tmp_path / "out", name) for name in ("train", "test"))
    mean, deviation = np.nanmean(age[rows]), np.nanstd(age[rows])
    for found, at in ((train, rows), (held, held_rows)):
        assert np.allclose(found[:, 0], np.nan_to_num((age[at] - mean) / deviation), atol=1e-6)
        assert np.allclose(found[:, 3], (at - 1) / 2)
    stated = TableSpec.model_validate(encoding_of(spec.source)["spec"])
    again = next(Encoder("csv", path, stated).read(path))
    assert np.array_equal(again.x[rows], train)
    assert np.array_equal(again.x[held_rows], held)
    run("partition", "csv", "--data", path, "--out", tmp_path / "v", "--scheme", "vertical", "--silos", "2")


REFUSED = {
    "another word": (["partition", "npz", "--standardise", "all"], "all given; it must be own, train"),
    "at a site": (
        ["import", "npz", "--spec", "agreed.json", "--silo", "0", "--standardise", "own"],
        "own.npz: standardised by its own rows, so that sites differ; tables share statistics",
    ),
    "images": (
        ["partition", "npz", "--data", "images.npz", "--standardise", "train"],
        r"images.npz: x has float32 \[2, 2\] an example, and only columns of floats",
    ),
    "a fitted spec": (["fit", "own.csv"], "own.csv: standardise = 'train' is for partition"),
    "several sites": (["sites", "own.csv", "two.csv", "--spec", "own.toml"], "of all their rows; say 'own'"),
    "one of both": (
        ["partition", "csv", "--data", "half.csv"],
        "'fixed' has one of mean and deviation; 'train' takes both, or none",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_one_line_and_nothing_is_left(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays(tmp_path)
    (tmp_path / "two.csv").write_text(table(tmp_path).read_text())
    (tmp_path / "half.csv").write_text((tmp_path / "two.csv").read_text())
    (tmp_path / "half.toml").write_text(TABLE.replace(", deviation = 2.0", ""))
    np.savez("images.npz", x=np.zeros((6, 2, 2), "f4"), y=np.arange(6) % 2)
    run("spec", "agreed.json", "--name", "n", "--shape", "3", "--classes", "2")
    words, said = REFUSED[what]
    words = [*words, *(["--data", "own.npz"] if "npz" in words and "--data" not in words else [])]
    words += ["--scheme", "iid", "--silos", "2"] if words[0] == "partition" else []
    with pytest.raises(InputError, match=said):
        run(*words, "--out", "out")
    assert not Path("out").exists()
