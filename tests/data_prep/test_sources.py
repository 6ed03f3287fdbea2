"""What goes in comes out, bit for bit, and what is wrong with a source is said in one line."""

import gzip
import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.sources import find_source
from mpifl.common import InputError
from mpifl.data.shards.shards import open_shard, read_federation

NAMES = {
    "x": "train-images-idx3-ubyte",
    "y": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, arrays, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for key, array in arrays.items():
        path = folder / (NAMES[key] + ".gz" * zipped)
        path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    return folder


def images(train=60, test=20, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.integers(0, 256, (train, 5, 4), np.uint8),
        "y": rng.integers(0, 10, train).astype(np.uint8),
        "x_test": rng.integers(0, 256, (test, 5, 4), np.uint8),
        "y_test": rng.integers(0, 10, test).astype(np.uint8),
    }


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def partition(source, data, out):
    return command("partition", source, "--data", data, "--out", out, "--scheme", "iid", "--silos", 4)


def rows(folder):
    """Return every training row of a folder and its label, sorted, and the test set as it stands."""
    spec = read_federation(folder)
    opened = [open_shard(folder, entry, spec)["train"] for entry in spec.silos]
    found = sorted((x.tobytes(), int(y)) for split in opened for x, y in zip(split.x, split.y, strict=True))
    return spec, found, open_shard(folder, spec.test, spec)["test"] if spec.test else None


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_come_back_bit_for_bit(tmp_path, zipped):
    arrays = images()
    assert partition("mnist", write_mnist(tmp_path / "in", arrays, zipped), tmp_path / "out") == 0
    spec, found, test = rows(tmp_path / "out")
    assert found == sorted((x.tobytes(), int(y)) for x, y in zip(arrays["x"], arrays["y"], strict=True))
    assert (spec.features.shape, spec.features.dtype, spec.features.scale) == ((1, 5, 4), "uint8", 1 / 255)
    assert spec.classes == 10
    assert np.array_equal(test.x[:, 0], arrays["x_test"])
    assert np.array_equal(test.y, arrays["y_test"])
    assert set(spec.source["files"]) == {name + ".gz" * zipped for name in NAMES.values()}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", ">f4"])
def test_npz_comes_back_bit_for_bit_in_its_own_dtype(tmp_path, dtype):
    rng = np.random.default_rng(1)
    x, y = (100 * rng.random((50, 2, 3))).astype(dtype), rng.integers(0, 7, 50)
    np.savez(tmp_path / "in.npz", x=x, y=y, x_test=x[:9], y_test=y[:9])
    assert partition("npz", tmp_path / "in.npz", tmp_path / "out") == 0
    spec, found, test = rows(tmp_path / "out")
    native = x.astype(x.dtype.newbyteorder("="))
    assert found == sorted((row.tobytes(), int(label)) for row, label in zip(native, y, strict=True))
    assert (spec.features.shape, spec.features.dtype, spec.features.scale) == (
        (2, 3),
        native.dtype.name,
        None,
    )
    assert np.array_equal(test.x, native[:9])


def test_npz_without_a_test_set_makes_no_test_shard(tmp_path):
    np.savez(tmp_path / "in.npz", x=np.zeros((8, 2)), y=np.arange(8) % 2)
    assert partition("npz", tmp_path / "in.npz", tmp_path / "out") == 0
    assert read_federation(tmp_path / "out").test is None
    assert not (tmp_path / "out" / "test.h5").exists()


def test_natural_silos_keep_their_ids_as_names(tmp_path):
    silo = np.array([7, -2, 7, 40, -2, 7])
    np.savez(tmp_path / "in.npz", x=np.arange(12.0).reshape(6, 2), y=np.zeros(6, int), silo=silo)
    command("partition", "npz", "--data", tmp_path / "in.npz", "--out", tmp_path / "o", "--scheme", "natural")
    spec = read_federation(tmp_path / "o")
    assert [(entry.name, entry.examples["train"]) for entry in spec.silos] == [("-2", 2), ("7", 3), ("40", 1)]
    assert open_shard(tmp_path / "o", spec.silos[1], spec)["train"].x[:, 0].tolist() == [0, 4, 10]


def test_digits_hold_out_a_stratified_fifth(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    command("partition", "digits", "--out", tmp_path / "out", "--scheme", "iid", "--silos", 4, "--seed", 3)
    spec, found, test = rows(tmp_path / "out")
    digits = datasets.load_digits()
    everything = found + [(x.tobytes(), int(y)) for x, y in zip(test.x, test.y, strict=True)]
    assert sorted(everything) == sorted(
        (x.astype(np.uint8).tobytes(), int(y)) for x, y in zip(digits.images, digits.target, strict=True)
    )
    assert (spec.features.shape, spec.features.dtype, spec.features.scale) == ((1, 8, 8), "uint8", 1 / 16)
    shares = np.bincount(test.y) / np.bincount(digits.target)
    assert shares == pytest.approx(np.full(10, 0.2), abs=0.003)


@pytest.mark.skipif(
    not (Path(os.environ.get("MPIFL_DATA", "no-data-folder")) / "mnist").is_dir(),
    reason="set MPIFL_DATA to a folder that has mnist/ with the four IDX files",
)
def test_the_real_mnist_in_the_papers_hundred_silos(tmp_path):
    command(
        "partition", "mnist", "--out", tmp_path / "out", "--scheme", "shards", "--silos", 100, "--seed", 1
    )
    spec = read_federation(tmp_path / "out")
    assert [entry.examples for entry in spec.silos] == [{"train": 600}] * 100
    assert spec.test is not None
    assert spec.test.examples == {"test": 10_000}
    seen = [np.count_nonzero(entry.labels) for entry in spec.silos]
    assert np.mean(seen) < 2.2
    assert max(seen) <= 4
    assert np.sum([entry.labels for entry in spec.silos], axis=0).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    digest = "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    assert spec.source["files"]["train-images-idx3-ubyte.gz"] == digest


def refused(capsys, tmp_path, source, data):
    """Partition, and return the one line that refuses it."""
    assert partition(source, data, tmp_path / "out") == 2
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-20])


