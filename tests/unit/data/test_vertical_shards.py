"""Vertical shards: targets of any kind at one silo, the tag of an alignment, and files that mean harm."""

import hashlib
import json
import re

import h5py
import numpy as np
import pytest
from unit.builders import ALIGNMENT, CLASSES, write_folder, write_vertical_folder

from mpifl.common import ShardError
from mpifl.data import Targets
from mpifl.data.shards.column_shards import VerticalSplit, open_vertical, write_vertical
from mpifl.data.shards.vertical_spec import VerticalSpec, read_vertical
from mpifl.learning.tasks import TASKS

ROWS = {"train": 6, "test": 3}
DRAW = np.random.default_rng(0)
TIMES, EVENTS = DRAW.random(9).astype("f4"), np.arange(9) % 2
KINDS = {
    "classification": (np.arange(9) % 3, 3, None, 3),
    "binary": (np.arange(9) % 2, 2, None, 1),
    "multilabel": (DRAW.random((9, 4)) < 0.5, None, Targets(dtype="bool", shape=(4,)), 4),
    "regression": (DRAW.random((9, 2)), None, Targets(dtype="float64", shape=(2,)), 2),
    "survival": (np.stack([TIMES, EVENTS], 1).astype("f4"), None, Targets(dtype="float32", shape=(2,)), 1),
    "named": (
        {"time": TIMES, "event": EVENTS.astype("u1")},
        None,
        {"time": Targets(dtype="float32", shape=()), "event": Targets(dtype="uint8", shape=(), classes=2)},
        1,
    ),
}


def cut(y, at):
    return {name: one[at] for name, one in y.items()} if isinstance(y, dict) else y[at]


@pytest.mark.parametrize("kind", KINDS)
def test_the_holder_has_targets_of_any_kind_and_tasks_read_them(tmp_path, kind):
    y, classes, targets, width = KINDS[kind]
    given = {"train": cut(y, slice(0, 6)), "test": cut(y, slice(6, 9))}
    write_vertical_folder(tmp_path, ROWS, y=given, holder=1, classes=classes, targets=targets)
    spec = read_vertical(tmp_path)
    assert (spec.holder, spec.rows) == (1, ROWS)
    for entry in spec.silos:
        for name, split in open_vertical(tmp_path, entry, spec).items():
            assert len(split) == ROWS[name]
            if entry.silo != 1:
                assert split.y is None
                continue
            assert split.y_dtype == spec.y_dtype
            found, wanted = (one if isinstance(one, dict) else {"": one} for one in (split.y, given[name]))
            assert all(np.array_equal(found[key], wanted[key]) for key in wanted)
            assert found.keys() == wanted.keys()
    task = TASKS["survival" if kind == "named" else kind]().for_federation(spec)
    assert task.width(spec) == width


def test_all_silos_have_the_same_rows_and_only_their_columns(tmp_path):
    spec = write_vertical_folder(tmp_path, ROWS)
    assert spec == read_vertical(tmp_path)
    opened = [open_vertical(tmp_path, entry, spec) for entry in spec.silos]
    for split in ROWS:
        assert [one[split].x.shape[1] for one in opened] == [2, 1, 3]
        assert all(np.array_equal(one[split].id, opened[0][split].id) for one in opened)
        assert isinstance(opened[0][split].x, np.memmap)
    assert sum(spec.silos[0].labels) == 6


def say(folder, change):
    """Change what `federation.json` says."""
    path = folder / "federation.json"
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


def of_silo(silo, /, **changes):
    return lambda said: said["silos"][silo].update(changes)


def without_tags(said):
    for entry in said["silos"]:
        del entry["alignment"]


