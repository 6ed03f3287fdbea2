"""Shards: bit for bit there and back, mapped, and every damage told in one line that begins with the path."""

import fcntl
import hashlib
import json
import os
import resource
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from unit.builders import FEATURES, arrays, room_for, write_folder

from mpifl.common.errors import ShardError
from mpifl.common.files import allow_many_open_files, sha256_of, write_atomic
from mpifl.data.hdf5.hdf5_writing import WrittenFile
from mpifl.data.shards.shards import FEATURE_DTYPES, Features, ShardEntry, open_shard, read_federation
from scripts.write_shard import write_shard


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "shards", [6, 9], valid=2)
    return tmp_path / "shards"


def test_a_file_is_written_whoever_holds_its_lock(tmp_path):
    """As on a file system without locks, where asking for one fails."""
    path = tmp_path / "a.h5"
    with path.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="lock"):
            h5py.File(path, "w", locking=True)
        WrittenFile(path).close()


@pytest.mark.parametrize("mode", ["w", "r+"])
def test_a_full_disk_is_an_error_of_the_system_that_can_be_asked_for(tmp_path, mode):
    """HDF5 is not told: it would die of a file that it cannot close."""
    path, files = tmp_path / "a.h5", (h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
    WrittenFile(path).close()
    with room_for(4000):
        file = WrittenFile(path, mode)
        file.check()
        file["x"] = np.ones(4000)
        for told in (file.check, file.close):
            with pytest.raises(OSError, match="File too large"):
                told()
    assert not h5py.h5f.get_obj_count(*files), "HDF5 has closed it"


def first(folder):
    spec = read_federation(folder)
    return folder, spec.silos[0], spec


def adopt(folder, **changes):
    """Rewrite silo 0's entry so that its file, as it is now, passes the checks of size and sha256."""
    path = folder / "silo_0000.h5"
    content = path.read_bytes()
    record = json.loads((folder / "federation.json").read_bytes())
    record["silos"][0] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), **changes}
    (folder / "federation.json").write_text(json.dumps(record))


def replace(file, name, data, **more):
    del file[name]
    file.create_dataset(name, data=data, **more)


def refusal(opening, path):
    """Return what a ShardError says after the path that it begins with; it must be one line with advice."""
    with pytest.raises(ShardError) as refused:
        opening()
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("dtype", FEATURE_DTYPES)
def test_arrays_come_back_to_the_bit_and_mapped(tmp_path, dtype):
    features = Features(shape=(4,), dtype=dtype)
    spec = write_folder(tmp_path, [7], features, classes=5, test=3, valid=2)
    shard = open_shard(tmp_path, spec.silos[0], read_federation(tmp_path))
    for i, (split, n) in enumerate((("train", 7), ("valid", 2))):
        x, y = arrays(n, 10 * i, features, classes=5)
        assert (shard[split].x.dtype, shard[split].y.dtype) == (x.dtype, np.int64)
        assert shard[split].x.tobytes() == x.tobytes()
        assert shard[split].y.tolist() == y.tolist()
        assert isinstance(shard[split].x, np.memmap)
        assert isinstance(shard[split].y, np.memmap)
    assert "valid" in shard
    assert "test" not in shard