def rewrite(change):
    return lambda path: path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


IDX_FAULTS = {
    "missing": ("x", Path.unlink, "train-images-idx3-ubyte.gz: is not there"),
    "truncated gzip": ("y_test", cut_short, "t10k-labels-idx1-ubyte.gz: corrupt gzip"),
    "not gzip": (
        "x",
        lambda path: path.write_bytes(b"<html>404</html>"),
        "train-images-idx3-ubyte.gz: corrupt gzip",
    ),
    "damaged gzip": (
        "x",
        lambda path: path.write_bytes(path.read_bytes()[:200] + b"\xff" * 50 + path.read_bytes()[250:]),
        "train-images-idx3-ubyte.gz: corrupt gzip",
    ),
    "damaged deflate": (
        "x",
        lambda path: path.write_bytes(path.read_bytes()[:10] + b"\xff" * 40),
        "train-images-idx3-ubyte.gz: corrupt gzip",
    ),
    "truncated IDX": (
        "x",
        rewrite(lambda content: content[:-1]),
        "holds 1,199 values, its header promises 1,200",
    ),
    "too long": (
        "x",
        rewrite(lambda content: content + b"!"),
        "holds more than the 1,200 values that its header",
    ),
    "header only": ("x", rewrite(lambda content: content[:7]), "less than an IDX header"),
    "empty": ("x", rewrite(lambda content: b""), "not an IDX file"),
    "wrong magic": ("y", rewrite(lambda content: b"\0\0\x0d\1" + content[4:]), "begins with 00 00 0d 01"),
    "images for labels": ("y", rewrite(lambda content: idx(images()["x"])), "begins with 00 00 08 03"),
    "fewer labels": ("y", rewrite(lambda content: idx(np.zeros(59, np.uint8))), "59 labels"),
    "label 10": (
        "y",
        rewrite(lambda content: idx(np.full(60, 10, np.uint8))),
        "label 10; they must be 0 to 9",
    ),
    "nothing": ("x", rewrite(lambda content: idx(np.zeros((60, 0, 4), np.uint8))), "hold nothing"),
    "other size": ("x_test", rewrite(lambda content: idx(np.zeros((20, 9, 4), np.uint8))), "5x4 pixels"),
}


@pytest.mark.parametrize("fault", IDX_FAULTS)
def test_a_bad_idx_file_is_named(tmp_path, capsys, fault):
    key, harm, said = IDX_FAULTS[fault]
    folder = write_mnist(tmp_path / "in", images())
    harm(folder / f"{NAMES[key]}.gz")
    line = refused(capsys, tmp_path, "mnist", folder)
    assert said in line
    assert str(folder) in line


