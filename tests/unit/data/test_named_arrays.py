"""Several inputs or targets by name: there and back to the bit, in batches; each damage told in one line."""

import hashlib
import json

import h5py
import numpy as np
import pytest
import torch
from unit.builders import CPU, FEATURES

from mpifl.common.errors import ShardError
from mpifl.data.batches.batches import Batches
from mpifl.data.features import Features
from mpifl.data.shards.federation_spec import FederationSpec, read_federation
from mpifl.data.shards.shards import open_shard
from mpifl.data.targets import Targets
from scripts.write_shard import write_shard

DRAW = np.random.default_rng(0)
N = 12
IDS = DRAW.integers(0, 50, (N, 7)).astype("i4")
X = {"input_ids": IDS, "image": DRAW.integers(0, 256, (N, 2, 2)).astype("u1"), "age": DRAW.normal(size=N)}
INPUTS = {
    "input_ids": Features(shape=(7,), dtype="int32"),
    "image": Features(shape=(2, 2), dtype="uint8", scale=0.5, offset=1.0),
    "age": Features(shape=(), dtype="float64"),
}
Y = {
    "time": DRAW.random(N).astype("f4"),
    "event": DRAW.random(N) < 0.5,
    "tokens": np.where(IDS > 40, -100, IDS),
}
AIMS = {
    "time": Targets(dtype="float32", shape=()),
    "event": Targets(dtype="bool", shape=()),
    "tokens": Targets(dtype="int32", shape=(7,), ignore=-100, classes=50),
}
PLAIN = DRAW.normal(size=(N, 4)).astype("f4")


def write(folder, x=X, features=None, y=Y, classes=None, targets=None):
    folder.mkdir(exist_ok=True)
    common = {"features": features or INPUTS, "classes": classes, "targets": targets or AIMS}
    entry = write_shard(folder / "silo_0000.h5", {"train": (x, y)}, silo=0, name="a", **common)
    made = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}, "silos": [entry]}
    spec = FederationSpec(format_version=2, **common, **made)
    spec.write(folder)
    return spec


def open_first(folder):
    spec = read_federation(folder)
    return open_shard(folder, spec.silos[0], spec)


def test_named_arrays_come_back_to_the_bit_and_mapped(tmp_path):
    assert write(tmp_path) == read_federation(tmp_path)
    held = open_first(tmp_path)["train"]
    assert len(held) == N
    for found, wanted in ((held.x, X), (held.y, Y)):
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            assert found[name].dtype == array.dtype
            assert found[name].tobytes() == array.tobytes()
            assert isinstance(found[name], np.memmap)
    with h5py.File(tmp_path / "silo_0000.h5") as file:
        assert set(file["train/x"]) == set(X)
        assert set(file["train/y"]) == set(Y)


def test_batches_are_dicts_of_tensors_as_a_model_receives_them(tmp_path):
    spec = write(tmp_path)
    assert spec.y_dtype == {"time": "float32", "event": "float32", "tokens": "int64"}
    batches = Batches(open_first(tmp_path)["train"], INPUTS, CPU)
    seen = {
        "input_ids": torch.from_numpy(IDS).long(),
        "image": torch.from_numpy(X["image"]).float() * 0.5 + 1,
        "age": torch.from_numpy(X["age"]).float(),
    }
    aimed = {name: torch.from_numpy(y).to(getattr(torch, spec.y_dtype[name])) for name, y in Y.items()}
    order, drawn = (
        torch.randperm(N, generator=torch.Generator().manual_seed(3)),
        torch.Generator().manual_seed(3),
    )
    ways = {
        "in order": (list(batches.in_order(5)), torch.arange(N)),
        "shuffled": (list(batches.shuffled(5, drawn)), order),
        "whole": (list(batches.shuffled("full", drawn)), torch.arange(N)),
        "taken": ([batches.take(order[:3])], order[:3]),
    }
    for found, rows in ways.values():
        for at, wanted in ((0, seen), (1, aimed)):
            assert [set(batch[at]) for batch in found] == [set(wanted)] * len(found)
            for name, column in wanted.items():
                together = torch.cat([batch[at][name] for batch in found])
                assert together.dtype == column.dtype
                assert together.equal(column[rows])
    assert [len(y["time"]) for _, y in batches.in_order(5)] == [5, 5, 2]


def test_what_a_model_does_to_a_batch_stays_out_of_the_mapped_shard(tmp_path):
    write(tmp_path)
    held = open_first(tmp_path)["train"]
    ((x, y),) = Batches(held, INPUTS, CPU).shuffled("full", torch.Generator())
    y["time"].zero_()
    x["input_ids"].zero_()
    assert (held.y["time"] == Y["time"]).all()
    assert (held.x["input_ids"] == IDS).all()


