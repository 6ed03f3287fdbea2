"""Targets of any kind: there and back to the bit, and each damage told in one line."""

import hashlib
import json

import h5py
import numpy as np
import pytest
import torch
from unit.builders import CPU, FEATURES

from mpifl.common.errors import ShardError
from mpifl.data.batches.batches import Batches
from mpifl.data.hdf5.hdf5_writing import WrittenFile, make_room
from mpifl.data.shards.federation_spec import FederationSpec, read_federation
from mpifl.data.shards.shards import open_shard
from mpifl.data.targets import PIECE, Targets, label_counts
from scripts.write_shard import write_shard

DRAW = np.random.default_rng(0)
N = 12
KINDS = {
    "a float": (DRAW.normal(size=N).astype("f4"), None, {}),
    "three floats": (DRAW.normal(size=(N, 3)), None, {"names": ["a", "b", "c"]}),
    "a half": (DRAW.normal(size=N).astype("f2"), None, {}),
    "counts": (DRAW.integers(-4, 400, N).astype("i4"), None, {}),
    "masks": (DRAW.integers(0, 3, (N, 8, 8)).astype("u1"), 3, {}),
    "masks with a border": (np.where(DRAW.random((N, 8, 8)) < 0.2, 255, 2).astype("u1"), 3, {"ignore": 255}),
    "labels": (DRAW.integers(0, 2, (N, 5)).astype("u1"), None, {}),
    "bools": (DRAW.random((N, 5)) < 0.5, None, {}),
    "tokens": (np.where(DRAW.random((N, 7)) < 0.3, -100, 9), 10, {"ignore": -100}),
}


def write(folder, y, classes, more):
    """Write a folder of two silos with targets; the second has the examples in reverse."""
    folder.mkdir(exist_ok=True)
    targets = Targets(dtype=y.dtype.name, shape=y.shape[1:], **more)
    common = {"features": FEATURES, "classes": classes, "targets": targets}
    x = np.arange(N * 4, dtype="f4").reshape(N, 4)
    splits = {"train": (x[2:], y[2:]), "valid": (x[:2], y[:2])}
    entries = [
        write_shard(folder / f"silo_{silo:04d}.h5", of_silo, silo=silo, name=f"silo {silo}", **common)
        for silo, of_silo in enumerate([splits, {k: (a[::-1], b[::-1]) for k, (a, b) in splits.items()}])
    ]
    made = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}, "silos": entries}
    spec = FederationSpec(format_version=2, **common, **made)
    spec.write(folder)
    return spec


def open_first(folder):
    spec = read_federation(folder)
    return open_shard(folder, spec.silos[0], spec)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_come_back_to_the_bit_and_mapped(tmp_path, kind):
    y, classes, more = KINDS[kind]
    assert write(tmp_path, y, classes, more) == read_federation(tmp_path)
    shard = open_first(tmp_path)
    for split, rows in (("train", y[2:]), ("valid", y[:2])):
        assert shard[split].y.dtype == y.dtype
        assert shard[split].y.tobytes() == np.ascontiguousarray(rows).tobytes()
        assert isinstance(shard[split].y, np.memmap)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_receives_class_numbers_as_int64_and_values_as_float32(tmp_path, kind):
    y, classes, more = KINDS[kind]
    spec = write(tmp_path, y, classes, more)
    batches = Batches(open_first(tmp_path)["train"], FEATURES, CPU)
    wanted = torch.from_numpy(y[2:]).to(torch.int64 if classes else torch.float32)
    assert spec.y_dtype == str(wanted.dtype).removeprefix("torch.")
    taken = [
        torch.cat([held for _, held in batches.in_order(4)]),
        batches.take(torch.arange(10))[1],
        next(batches.shuffled("full", torch.Generator()))[1],
    ]
    for found in taken:
        assert found.dtype == wanted.dtype
        assert found.equal(wanted)


def test_what_a_model_does_to_its_targets_stays_out_of_the_mapped_shard(tmp_path):
    write(tmp_path, *KINDS["a float"])
    shard = open_first(tmp_path)
    before = shard["train"].y.copy()
    next(Batches(shard["train"], FEATURES, CPU).shuffled("full", torch.Generator()))[1].zero_()
    assert (shard["train"].y == before).all()