X, Y = np.ones((12, 3)), np.arange(12) % 3
RAGGED = np.array([[1], [1, 2]], dtype=object)
NPZ_FAULTS = {
    "no x": ({"y": Y}, "has no array 'x'"),
    "no y": ({"x": X}, "has no array 'y'"),
    "x_test alone": ({"x": X, "y": Y, "x_test": X}, "has no array 'y_test'"),
    "objects": ({"x": X.astype(object), "y": Y}, "x holds Python objects"),
    "ragged": ({"x": RAGGED, "y": Y[:2]}, "is ragged"),
    "object labels": ({"x": X, "y": Y.astype(object)}, "y holds Python objects"),
    "NaN": ({"x": np.where(np.arange(12)[:, None] == 5, np.nan, X), "y": Y}, "first in example 5"),
    "infinite": ({"x": X * np.inf, "y": Y}, "NaN or infinite"),
    "NaN in x_test": ({"x": X, "y": Y, "x_test": X * np.nan, "y_test": Y}, "x_test has NaN"),
    "complex labels": ({"x": X, "y": Y * 1j}, "y has dtype complex128"),
    "negative labels": ({"x": X, "y": Y - 1}, "labels from -1 to 1"),
    "huge labels": ({"x": X, "y": Y + 2**40}, "number the classes 0, 1, 2"),
    "lengths differ": ({"x": X, "y": Y[:-1]}, "y has shape [11]; there are 12 examples"),
    "labels of two axes": ({"x": X, "y": Y[:, None]}, "y has shape [12, 1]"),
    "silo too short": ({"x": X, "y": Y, "silo": Y[:5]}, "silo has shape [5]"),
    "float silo": ({"x": X, "y": Y, "silo": Y * 1.0}, "silo has dtype float64"),
    "one axis": ({"x": X[:, 0], "y": Y}, "x has shape [12]"),
    "no features": ({"x": X[:, :0], "y": Y}, "x has shape [12, 0]"),
    "no examples": ({"x": X[:0], "y": Y[:0]}, "has 0 examples"),
    "strings": ({"x": X.astype(str), "y": Y}, "convert it to one of uint8"),
    "complex": ({"x": X * 1j, "y": Y}, "x has dtype complex128"),
    "other test shape": ({"x": X, "y": Y, "x_test": X[:, :2], "y_test": Y}, "x_test has float64 [2]"),
    "other test dtype": ({"x": X, "y": Y, "x_test": X.astype("f4"), "y_test": Y}, "x_test has float32 [3]"),
}


@pytest.mark.parametrize("fault", NPZ_FAULTS)
def test_a_bad_array_is_named(tmp_path, capsys, fault):
    arrays, said = NPZ_FAULTS[fault]
    path = tmp_path / "in.npz"
    np.savez(path, **arrays)
    line = refused(capsys, tmp_path, "npz", path)
    assert said in line
    assert str(path) in line


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return stream.getvalue()


WHOLE = zipped(x=npy(X), y=npy(Y))
NPZ_FILES = {
    "text": (b"x,y\n1,2\n", "not a .npz file"),
    "empty": (b"", "not a .npz file"),
    "a single array": (npy(X), "not a .npz file"),
    "a pickle": (b"\x80\x04N.", "not a .npz file"),
    "cut short": (WHOLE[:200], "not a .npz file"),
    "a flipped byte": (WHOLE.replace(npy(X)[-16:], b"\x55" * 16, 1), "x is damaged"),
    "shorter than its header": (zipped(x=npy(X)[:-8], y=npy(Y)), "x is damaged"),
    "no array inside": (zipped(x=b"hello there", y=npy(Y)), "x is not an array"),
}


@pytest.mark.parametrize("fault", NPZ_FILES)
def test_a_damaged_npz_is_named(tmp_path, capsys, fault):
    content, said = NPZ_FILES[fault]
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    line = refused(capsys, tmp_path, "npz", path)
    assert said in line
    assert str(path) in line


@pytest.mark.parametrize("source", ["mnist", "npz"])
def test_data_that_is_not_there(tmp_path, capsys, source):
    assert str(tmp_path / "nowhere") in refused(capsys, tmp_path, source, tmp_path / "nowhere")


def test_digits_take_no_data(tmp_path, capsys):
    assert "--data" in refused(capsys, tmp_path, "digits", tmp_path)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("images", []),
        ("images", ["masks=masks"]),
        ("text", []),
        ("jsonl", []),
        ("nifti", ["masks=masks"]),
        ("dicom", ["label=Modality"]),
        ("leaf", []),
        ("npz", []),
        ("npy", []),
        ("hdf5", []),
        ("csv", []),
    ],
)
def test_a_mistyped_path_is_not_there(tmp_path, source, words):
    (tmp_path / "scans").mkdir()
    with pytest.raises(
        InputError, match=rf"^{tmp_path}/scanz: is not there; did you mean '{tmp_path}/scans'"
    ):
        find_source(source, words)(tmp_path / "scanz", 0)
    if words == ["masks=masks"]:
        with pytest.raises(InputError, match=r"^masks: is not there"):
            find_source(source, words)(tmp_path / "scans", 0)
