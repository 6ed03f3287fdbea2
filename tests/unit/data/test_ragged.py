"""Examples of unequal lengths: there and back to the bit, padded in batches; each damage told in one line."""

import hashlib
import json

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from unit.builders import CPU

from mpifl.common.errors import ShardError
from mpifl.data.batches.batches import Batches
from mpifl.data.features import Features
from mpifl.data.ragged_arrays import Ragged
from mpifl.data.shards.federation_spec import FederationSpec, read_federation
from mpifl.data.shards.shards import Split, open_shard
from mpifl.data.targets import Targets
from scripts.write_shard import write_shard

DRAW = np.random.default_rng(0)
LENGTHS = [3, 1, 0, 5, 2]
IDS = [DRAW.integers(0, 50, n).astype("i4") for n in LENGTHS]
SPANS = [DRAW.normal(size=(n, 2)).astype("f4") for n in reversed(LENGTHS)]
TOKENS = Features(shape=(8,), dtype="int32", ragged=True, fill=7)
Y = [np.where(one > 40, -100, one) for one in IDS]
AIM = Targets(dtype="int32", shape=(8,), ignore=-100, ragged=True)


def ragged(examples, **more):
    return Ragged.of(examples, longest=8, **more)


def write(folder, x=None, features=TOKENS, y=None, classes=50, targets=AIM):
    folder.mkdir(exist_ok=True)
    x, y = ragged(IDS) if x is None else x, ragged(Y) if y is None else y
    common = {"features": features, "classes": classes, "targets": targets}
    entry = write_shard(folder / "silo_0000.h5", {"train": (x, y)}, silo=0, name="a", **common)
    made = {"name": "toy", "seed": 0, "scheme": {"name": "toy"}, "source": {}, "silos": [entry]}
    spec = FederationSpec(format_version=3, **common, **made)
    spec.write(folder)
    return spec


def open_first(folder):
    spec = read_federation(folder)
    return open_shard(folder, spec.silos[0], spec)["train"]


def test_they_lie_flat_with_offsets_and_come_back_mapped_to_the_bit(tmp_path):
    spec = write(tmp_path)
    assert spec == read_federation(tmp_path)
    with h5py.File(tmp_path / "silo_0000.h5") as file:
        assert file.attrs["format_version"] == 3
        assert set(file["train"]) == {"x", "x.offsets", "y", "y.offsets"}
        assert file["train/x"][:].tobytes() == np.concatenate(IDS).tobytes()
        assert file["train/x.offsets"].dtype == np.int64
        assert file["train/x.offsets"][:].tolist() == [0, 3, 4, 4, 9, 11]
    held = open_first(tmp_path)
    assert len(held) == 5
    assert isinstance(held.x.values, np.memmap)
    assert all(np.array_equal(held.x[i], one) for i, one in enumerate(IDS))
    assert spec.silos[0].labels == np.bincount([t for one in Y for t in one if t >= 0], minlength=50).tolist()


def test_a_batch_is_padded_to_its_longest_with_the_fill_and_what_does_not_count(tmp_path):
    write(tmp_path)
    batches = Batches(open_first(tmp_path), TOKENS, CPU)
    (x, y), (x2, _) = batches.in_order(3)
    assert x.dtype == y.dtype == torch.int64
    assert x.tolist() == [[*IDS[0]], [IDS[1][0], 7, 7], [7, 7, 7]]
    assert y[1:].tolist() == [[Y[1][0], -100, -100], [-100] * 3]
    assert x2.shape == (2, 5)
    whole = next(batches.shuffled("full", torch.Generator()))
    assert whole[0].shape == (5, 5)
    x.zero_()
    assert np.array_equal(open_first(tmp_path).x.values, np.concatenate(IDS))


def test_named_arrays_have_masks_and_lengths_of_their_own_and_values_are_padded_with_nan(tmp_path):
    inputs = {
        "input_ids": TOKENS.model_copy(update={"mask": "attention_mask"}),
        "spans": Features(shape=(8, 2), dtype="float32", ragged=True, scale=2.0, fill=-1),
        "age": Features(shape=(), dtype="float64"),
    }
    x = {"input_ids": ragged(IDS), "spans": ragged(SPANS), "age": np.arange(5.0)}
    targets = Targets(dtype="float32", shape=(8, 2), ragged=True)
    spec = write(tmp_path, x, inputs, ragged(SPANS), None, targets)
    assert spec.silos[0].labels == []
    order = torch.tensor([4, 1])
    x, y = Batches(open_first(tmp_path), inputs, CPU).take(order)
    assert set(x) == {"input_ids", "attention_mask", "spans", "age"}
    assert x["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert x["attention_mask"].dtype == torch.int64
    assert x["spans"].shape == y.shape == (2, 5, 2)
    assert (x["spans"][0, 3:] == -2).all()
    assert y[0, 3:].isnan().all()
    assert torch.equal(y[1], torch.from_numpy(SPANS[1]))
    assert x["age"].tolist() == [4, 1]


def reference(examples, fill, dtype):
    """Pad one example after the other."""
    longest = max(1, *(len(one) for one in examples))
    rows = [[*one.tolist(), *[fill] * (longest - len(one))] for one in examples]
    return torch.tensor(rows, dtype=dtype)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    size=st.integers(1, 13),
    seed=st.integers(0, 99),
)
def test_a_padded_batch_is_that_of_a_loop_over_its_examples(lengths, size, seed):
    draw = np.random.default_rng(seed)
    ids = [draw.integers(0, 9, n).astype("i2") for n in lengths]
    values = [draw.normal(size=n).astype("f4") for n in lengths]
    held = Split(Ragged.of(ids, longest=6, fill=7), Ragged.of(values, longest=6, fill=np.nan), "float32")
    batches = Batches(held, Features(shape=(6,), dtype="int16", ragged=True, fill=7), CPU)
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))
    order = torch.arange(len(ids)) if size >= len(ids) else order
    found = list(batches.shuffled(size, torch.Generator().manual_seed(seed)))
    assert [len(x) for x, _ in found] == [len(part) for part in order.split(size)]
    for (x, y), part in zip(found, order.split(size), strict=True):
        assert torch.equal(x, reference([ids[i] for i in part], 7, torch.int64))
        wanted = reference([values[i] for i in part], np.nan, torch.float32)
        assert torch.equal(y.nan_to_num(5.0), wanted.nan_to_num(5.0))