def test_the_histogram_leaves_out_what_does_not_count_and_is_empty_of_values(tmp_path):
    y, classes, more = KINDS["masks with a border"]
    spec = write(tmp_path, y, classes, more)
    assert spec.silos[0].labels == [0, 0, int((y[2:] == 2).sum())]
    assert write(tmp_path, *KINDS["a float"]).silos[0].labels == []


def test_labels_are_counted_alike_in_one_piece_and_in_many(monkeypatch):
    y, targets = DRAW.integers(0, 5, (50, 3)).astype("u1"), Targets(dtype="uint8", shape=(3,), ignore=7)
    y[4] = 7
    whole = label_counts(y, 5, targets)
    assert whole == np.bincount(y[y != 7], minlength=5).tolist()
    monkeypatch.setattr("mpifl.data.targets.PIECE", 8)
    assert PIECE > 8
    assert label_counts(y, 5, targets) == whole


def test_a_folder_of_class_numbers_is_byte_for_byte_one_of_version_1(tmp_path):
    x, y = DRAW.normal(size=(N, 4)).astype("f4"), DRAW.integers(0, 3, N)
    common = {"silo": 0, "name": "ward", "features": FEATURES, "classes": 3}
    entry = write_shard(tmp_path / "a.h5", {"train": (x, y)}, **common)
    with WrittenFile(tmp_path / "b.h5") as file:  # what the program wrote before it knew of targets
        file.attrs.update(format="mpifl-shard", format_version=1, name="ward", classes=3)
        file.attrs["silo"] = 0
        make_room(file, "train/x", (N, 4), np.dtype("f4"))
        make_room(file, "train/y", (N,), np.dtype("i8"))
        file["train/x"][...], file["train/y"][...] = x, y
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    made = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}, "silos": [entry]}
    FederationSpec(features=FEATURES, classes=3, **made).write(tmp_path)
    federation = {
        "format": "mpifl-shards", "format_version": 1, "name": "toy",
        "features": {"shape": [4], "dtype": "float32", "scale": None, "offset": 0.0},
        "classes": 3, "seed": 0, "scheme": {"name": "toy"}, "source": {}, "silos": [entry.model_dump()],
        "test": None, "public": None, "class_names": None, "feature_names": None,
    }  # fmt: skip
    assert (tmp_path / "federation.json").read_text() == json.dumps(federation, indent=1) + "\n"


def adopt(folder, act=lambda file: None, edit=lambda record: None):
    """Change silo 0's file and `federation.json`, and have size and sha256 agree."""
    path = folder / "silo_0000.h5"
    with h5py.File(path, "r+") as file:
        act(file)
    content, told = path.read_bytes(), folder / "federation.json"
    record = json.loads(told.read_bytes())
    record["silos"][0] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(record)
    told.write_text(json.dumps(record))


def refusal(folder):
    with pytest.raises(ShardError) as refused:
        open_first(folder)
    assert str(refused.value).isprintable()
    assert str(refused.value).startswith(f"{folder}/")
    return str(refused.value).removeprefix(f"{folder}/")


def put(name, at, value):
    return lambda file: file[name].__setitem__(at, value)


def replaced(name, data):
    def act(file):
        del file[name]
        file.create_dataset(name, data=data)

    return act


def no(held):
    """Leave it as it is."""