SAID = {
    "no tags": (without_tags, "made before shards carried the tag of their alignment; partition or align"),
    "a short tag": (of_silo(1, alignment="0011"), "silos.1.alignment: String should match pattern"),
    "other rows": (
        of_silo(2, examples={"train": 5, "test": 3}),
        "silo 2 has 3 test, 5 train, silo 0 has 3 test, 6 train; all have the same rows",
    ),
    "no training rows": (of_silo(0, examples={"test": 3}), "silo 0 has no training examples"),
    "a number twice": (of_silo(1, silo=0), "silos must be numbered 0, 1, 2, ... in order"),
    "a column more": (of_silo(2, columns=[0, 1, 2, 3]), "4 columns, and features of shape [3]"),
    "a column beyond": (
        of_silo(2, columns=[3, 4, 6]),
        "silo 2 has column 6; an example has the columns 0 to",
    ),
    "a link elsewhere": (of_silo(1, file="../silo_0001.h5"), "silos.1.file: a shard is a file of the folder"),
    "other counts": (of_silo(0, labels=[3, 3]), "labels: 2 label counts for 3 classes"),
    "values without targets": (lambda said: said.update(classes=None), "neither classes nor targets"),
    "ragged columns": (
        lambda said: said["silos"][0]["features"].update(ragged=True),
        "silos.0: ragged features; those of vertical shards have one length",
    ),
    "ragged targets": (
        lambda said: said.update(
            targets={"dtype": "float32", "shape": [2], "ragged": True}, classes=None, format_version=3
        ),
        "ragged arrays; those of vertical shards have one length",
    ),
    "a later format": (lambda said: said.update(format_version=9), "format version 9, this program reads"),
    "another layout": (lambda said: said.update(layout="diagonal"), "layout: Input should be 'vertical'"),
    "no silos": (lambda said: said.update(silos=[]), "silos: List should have at least 1 item"),
    "no table": (lambda said: said.update(silos=[1]), "silos.0: Input should be"),
}


@pytest.mark.parametrize("kind", SAID)
def test_a_description_that_does_not_hold_is_one_line(tmp_path, kind):
    write_vertical_folder(tmp_path, ROWS)
    change, reason = SAID[kind]
    say(tmp_path, change)
    with pytest.raises(ShardError, match=re.escape(reason)) as refused:
        read_vertical(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / 'federation.json'}: ")
    assert str(refused.value).isprintable()


def test_a_horizontal_folder_and_none_at_all_are_told(tmp_path):
    with pytest.raises(ShardError, match=r"federation.json: is not there; make the shards with .* vertical"):
        read_vertical(tmp_path)
    write_folder(tmp_path, [3, 3])
    with pytest.raises(ShardError, match=r"federation.json: its silos have examples, not columns; make"):
        read_vertical(tmp_path)


@pytest.mark.parametrize(
    ("holders", "reason"), [((), "no silo holds the targets"), ((0, 2), "silos 0, 2 hold the targets")]
)
def test_one_silo_holds_the_targets(tmp_path, holders, reason):
    spec = write_vertical_folder(tmp_path, ROWS)
    labels = spec.silos[0].labels
    changed = [
        one.model_copy(update={"labels": labels if one.silo in holders else None}) for one in spec.silos
    ]
    with pytest.raises(ShardError, match=f"{reason}, and one must; partition or align again"):
        _ = VerticalSpec(**{**dict(spec), "silos": changed}).holder


def alter(folder, change, silo=0, **entry):
    """Change a silo's file and have federation.json agree with what it is then."""
    path = folder / f"silo_{silo:04d}.h5"
    with h5py.File(path, "r+") as file:
        change(file)
    content = path.read_bytes()
    entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    say(folder, of_silo(silo, **entry))


def refusal(folder, silo=0):
    spec = read_vertical(folder)
    with pytest.raises(ShardError) as refused:
        open_vertical(folder, spec.silos[silo], spec)
    message, path = str(refused.value), folder / f"silo_{silo:04d}.h5"
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


def attribute(name, value):
    return lambda file: file.attrs.__setitem__(name, value)


def put(name, made):
    def change(file):
        if name in file:
            del file[name]
        file[name] = made

    return change


def bomb(file):
    del file["train/x"]
    file.create_dataset("train/x", (1 << 28, 2), "f4", chunks=(1 << 18, 2), compression="gzip")


