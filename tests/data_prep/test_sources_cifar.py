"""CIFAR in both of its publisher's versions, and pickles that are read and never run."""

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_prep.sources.pickled import read_pickled_dict
from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def drawn(n, classes=10, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, classes, n)


def short(text):
    return b"U" + bytes([len(text)]) + text.encode()


def python2(entries):
    """Write a dict of byte arrays and lists of numbers as Python 2 and its numpy did."""
    out = b"\x80\x02}q\x01("
    for key, value in entries.items():
        out += short(key)
        if isinstance(value, np.ndarray):
            raw = value.tobytes()
            out += b"cnumpy.core.multiarray\n_reconstruct\nq\x02"
            out += b"cnumpy\nndarray\nq\x03K\x00\x85U\x01bq\x04\x87Rq\x05"
            out += (
                b"(K\x01M"
                + struct.pack("<H", value.shape[0])
                + b"M"
                + struct.pack("<H", value.shape[1])
                + b"\x86"
            )
            out += b"cnumpy\ndtype\nq\x06U\x02u1q\x07K\x00K\x01\x87Rq\x08(K\x03U\x01|NNN"
            out += b"J\xff\xff\xff\xffJ\xff\xff\xff\xff"
            out += b"K\x00tb\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
        elif isinstance(value, str):
            out += short(value)
        else:
            out += (
                b"](" + b"".join(short(v) if isinstance(v, str) else b"K" + bytes([v]) for v in value) + b"e"
            )
    return out + b"u."


def write_binary(folder, sizes=(7, 7, 7, 7, 7, 4)):
    folder.mkdir(parents=True)
    batches = [drawn(n, seed=number) for number, n in enumerate(sizes)]
    for name, (x, y) in zip(BATCHES, batches, strict=True):
        (folder / f"{name}.bin").write_bytes(
            np.concatenate([y[:, None].astype(np.uint8), x], axis=1).tobytes()
        )
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return batches


def write_python(folder, dump=python2):
    folder.mkdir(parents=True)
    batches = [drawn(n, seed=number) for number, n in enumerate((7, 7, 7, 7, 7, 4))]
    for name, (x, y) in zip(BATCHES, batches, strict=True):
        entries = {
            "batch_label": name,
            "labels": y.tolist(),
            "data": x,
            "filenames": [f"{i}.png" for i in range(len(x))],
        }
        (folder / name).write_bytes(dump(entries))
    (folder / "batches.meta").write_bytes(dump({"num_cases_per_batch": [7], "label_names": NAMES}))
    return batches


def check(dataset, batches):
    x, y = (np.concatenate(column) for column in zip(*batches[:-1], strict=True))
    assert (dataset.x.shape, dataset.x.dtype, dataset.scale) == ((len(x), 3, 32, 32), np.uint8, 1 / 255)
    assert np.array_equal(dataset.x.reshape(len(x), -1), x)
    assert np.array_equal(dataset.y, y)
    assert np.array_equal(dataset.test[0].reshape(-1, 3072), batches[-1][0])
    assert np.array_equal(dataset.test[1], batches[-1][1])
    assert (dataset.classes, dataset.class_names) == (10, tuple(NAMES))


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_the_binary_version_comes_back_bit_for_bit(tmp_path, inner):
    batches = write_binary(tmp_path / "in" / inner)
    dataset = find_source("cifar10")(tmp_path / "in", 0)
    check(dataset, batches)
    assert set(dataset.files) == {*(f"{name}.bin" for name in BATCHES), "batches.meta.txt"}


DUMPS = {"python 2": python2} | {
    f"protocol {n}": lambda entries, n=n: pickle.dumps(
        {key.encode(): value for key, value in entries.items()}, protocol=n
    )
    for n in range(5)
}


@pytest.mark.parametrize("dump", DUMPS)
def test_the_python_version_comes_back_bit_for_bit(tmp_path, dump):
    batches = write_python(tmp_path / "in", DUMPS[dump])
    check(find_source("cifar10")(tmp_path / "in", 0), batches)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_cifar100_has_a_fine_and_a_coarse_label(tmp_path, coarse, binary):
    x, fine = drawn(30, 100)
    labels = fine // 5, fine
    if binary:
        content = np.concatenate([np.stack(labels, 1).astype(np.uint8), x], axis=1).tobytes()
    else:
        content = python2({"data": x, "coarse_labels": labels[0].tolist(), "fine_labels": labels[1].tolist()})
    for name in ("train", "test"):
        (tmp_path / (name + ".bin" * binary)).write_bytes(content)
    dataset = find_source("cifar100", [f"coarse={str(coarse).lower()}"])(tmp_path, 0)
    assert np.array_equal(dataset.x.reshape(30, -1), x)
    assert np.array_equal(dataset.y, labels[0 if coarse else 1])
    assert (dataset.classes, dataset.class_names) == (20 if coarse else 100, None)