DAMAGES = {
    "NaN": ("a float", put("train/y", 7, np.nan), no, "silo_0000.h5: train: target is NaN in row 7; correct"),
    "infinite": ("three floats", put("valid/y", (1, 2), np.inf), no, "valid: target is infinite in row 1"),
    "class 9 of 3": (
        "masks",
        put("train/y", (2, 1), 9),
        no,
        "train: labels from 0 to 9; 3 classes take 0 to 2, and row 2 others; correct",
    ),
    "class 9 of 3, 255 ignored": (
        "masks with a border",
        put("train/y", (5, 1, 1), 9),
        no,
        "train: a label out of range in row 5; 3 classes take 0 to 2, and 255 is ignored",
    ),
    "a bool of 2": (
        "bools",
        put("train/y", (4, 1), 2),
        no,
        "train: target is 2 in row 4, bool targets are 0",
    ),
    "another dtype": (
        "a float",
        replaced("train/y", np.zeros(10)),
        no,
        "targets of dtype float64, the federa",
    ),
    "another shape": (
        "three floats",
        replaced("train/y", np.zeros((10, 2))),
        no,
        "train: targets of shape [2], the federation has [3]; partition again",
    ),
    "a shape of much": (
        "three floats",
        lambda file: (
            file.__delitem__("train/y")
            or file.create_dataset("train/y", (10, 1 << 40), "f8", chunks=(1, 1024))
        ),
        no,
        "train: targets of shape [1099511627776], the federation has [3]",
    ),
    "other examples": ("a float", replaced("train/y", np.zeros(9, "f4")), no, "10 features and 9 labels"),
    "no targets": ("a float", lambda f: f.__delitem__("train/y"), no, "no train/y"),
    "attribute: classes": (
        "a float",
        lambda file: file.attrs.update(classes=3),
        no,
        "has 3 classes, federation.json no; partition again",
    ),
    "attribute: no classes": (
        "masks",
        lambda file: file.attrs.update(classes=-1),
        no,
        "has no classes, federation.json 3; partition again",
    ),
    "attribute: version": (
        "a float",
        lambda file: file.attrs.update(format_version=1),
        no,
        "format version 1, federation.json has 2; partition again",
    ),
    "a histogram of values": (
        "a float",
        no,
        lambda record: record["silos"][0].update(labels=[10]),
        "federation.json: labels: 1 label counts of targets that have no classes",
    ),
    "a longer histogram": (
        "masks",
        no,
        lambda record: record["silos"][0].update(labels=[1] * 4),
        "federation.json: labels: 4 label counts for 3 classes",
    ),
    "more counted than there are": (
        "masks with a border",
        no,
        lambda record: record["silos"][0].update(labels=[641, 0, 0]),
        "federation.json counts 641 of 10 examples",
    ),
    "version 1 with targets": (
        "a float",
        no,
        lambda record: record.update(format_version=1),
        "federation.json: the file: format_version 1; with targets or named arrays it is 2",
    ),
    "version 2 without targets": (
        "masks",
        no,
        lambda record: record.pop("targets"),
        "federation.json: the file: format_version 2; without targets or named arrays it is 1",
    ),
    "nothing to learn": (
        "a float",
        no,
        lambda record: record.update(targets=None),
        "federation.json: the file: neither classes nor targets",
    ),
    "classes of floats": (
        "a float",
        no,
        lambda record: record.update(classes=3),
        "3 classes of float32 targets; class numbers are integers",
    ),
    "a class that is ignored": (
        "masks",
        no,
        lambda record: record["targets"].update(ignore=2),
        "ignore 2 of 3 classes; it is a number that no class has",
    ),
    "ignored by no dtype": (
        "masks",
        no,
        lambda record: record["targets"].update(ignore=-100),
        "ignore -100 does not fit uint8 targets",
    ),
    "values ignored": (
        "counts",
        no,
        lambda record: record["targets"].update(ignore=-100),
        "ignore -100 of no classes",
    ),
    "names of other columns": (
        "three floats",
        no,
        lambda record: record["targets"].update(names=["a", "b"]),
        "targets: 2 different names for 3 columns of targets",
    ),
    "an unknown dtype": (
        "a float",
        no,
        lambda record: record["targets"].update(dtype="object"),
        "federation.json: targets.dtype: Input should be 'uint8'",
    ),
    "a huge shape": (
        "a float",
        no,
        lambda record: record["targets"].update(shape=[1 << 20, 1 << 20]),
        "federation.json: targets.shape: an example has",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_shard_or_a_description_that_is_wrong_is_told_in_one_line(tmp_path, damage):
    kind, act, edit, said = DAMAGES[damage]
    write(tmp_path, *KINDS[kind])
    adopt(tmp_path, act, edit)
    assert said in refusal(tmp_path)


def test_targets_that_do_not_fit_are_not_written(tmp_path):
    y = KINDS["a float"][0].copy()
    y[3] = np.nan
    with pytest.raises(ShardError, match="valid: target is NaN in row 1"):
        write(tmp_path, np.roll(y, -2), None, {})