IDS = np.arange(6)
HARMED = {
    "another alignment": (0, attribute("alignment", "f" * 32), f"of the alignment '{'f' * 32}', federation"),
    "no alignment": (1, lambda file: file.attrs.__delitem__("alignment"), "has no tag of its alignment"),
    "a number as tag": (1, attribute("alignment", 7), "of the alignment 7, federation.json says"),
    "a tag of lines": (1, attribute("alignment", "a\nb\x1b[2J" * 99), "of the alignment 'a\\nb\\x1b[2Ja"),
    "another silo": (1, attribute("silo", 0), "the shard of silo 0, federation.json says 1"),
    "other classes": (0, attribute("classes", 4), "has 4 classes, federation.json 3"),
    "another format": (0, attribute("format", "x"), "an HDF5 file, but not a shard"),
    "a horizontal one": (
        0,
        lambda file: file.attrs.__delitem__("layout"),
        "not the vertical shard of silo 0",
    ),
    "targets elsewhere": (1, put("train/y", IDS % 3), "train: has labels, and federation.json says it has"),
    "no targets": (0, lambda file: file["train"].__delitem__("y"), "(no train/y)"),
    "few targets": (0, put("train/y", IDS[:5] % 3), "train: 6 rows and 5 targets"),
    "wide targets": (
        0,
        put("train/y", np.zeros((6, 99), "i8")),
        "train: labels of shape [6, 99], federation",
    ),
    "a class too many": (0, put("train/y", IDS), "train: labels from 0 to 5; 3 classes take 0 to 2"),
    "real targets": (0, put("train/y", IDS / 3), "train: labels of dtype float64; they must be integers"),
    "short targets": (0, put("train/y", (IDS % 3).astype("u2")), "train: labels of dtype uint16; store them"),
    "no ids": (1, lambda file: file["test"].__delitem__("id"), "(no test/id)"),
    "real ids": (1, put("train/id", IDS / 3), "train: 6 rows and float64 ids of shape [6]"),
    "another width": (1, put("train/x", np.zeros((6, 2), "f4")), "train: features of shape [2], the federat"),
    "a soft link": (1, put("train/x", h5py.SoftLink("/test/x")), "train/x is a soft link"),
    "an external link": (
        1,
        put("train/x", h5py.ExternalLink("silo_0000.h5", "test/x")),
        "is an external link",
    ),
    "much in a small file": (0, bomb, "has other examples than federation.json says"),
}


@pytest.mark.parametrize("kind", HARMED)
def test_a_shard_that_does_not_hold_is_one_line(tmp_path, kind):
    write_vertical_folder(tmp_path, ROWS)
    silo, change, reason = HARMED[kind]
    alter(tmp_path, change, silo)
    assert reason in refusal(tmp_path, silo)


def test_a_shard_that_is_altered_or_a_link_is_refused(tmp_path):
    spec = write_vertical_folder(tmp_path / "shards", ROWS)
    path = tmp_path / "shards" / "silo_0001.h5"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert "altered, its sha256" in refusal(tmp_path / "shards", 1)
    assert len(open_vertical(tmp_path / "shards", spec.silos[1], spec, checksum=False)) == 2
    path.rename(tmp_path / "elsewhere.h5")
    path.symlink_to(tmp_path / "elsewhere.h5")
    assert "is a link; put the file itself there" in refusal(tmp_path / "shards", 1)


def test_values_that_are_not_finite_and_bools_that_are_none_are_refused(tmp_path):
    y, classes, targets, _ = KINDS["regression"]
    given = {"train": y[:6], "test": y[6:]}
    write_vertical_folder(tmp_path, ROWS, y=given, classes=classes, targets=targets)
    alter(tmp_path, lambda file: file["test/y"].__setitem__((1, 0), np.nan))
    assert "test: target is NaN in row 1" in refusal(tmp_path)
    y, classes, targets, _ = KINDS["multilabel"]
    write_vertical_folder(tmp_path, ROWS, y={"train": y[:6], "test": y[6:]}, classes=classes, targets=targets)
    alter(tmp_path, lambda file: file["train/y"].__setitem__((2, 0), 2))
    assert "train: target is 2 in row 2, bool targets are 0 or 1" in refusal(tmp_path)


@pytest.mark.parametrize("wrong", ["x", "y"])
def test_arrays_that_do_not_fit_are_not_written(tmp_path, wrong):
    x, y = np.zeros((4, 2), "f4"), np.full(4, CLASSES if wrong == "y" else 0)
    spec = write_vertical_folder(tmp_path / "other", ROWS)
    features = spec.silos[2 if wrong == "x" else 0].features
    about = {"silo": 0, "name": "a", "alignment": ALIGNMENT, "features": features, "classes": CLASSES}
    with pytest.raises(ShardError, match="features of shape" if wrong == "x" else "labels from 3 to 3"):
        write_vertical(tmp_path / "a.h5", {"train": VerticalSplit(x, np.arange(4), y)}, [0, 1], **about)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]