def test_an_open_shard_takes_one_file_descriptor_however_many_data_sets_it_has(tmp_path):
    spec = write_folder(tmp_path, [7] * 5, test=3, valid=2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    shards = [open_shard(tmp_path, entry, spec) for entry in spec.silos]
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= len(shards)


def test_a_process_that_may_open_no_more_files_says_so(folder):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))  # to read it, and none to map it
        with pytest.raises(ShardError, match=r"may open no more files; raise 'ulimit -n'"):
            open_shard(*first(folder))
        allow_many_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
        open_shard(*first(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_writing_to_what_is_mapped_never_reaches_the_file(folder):
    before = (folder / "silo_0000.h5").read_bytes()
    shard = open_shard(*first(folder))
    shard["train"].x[:] = 7.0
    shard["train"].x.flush()
    assert (folder / "silo_0000.h5").read_bytes() == before


def test_an_entry_describes_its_file(folder):
    _, entry, spec = first(folder)
    content = (folder / "silo_0000.h5").read_bytes()
    assert (entry.silo, entry.file, entry.examples) == (0, "silo_0000.h5", {"train": 6, "valid": 2})
    assert (entry.bytes, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert entry.labels == np.bincount(arrays(6)[1], minlength=spec.classes).tolist()


def test_the_servers_test_set_is_opened_by_its_entry(tmp_path):
    spec = write_folder(tmp_path, [3], test=5)
    assert spec.test.silo is None
    assert sum(spec.test.labels) == 5
    assert len(open_shard(tmp_path, spec.test, spec)["test"]) == 5


def test_a_folder_reads_back_as_the_description_that_was_written(tmp_path):
    assert write_folder(tmp_path, [3, 4, 5], test=2) == read_federation(tmp_path)


@pytest.mark.parametrize("options", [{"chunks": (2, 4)}, {"chunks": (2, 4), "compression": "gzip"}], ids=str)
def test_chunked_and_compressed_data_sets_are_read_whole(folder, options):
    x, y = arrays(6)
    with h5py.File(folder / "silo_0000.h5", "r+") as file:
        replace(file, "train/x", x, **options)
    adopt(folder)
    split = open_shard(*first(folder))["train"]
    assert not isinstance(split.x, np.memmap)
    assert split.x.tobytes() == x.tobytes()
    assert split.y.tolist() == y.tolist()


def test_data_of_the_other_byte_order_is_read_as_numbers(folder):
    _, y = arrays(6)
    with h5py.File(folder / "silo_0000.h5", "r+") as file:
        replace(file, "train/y", y, dtype=">i8")
    adopt(folder)
    read = open_shard(*first(folder))["train"].y
    assert read.dtype.isnative  # torch takes no other
    assert read.tolist() == y.tolist()


def cut(n):
    return lambda path: path.write_bytes(path.read_bytes()[:n])


def flip(at):
    def act(path):
        content = bytearray(path.read_bytes())
        content[int(at * len(content))] ^= 1
        path.write_bytes(content)

    return act


BYTES = {
    "missing": (lambda path: path.unlink(), "is missing; federation.json names it"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "restore it"),
    "cut by a byte": (cut(-1), "bytes, federation.json says"),
    "cut in half": (lambda path: cut(path.stat().st_size // 2)(path), "bytes, federation.json says"),
    "empty": (cut(0), "0 bytes, federation.json says"),
    "text": (lambda path: path.write_text("x, y\n1, 2\n"), "10 bytes, federation.json says"),
    **{f"a bit flipped at {at}": (flip(at), "altered, its sha256") for at in (0, 0.01, 0.3, 0.6, 0.9, 0.999)},
}


@pytest.mark.parametrize("damage", BYTES)
def test_a_damaged_file_is_told(folder, damage):
    act, reason = BYTES[damage]
    path = folder / "silo_0000.h5"
    act(path)
    said = refusal(lambda: open_shard(*first(folder)), path)
    assert reason in said or (damage == "a folder" and "cannot be read" in said)


@pytest.mark.parametrize("damage", ["cut by a byte", "cut in half", "empty", "text"])
def test_a_damaged_file_is_told_even_if_the_description_was_made_of_it(folder, damage):
    path = folder / "silo_0000.h5"
    BYTES[damage][0](path)
    adopt(folder, bytes=max(path.stat().st_size, 1))
    if damage == "empty":
        path.write_bytes(b"\0")
        adopt(folder)
    assert "not a readable HDF5 shard" in refusal(lambda: open_shard(*first(folder)), path)


def attribute(name, value):
    return lambda file: file.attrs.__setitem__(name, value)


X, Y = arrays(6)
INSIDE = {
    "no shard": (
        lambda f: f.attrs.__delitem__("format"),
        "an HDF5 file, but not a shard; write it with data_prep",
    ),
    "another version": (
        attribute("format_version", 9),
        "format version 9, this program reads 1, 2 and 3; partition again",
    ),
    "another silo": (
        attribute("silo", 1),
        "the shard of silo 1, federation.json says 0; restore the right file",
    ),
    "the server's": (attribute("silo", -1), "the shard of silo -1, federation.json says 0"),
    "other classes": (attribute("classes", 4), "has 4 classes, federation.json 3; partition again"),
    "another shape": (
        lambda f: replace(f, "train/x", X[:, :3]),
        "train: features of shape [3], the federation has [4]",
    ),
    "another dtype": (
        lambda f: replace(f, "train/x", X.astype("f8")),
        "train: features of dtype float64, the federation has float32",
    ),
    "a label too high": (
        lambda f: replace(f, "train/y", Y + 1),
        "train: labels from 1 to 3; 3 classes take 0 to 2",
    ),
    "a negative label": (
        lambda f: replace(f, "train/y", Y - 1),
        "train: labels from -1 to 1; 3 classes take 0 to 2",
    ),
    "labels of floats": (
        lambda f: replace(f, "train/y", Y.astype("f4")),
        "train: labels of dtype float32; they must be integers",
    ),
    "labels that torch picks no rows of": (
        lambda f: replace(f, "train/y", Y.astype("u4")),
        "train: labels of dtype uint32; store them as int64",
    ),
    "fewer labels": (
        lambda f: replace(f, "train/y", Y[:5]),
        "train: 6 features and 5 labels, federation.json says 6",
    ),
    "more examples": (
        lambda f: (replace(f, "train/x", X[[0] * 9]), replace(f, "train/y", Y[[0] * 9])),
        "train: 9 features and 9 labels, federation.json says 6",
    ),
    "a bad label held out": (lambda f: replace(f, "valid/y", [0, 7]), "valid: labels from 0 to 7"),
    "no labels": (lambda f: f.__delitem__("train/y"), "not a readable HDF5 shard"),
    "no training split": (
        lambda f: f.__delitem__("train"),
        "has no train/x and train/y; partition again or restore it",
    ),
    "no valid split": (lambda f: f.__delitem__("valid"), "has no valid/x and valid/y"),
    "a split too many": (
        lambda f: (f.create_dataset("test/x", data=X), f.create_dataset("test/y", data=Y)),
        "test: 6 features and 6 labels, federation.json says None",
    ),
    "a group for features": (lambda f: (f.__delitem__("train/x"), f.create_group("train/x")), "restore it"),
    "a single number for labels": (lambda f: replace(f, "train/y", 1), "restore"),
    "a list for the silo": (attribute("silo", [0, 1]), "restore the right file"),
}


@pytest.mark.parametrize("damage", INSIDE)
def test_a_shard_that_does_not_fit_is_told(folder, damage):
    act, reason = INSIDE[damage]
    path = folder / "silo_0000.h5"
    with h5py.File(path, "r+") as file:
        act(file)
    adopt(folder)
    assert reason in refusal(lambda: open_shard(*first(folder)), path)


def test_an_empty_training_split_is_told(folder):
    path = folder / "silo_0000.h5"
    spec = read_federation(folder)
    with h5py.File(path, "r+") as file:
        replace(file, "train/x", X[:0])
        replace(file, "train/y", Y[:0])
    changes = {"bytes": path.stat().st_size, "sha256": sha256_of(path), "examples": {"train": 0, "valid": 2}}
    said = refusal(lambda: open_shard(folder, spec.silos[0].model_copy(update=changes), spec), path)
    assert said == "train: an empty silo; partition with --min-examples 1 or more"


def edited(change):
    def act(path):
        record = json.loads(path.read_bytes())
        change(record)
        path.write_text(json.dumps(record))

    return act


DESCRIPTIONS = {
    "missing": (lambda p: p.unlink(), "is not there; make the shards with 'data-prep partition' or "),
    "misspelt": (
        lambda p: p.parent.rename(p.parent.with_name(f"{p.parent.name}s")),
        "is not there; did you mean '",
    ),
    "a folder": (lambda p: (p.unlink(), p.mkdir()), "cannot be read"),
    "empty": (lambda p: p.write_text(""), "the file: Invalid JSON"),
    "not JSON": (lambda p: p.write_text("silos: 3"), "the file: Invalid JSON"),
    "not UTF-8": (lambda p: p.write_bytes(b"\xff\xfe{}"), "the file: Invalid JSON"),
    "cut": (lambda p: p.write_text(p.read_text()[:-20]), "the file: Invalid JSON"),
    "a list": (lambda p: p.write_text("[]"), "the file: "),
    "an unknown key": (edited(lambda r: r.update(colour="red")), "colour: Extra inputs"),
    "an unknown key of a silo": (edited(lambda r: r["silos"][1].update(x=1)), "silos.1.x: Extra inputs"),
    "a missing key": (edited(lambda r: r.pop("classes")), "classes: Field required"),
    "a wrong type": (edited(lambda r: r.update(classes="ten")), "classes: Input should be a valid integer"),
    "no class": (edited(lambda r: r.update(classes=0)), "classes: Input should be greater than 0"),
    "an unknown dtype": (edited(lambda r: r["features"].update(dtype="bfloat16")), "features.dtype: "),
    "a bad sha256": (edited(lambda r: r["silos"][0].update(sha256="ab")), "silos.0.sha256: "),
    "another format": (edited(lambda r: r.update(format="leaf")), "format: "),
    "another version": (
        edited(lambda r: r.update(format_version=4)),
        "format version 4, this program reads 1, 2 and 3",
    ),
    "a later version with more keys": (
        edited(lambda r: r.update(format_version=4, more=1)),
        "format version 4",
    ),
    "no silos": (edited(lambda r: r.update(silos=[])), "silos must be numbered 0, 1, 2"),
    "silos out of order": (edited(lambda r: r["silos"].reverse()), "silos must be numbered 0, 1, 2"),
    "an empty silo": (
        edited(lambda r: r["silos"][1].update(examples={"train": 0})),
        "silo 1 has no training examples",
    ),
    "a silo without training data": (edited(lambda r: r["silos"][1].update(examples={"valid": 2})), "train"),
}


@pytest.mark.parametrize("damage", DESCRIPTIONS)
def test_a_bad_description_is_told(folder, damage):
    act, reason = DESCRIPTIONS[damage]
    path = folder / "federation.json"
    act(path)
    said = refusal(lambda: read_federation(folder), path)
    assert reason in said
    assert said.count(";") >= 1  # and what would do


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (X[:, :3], Y, "features of shape [3]"),
        (X.astype("f8"), Y, "features of dtype float64"),
        (X, Y + 3, "labels from 3 to 5"),
        (X, Y.astype(float), "labels of dtype float64"),
        (X, Y[:4], "6 features and 4 labels"),
    ],
)
@pytest.mark.parametrize("before", [None, b"the shard of before"])
def test_a_write_that_is_refused_leaves_what_was_there(tmp_path, x, y, reason, before):
    path = tmp_path / "silo_0000.h5"
    if before:
        path.write_bytes(before)
    good = {"train": (X, Y), "valid": (x, y)}
    said = refusal(lambda: write_shard(path, good, silo=0, name="a", features=FEATURES, classes=3), path)
    assert reason in said
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([before] if before else [])


def test_a_write_that_breaks_off_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "silo_0000.h5"
    path.write_bytes(b"before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"after")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"silo_0000.h5": b"before"}


def test_the_same_arrays_make_the_same_bytes(tmp_path):
    entries = []
    for name in "ab":
        (tmp_path / name).mkdir()
        path = tmp_path / name / "silo_0000.h5"
        entries.append(write_shard(path, {"train": (X, Y)}, silo=0, name="a", features=FEATURES, classes=3))
    assert entries[0] == entries[1]


def test_without_a_checksum_only_what_is_read_is_checked(folder):
    path = folder / "silo_0000.h5"
    with h5py.File(path) as file:
        offset = file["train/x"].id.get_offset()
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    entry: ShardEntry
    _, entry, spec = first(folder)
    assert len(open_shard(folder, entry, spec, checksum=False)["train"]) == 6
    assert "altered" in refusal(lambda: open_shard(folder, entry, spec), path)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", ">i4"])
def test_class_numbers_of_other_dtypes_are_taken_where_torch_has_them(folder, dtype):
    with h5py.File(folder / "silo_0000.h5", "r+") as file:
        replace(file, "train/y", file["train/y"][...], dtype=dtype)
    adopt(folder)
    spec = read_federation(folder)
    y = open_shard(folder, spec.silos[0], spec)["train"].y
    assert torch.from_numpy(y).index_select(0, torch.tensor([1, 0])).tolist() == y[[1, 0]].tolist()