class Bad:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("where", ["value", "key", "in a list", "an array's dtype"])
def test_a_pickle_that_calls_something_is_not_run(tmp_path, protocol, where):
    trap = tmp_path / "sprung"
    bad = Bad(os.mkdir, str(trap))
    entries = {
        "value": {"data": bad, "labels": [1]},
        "key": {bad: 1},
        "in a list": {"labels": [1, [bad]]},
        "an array's dtype": {"data": np.array([bad, 1], dtype=object)},
    }[where]
    with pytest.raises(InputError, match="not a pickled dict of arrays"):
        read_pickled_dict(pickle.dumps(entries, protocol=protocol), "file")
    assert not trap.exists()


def test_any_prefix_and_any_changed_byte_of_a_pickle_is_an_error_or_data():
    whole = python2({"data": drawn(1)[0][:, :20].copy(), "labels": [3], "name": "batch"})
    for end in range(len(whole)):
        with pytest.raises(InputError):
            read_pickled_dict(whole[:end], "file")
    rng = np.random.default_rng(0)
    for _ in range(3000):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] = rng.integers(256)
        try:
            assert isinstance(read_pickled_dict(bytes(changed), "file"), dict)
        except InputError as error:
            assert "file: not a pickled dict" in str(error)  # noqa: PT017 - it may also be data


FAULTS = {
    "missing": (lambda folder: (folder / "data_batch_3.bin").unlink(), "data_batch_3.bin: cannot be read"),
    "nothing": (
        lambda folder: [path.unlink() for path in folder.iterdir()],
        "data_batch_1: is not there, nor with .bin",
    ),
    "cut short": (
        lambda folder: shorten(folder / "data_batch_2.bin"),
        "data_batch_2.bin: 21503 bytes are no whole",
    ),
    "empty": (lambda folder: (folder / "test_batch.bin").write_bytes(b""), "test_batch.bin: 0 bytes"),
    "label 10": (
        lambda folder: (folder / "data_batch_1.bin").write_bytes(b"\n" + bytes(3072)),
        "labels from 10 to 10",
    ),
    "names": (lambda folder: (folder / "batches.meta.txt").write_text("cat dog"), "the names of 10 classes"),
    "a NUL in a name": (
        lambda folder: (folder / "batches.meta.txt").write_bytes(b"a b c d e f g h i j\0\n"),
        "the names of 10 classes",
    ),
}


def shorten(path):
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_binary_file_is_named(tmp_path, fault):
    harm, said = FAULTS[fault]
    write_binary(tmp_path / "in")
    harm(tmp_path / "in")
    with pytest.raises(InputError, match=r".") as error:
        find_source("cifar10")(tmp_path / "in", 0)
    assert said in str(error.value)
    assert str(tmp_path / "in") in str(error.value)


X, Y = drawn(7)
BATCH_FAULTS = {
    "not a pickle": (b"<html>", "not a pickled dict"),
    "cut short": (python2({"data": X, "labels": Y.tolist()})[:-9], "not a pickled dict"),
    "a list": (pickle.dumps([1, 2], protocol=2), "not a pickled dict"),
    "no data": (python2({"labels": [1]}), "has no 'data'"),
    "no labels": (python2({"data": X}), "has no 'labels'"),
    "other pixels": (python2({"data": X[:, :300].copy(), "labels": Y.tolist()}), "no array of 3072 bytes"),
    "fewer labels": (python2({"data": X, "labels": Y.tolist()[:-1]}), "6 labels for 7 images"),
    "label 10": (python2({"data": X, "labels": [10] * 7}), "labels from 10 to 10"),
    "words for labels": (python2({"data": X, "labels": ["cat"] * 7}), "something else than numbers"),
}


@pytest.mark.parametrize("fault", BATCH_FAULTS)
def test_a_bad_pickled_batch_is_named(tmp_path, fault):
    content, said = BATCH_FAULTS[fault]
    write_python(tmp_path / "in")
    (tmp_path / "in" / "data_batch_4").write_bytes(content)
    with pytest.raises(InputError, match=r".") as error:
        find_source("cifar10")(tmp_path / "in", 0)
    assert said in str(error.value)
    assert "data_batch_4" in str(error.value)


PACKED = Path(os.environ.get("MPIFL_DATA", "no-data-folder"))
COUNTS = {
    "data_batch_1": [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981],
    "test_batch": [1000] * 10,
}


@pytest.mark.slow
@pytest.mark.skipif(
    not (PACKED / "unpack_cifar10.py").is_file(),
    reason="set MPIFL_DATA to a folder that has unpack_cifar10.py",
)
def test_the_real_cifar10(tmp_path_factory):
    kept = Path(os.environ.get("MPIFL_CIFAR10", tmp_path_factory.getbasetemp() / "cifar10"))
    if not (kept / "test_batch.bin").is_file():
        subprocess.run([sys.executable, PACKED / "unpack_cifar10.py", kept], check=True, capture_output=True)
    dataset = find_source("cifar10")(kept, 0)
    assert dataset.x.shape == (50_000, 3, 32, 32)
    assert np.bincount(dataset.y).tolist() == [5000] * 10
    assert np.bincount(dataset.y[:10_000]).tolist() == COUNTS["data_batch_1"]
    assert np.bincount(dataset.test[1]).tolist() == COUNTS["test_batch"]
    assert dataset.class_names == tuple(NAMES)
    means = dataset.x[::10].mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.005)