@pytest.mark.parametrize("which", ["x", "y"])
def test_inputs_may_have_names_where_targets_have_none_and_the_other_way_round(tmp_path, which):
    if which == "x":
        spec = write(tmp_path, y=IDS[:, 0].astype("i8"), classes=50, targets=Targets(dtype="int64", shape=()))
        assert sum(spec.silos[0].labels) == N
    else:
        spec = write(tmp_path, PLAIN, FEATURES)
        assert spec.silos[0].labels == []
    held = open_first(tmp_path)["train"]
    assert isinstance(held.x, dict) == (which == "x")
    assert isinstance(held.y, dict) == (which == "y")
    x, y = next(Batches(held, spec.features, CPU).in_order(5))
    assert isinstance(x, dict) == (which == "x")
    assert isinstance(y, dict) == (which == "y")


def adopt(folder, act, edit):
    path, told = folder / "silo_0000.h5", folder / "federation.json"
    with h5py.File(path, "r+") as file:
        act(file)
    content, record = path.read_bytes(), json.loads(told.read_bytes())
    record["silos"][0] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(record)
    told.write_text(json.dumps(record))


def replaced(name, data):
    def act(file):
        del file[name]
        file[name] = data

    return act


def no(held):
    """Leave it as it is."""


def edited(*keys, value):
    def edit(record):
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = value

    return edit


AGE = {"shape": [], "dtype": "float64", "scale": None, "offset": 0.0}
DAMAGES = {
    "an array missing": (
        lambda f: f.__delitem__("train/x/age"),
        no,
        "not a readable HDF5 shard (no train/x/age",
    ),
    "an array in place of several": (
        replaced("train/x", IDS),
        no,
        "not a readable HDF5 shard (train/x is not a g",
    ),
    "a link": (replaced("train/x/age", h5py.SoftLink("/train/y/time")), no, "train/x/age is a soft link"),
    "a group of another file": (
        replaced("train/x", h5py.ExternalLink("other.h5", "train/x")),
        no,
        "train/x is an external link",
    ),
    "fewer rows": (
        replaced("train/x/age", np.zeros(11)),
        no,
        "11 or 12 features and 12 labels, federation.json",
    ),
    "another shape": (
        replaced("train/x/image", np.zeros((N, 3, 2), "u1")),
        no,
        "train: x/image: features of shape [3, 2], the federation has [2, 2]; partition again",
    ),
    "another dtype": (
        replaced("train/y/time", np.zeros(N)),
        no,
        "train: y/time: targets of dtype float64, the federation has float32",
    ),
    "NaN": (
        lambda file: file["train/y/time"].__setitem__(7, np.nan),
        no,
        "silo_0000.h5: train: y/time: target is NaN in row 7; correct",
    ),
    "a class out of range": (
        lambda file: file["train/y/tokens"].__setitem__((5, 1), 50),
        no,
        "train: y/tokens: a label out of range in row 5; 50 classes take 0 to 49, and -100 is ignored",
    ),
    "one array in place of several, in JSON": (
        no,
        edited("features", value=AGE),
        "train/x is not a data set",
    ),
    "no arrays": (no, edited("features", value={}), "federation.json: features.shape: Field required"),
    "a name that is a path": (
        no,
        edited("features", value={"../age": AGE}),
        "federation.json: features.../age.[key]: String should match pattern",
    ),
    "many arrays": (
        no,
        edited("features", value={f"a{i}": AGE for i in range(17)}),
        "federation.json: features: 17 named arrays, 16 at most",
    ),
    "an unknown dtype": (
        no,
        edited("features", "age", "dtype", value="object"),
        "federation.json: features.age.dtype: Input should be 'uint8'",
    ),
    "an unknown key": (
        no,
        edited("targets", "time", "unit", value="days"),
        "federation.json: targets.time.unit: Extra inputs",
    ),
    "classes of several": (
        no,
        edited("classes", value=50),
        "federation.json: the file: 50 classes of named targets; say them of each in targets",
    ),
    "classes of floats": (
        no,
        edited("targets", "time", "classes", value=2),
        "federation.json: the file: time: 2 classes of float32 targets; class numbers are integers",
    ),
    "a histogram": (
        no,
        lambda record: record["silos"][0].update(labels=[12]),
        "federation.json: labels: 1 label counts of targets that have no classes",
    ),
    "version 1": (
        no,
        edited("format_version", value=1),
        "format_version 1; with targets or named arrays it is 2",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_shard_or_a_description_that_is_wrong_is_told_in_one_line(tmp_path, damage):
    act, edit, said = DAMAGES[damage]
    write(tmp_path)
    adopt(tmp_path, act, edit)
    with pytest.raises(ShardError) as refused:
        open_first(tmp_path)
    assert said in str(refused.value)
    assert str(refused.value).isprintable()
    assert str(refused.value).startswith(f"{tmp_path}/")