def adopt(folder, act=None, edit=lambda record: None):
    path, told = folder / "silo_0000.h5", folder / "federation.json"
    if act:
        with h5py.File(path, "r+") as file:
            act(file)
    content, record = path.read_bytes(), json.loads(told.read_bytes())
    record["silos"][0] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(record)
    told.write_text(json.dumps(record))


def offsets(data, name="train/x.offsets"):
    def act(file):
        del file[name]
        if data is not None:
            file[name] = np.asarray(data)

    return act


def of(part, **values):
    return lambda record: record[part].update(values)


DAMAGES = {
    "late": (offsets([1, 3, 4, 4, 9, 11]), None, "train/x.offsets: begins with 1; it must begin with 0"),
    "falling": (offsets([0, 3, 9, 4, 9, 11]), None, "train/x.offsets: falls from 9 to 4 at 3"),
    "wrapping": (offsets([0, 2**63 - 1, -(2**63), 4, 9, 11]), None, "train/x.offsets: falls from"),
    "short": (offsets([0, 3, 4, 4, 9, 10]), None, "ends with 10, there are 11 rows of values"),
    "behind": (offsets([0, 3, 4, 4, 9, 2**40]), None, f"ends with {2**40}, there are 11 rows of values"),
    "few": (offsets([0, 11]), None, "1 features and 5 labels, federation.json says 5"),
    "int32": (offsets(np.array([0, 3, 4, 4, 9, 11], "i4")), None, "train/x.offsets: is int32 of shape [6]"),
    "a table": (offsets([[0, 11]]), None, "train/x.offsets: is int64 of shape [1, 2]"),
    "none": (offsets(np.zeros(0, "i8")), None, "train/x.offsets: is int64 of shape [0]"),
    "gone": (offsets(None, "train/y.offsets"), None, "no train/y.offsets"),
    "longer": (offsets([0, 0, 0, 0, 0, 11]), None, "example 4 has 11 rows, the federation has 8 at most"),
    "a label": (
        lambda file: file["train/y"].write_direct(np.full(11, 99, "i4")),
        None,
        "out of range in row 0",
    ),
    "version 2": (None, lambda r: r.update(format_version=2), "with ragged arrays it is 3"),
    "no ignore": (None, of("targets", ignore=None), "ragged class numbers without ignore"),
    "a fill": (None, of("features", fill=2**40), "fill 1099511627776 does not fit int32"),
    "half a fill": (None, of("features", fill=0.5), "fill 0.5 does not fit int32"),
    "a mask": (None, of("features", mask="attention_mask"), "mask attention_mask of an array without a name"),
    "no shape": (None, of("features", shape=[]), "a ragged array has the shape [most rows, ...]"),
    "not ragged": (None, of("features", ragged=False), "fill and mask are of ragged arrays"),
    "names": (None, of("targets", names=list("abcdefgh")), "names of columns behind it"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_is_told_in_one_line(tmp_path, damage):
    act, edit, said = DAMAGES[damage]
    write(tmp_path)
    adopt(tmp_path, act, edit or (lambda record: None))
    with pytest.raises(ShardError) as refused:
        open_first(tmp_path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_masks_have_names_of_their_own(tmp_path):
    one = {"shape": [8], "dtype": "int32", "ragged": True}
    for features in (
        {"a": {**one, "mask": "b"}, "b": one},
        {"a": {**one, "mask": "m"}, "b": {**one, "mask": "m"}},
    ):
        write(tmp_path)
        adopt(tmp_path, edit=lambda record, features=features: record.update(features=features))
        with pytest.raises(ShardError, match="another input has that name"):
            read_federation(tmp_path)


def test_arrays_of_one_length_are_refused_where_they_are_declared_ragged(tmp_path):
    with pytest.raises(ShardError, match="examples of one length, the federation has unequal lengths"):
        write(tmp_path, x=np.zeros((5, 8), "i4"))
    with pytest.raises(ShardError, match="examples of unequal lengths, the federation has one length"):
        write(tmp_path, features=Features(shape=(8,), dtype="int32"))
