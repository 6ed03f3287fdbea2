"""What a model says of every example of some shards: as a table of each form, for each kind of task."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner
from unit.builders import CLASSES, FEATURES, Alone, write_folder
from unit.report.test_evaluate import MODEL, make_run

from mpifl import Run
from mpifl.cli import app
from mpifl.common.errors import InputError
from mpifl.data.features import Features
from mpifl.data.shards.federation_spec import FederationSpec, read_federation, version_of
from mpifl.data.shards.shards import open_shard
from mpifl.data.targets import Targets
from mpifl.report.judging import prediction_tables
from mpifl.report.judging.answers import check_flat
from mpifl.report.judging.predict import predict_run
from mpifl.run.job import read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.write_shard import write_shard

ENDINGS = ["parquet", "csv", "npz"]


def read(path):
    """Return the columns of a table."""
    if path.suffix == ".npz":
        return dict(np.load(path))
    if path.suffix == ".csv":
        with path.open() as file:
            first, *rows = csv.reader(file)
        return {name: np.array(column) for name, column in zip(first, zip(*rows, strict=True), strict=True)}
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def predicted(run, out, data=None, **more):
    predict_run(run, data or run.parent / "shards", out, **more)
    return read(out)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_example_has_its_probabilities(tmp_path, ending, capsys):
    run, _ = make_run(tmp_path, valid=5, evaluate={"batch_size": 8})
    found = predicted(run, tmp_path / f"predictions.{ending}")
    assert list(found) == ["silo", "split", "place", "y", "p_0", "p_1", "p_2"]
    spec, at = read_federation(tmp_path / "shards"), 0
    model = Run(run, read_job(run / "job.toml"), True).model().eval()
    for entry in spec.silos:
        for name, split in open_shard(tmp_path / "shards", entry, spec).splits.items():
            here = slice(at, at := at + len(split))
            assert set(found["silo"][here]) == {str(entry.silo)}
            assert set(found["split"][here]) == {name}
            assert [int(row) for row in found["place"][here]] == list(range(len(split)))
            assert [int(y) for y in found["y"][here]] == split.y.tolist()
            own = model(torch.from_numpy(split.x.copy())).softmax(1).detach().numpy()
            given = np.stack([found[f"p_{k}"][here].astype(float) for k in range(3)], 1)
            np.testing.assert_allclose(given, own, rtol=1e-6, atol=1e-7)
    assert at == len(found["place"]) == 60 + 3 * 12
    assert f"predictions: {tmp_path}/predictions.{ending}, 96 rows" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir() if "predictions" in path.name] == [
        f"predictions.{ending}"
    ]


def test_one_split_or_one_shard_can_be_asked(tmp_path):
    run, _ = make_run(tmp_path, valid=5, test=9)
    assert len(predicted(run, tmp_path / "a.npz", split="valid")["place"]) == 15
    one = predicted(run, tmp_path / "b.npz", tmp_path / "shards" / "silo_0001.h5", split="test")
    assert (set(one["silo"]), len(one["place"])) == ({"1"}, 7)
    assert len(predicted(run, tmp_path / "c.npz", tmp_path / "shards" / "test.h5")["place"]) == 9
    with pytest.raises(InputError, match="--split all: is not one of train, valid, test"):
        predicted(run, tmp_path / "d.npz", split="all")
    with pytest.raises(InputError, match="has no examples of a split 'public'"):
        predicted(run, tmp_path / "d.npz", split="public")
    assert not (tmp_path / "d.npz").exists()


def test_who_asks_for_the_servers_test_set_is_told_where_it_lies(tmp_path):
    run, _ = make_run(tmp_path, silos_test=0, test=9)
    with pytest.raises(InputError, match=r"split 'test'; the server's are predicted by --data .*/test\.h5$"):
        predicted(run, tmp_path / "d.npz", split="test")


def test_other_shards_of_the_same_features_are_predicted_where_the_runs_own_are_not(tmp_path):
    run, _ = make_run(tmp_path)
    write_folder(tmp_path / "elsewhere", (4,))
    both = [predicted(run, tmp_path / "a.npz", tmp_path / "elsewhere")]
    (tmp_path / "shards").rename(tmp_path / "moved")
    both.append(predicted(run, tmp_path / "b.npz", tmp_path / "elsewhere"))
    assert len(both[0]["place"]) == 4
    for name, column in both[0].items():
        assert np.array_equal(column, both[1][name])


def test_examples_of_another_shape_are_one_line_with_both_shapes(tmp_path):
    run, _ = make_run(tmp_path)
    write_folder(tmp_path / "wide", (4,), Features(shape=(2, 4), dtype="float32"))
    with pytest.raises(InputError, match=r"wide: features of shape \[2, 4\], the model of .*run takes \[4\]"):
        predicted(run, tmp_path / "a.npz", tmp_path / "wide")


def test_a_tables_columns_of_other_names_are_refused_with_what_helps(tmp_path):
    run, _ = make_run(tmp_path)
    spec = read_federation(tmp_path / "shards")
    spec.model_copy(update={"feature_names": ["age", "ward=a", "ward=b", "dose"]}).write(tmp_path / "shards")
    other = write_folder(tmp_path / "new", (4,))
    other.model_copy(update={"feature_names": ["age", "ward=b", "ward=c", "dose"]}).write(tmp_path / "new")
    line = "new: column 1 is 'ward=b', the model learned 'ward=a'; .* `data-prep fit`"
    with pytest.raises(InputError, match=line):
        predicted(run, tmp_path / "a.npz", tmp_path / "new")
    write_folder(tmp_path / "wide", (4,), Features(shape=(5,), dtype="float32"))
    with pytest.raises(InputError, match=r"run takes \[4\]; .* `data-prep fit`"):
        predicted(run, tmp_path / "a.npz", tmp_path / "wide")


def test_a_shard_that_nothing_describes_is_refused(tmp_path):
    run, _ = make_run(tmp_path)
    (tmp_path / "alone.h5").write_bytes((tmp_path / "shards" / "silo_0000.h5").read_bytes())
    with pytest.raises(InputError, match=r"alone\.h5: neither federation\.json nor alone\.json beside it"):
        predicted(run, tmp_path / "a.npz", tmp_path / "alone.h5")


def test_a_sites_own_shard_is_predicted_by_the_entry_beside_it(tmp_path):
    run, _ = make_run(tmp_path)
    (tmp_path / "site").mkdir()
    spec, name = read_federation(tmp_path / "shards"), "silo_0002.h5"
    (tmp_path / "shards" / name).rename(tmp_path / "site" / name)
    own = spec.model_copy(update={"silos": [spec.silos[2]]})
    (tmp_path / "site" / "silo_0002.json").write_text(own.model_dump_json())
    assert len(predicted(run, tmp_path / "a.npz", tmp_path / "site" / name)["place"]) == 37


def places(shape, classes):
    """A model of a class for each of 5 x 2 places."""
    return nn.Sequential(nn.Linear(shape[0], classes * 10), nn.Unflatten(1, (classes, 5, 2)))


NAMED = Targets(dtype="float32", shape=(2,), names=["weight", "height"])
LABELS = Targets(dtype="uint8", shape=(3,), names=["cough", "fever", "rash"])
MASKS = Targets(dtype="uint8", shape=(5, 2))
KINDS = {
    "regression": (None, NAMED, None, ["y_weight", "y_height", "value_weight", "value_height"]),
    "survival": (None, Targets(dtype="float32", shape=(2,)), None, ["y_0", "y_1", "value_0"]),
    "multilabel": (None, LABELS, None, [f"{a}_{b}" for a in "yp" for b in LABELS.names]),
    "binary": (2, None, ["well", "ill"], ["y", "p_ill"]),
    "classification": (3, None, ["ash", "elm", "oak"], ["y", "p_ash", "p_elm", "p_oak"]),
    "segmentation": (CLASSES, MASKS, None, ["y", "p"]),
}


@pytest.fixture
def run_of_kind(tmp_path):
    def act(kind, **task):
        classes, targets, names, _ = KINDS[kind]
        made = {"features": FEATURES, "classes": classes, "targets": targets}
        draw = np.random.default_rng(0)
        y = draw.integers(0, classes or 2, (12, *(targets.shape if targets else ())))
        y = y.astype(targets.dtype if targets else "int64")
        arrays = {"train": (draw.normal(size=(12, 4)).astype("float32"), y)}
        (tmp_path / "shards").mkdir()
        entry = write_shard(tmp_path / "shards" / "silo_0000.h5", arrays, silo=0, name="north", **made)
        about = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}, "class_names": names}
        version = version_of(FEATURES, targets)
        FederationSpec(silos=[entry], format_version=version, **about, **made).write(tmp_path / "shards")
        model = {"name": f"{__name__}:places"} if kind == "segmentation" else MODEL
        job = {"name": "toy", "shards": str(tmp_path / "shards"), "rounds": 1, "model": model}
        train(job | {"task": {"name": kind, **task}}, tmp_path / "run", (), False, Alone(), wings_of=wings_of)
        return tmp_path / "run"

    return act


def test_values_learned_in_deviations_are_predicted_in_their_own_unit(run_of_kind, tmp_path):
    mean, deviation = [100.0, 1.0], [10.0, 0.5]
    run = run_of_kind("regression", mean=mean, deviation=deviation)
    found = predicted(run, tmp_path / "a.npz")
    model, spec = Run.of(run).model().eval(), read_federation(tmp_path / "shards")
    x = torch.from_numpy(open_shard(tmp_path / "shards", spec.silos[0], spec).splits["train"].x.copy())
    said = np.array(mean) + np.array(deviation) * model(x).detach().numpy()
    np.testing.assert_allclose(found["value_weight"], said[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found["value_height"], said[:, 1], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_named_after_classes_labels_and_values(run_of_kind, kind, tmp_path):
    run = run_of_kind(kind)
    found = predicted(run, tmp_path / "a.npz", trusted=[f"{__name__}:places"])
    assert list(found) == ["silo", "split", "place", *KINDS[kind][-1]]
    assert set(found["silo"]) == {"north"}
    if kind == "segmentation":
        assert (found["y"].shape, found["p"].shape) == ((12, 5, 2), (12, CLASSES, 5, 2))
        np.testing.assert_allclose(found["p"].sum(1), 1, rtol=1e-6)


def test_a_table_has_the_scores_of_images_whose_masks_go_into_an_archive_alone(run_of_kind, tmp_path):
    run = run_of_kind("segmentation")
    trusted = [f"{__name__}:places"]
    whole = predicted(run, tmp_path / "a.npz", trusted=trusted)
    for ending in ("csv", "parquet"):
        found = predicted(run, tmp_path / f"a.{ending}", trusted=trusted)
        assert list(found) == ["silo", "split", "place", "dice"]
        for dice, y, p in zip(found["dice"], whole["y"], whole["p"], strict=True):
            answers, classes = p.argmax(0), {*y[y > 0].tolist()}
            each = [
                2 * ((y == k) & (answers == k)).sum() / ((y == k).sum() + (answers == k).sum())
                for k in classes
            ]
            assert float(dice) == pytest.approx(np.mean(each)) if each else np.isnan(float(dice))
    said = r"--out b.csv: 'p' has shape \[3, 5, 2\] in each row, which no table takes; .*npz"
    with pytest.raises(InputError, match=said):  # as of new images without masks
        check_flat(Path("b.csv"), {"p": whole["p"]})


def test_files_that_cannot_be_written_are_one_line(tmp_path, monkeypatch):
    run, _ = make_run(tmp_path)
    with pytest.raises(InputError, match=r"ends in '\.xls'; it must be \.parquet, \.csv, \.npz"):
        predicted(run, tmp_path / "a.xls")
    for ending in ENDINGS:
        with pytest.raises(InputError, match=r"nowhere.*: cannot be written \(No such file"):
            predicted(run, tmp_path / "nowhere" / f"a.{ending}")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"Parquet needs pyarrow; pip install 'mpifl\[tables\]', or use"):
        predicted(run, tmp_path / "a.parquet")


def test_an_error_amid_rows_leaves_an_older_file_as_it_was(tmp_path):
    out = tmp_path / "a.csv"
    out.write_text("old")

    def cut():
        with prediction_tables.written(out) as append:
            append({"row": np.arange(3)})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cut()
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_the_command_predicts(tmp_path):
    run, _ = make_run(tmp_path)
    given = ["predict", str(run), "--data", str(tmp_path / "shards"), "--out", str(tmp_path / "a.csv")]
    done = CliRunner().invoke(app, [*given, "--split", "test"])
    assert done.exit_code == 0, done.exception
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 1 + 21
