"""CIFAR in its publisher's binary version; the Python version is pickles, which are never read."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_prep.sources.source_registry import find_source
from mpifl.common.errors import InputError

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def drawn(n, classes=10, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), np.uint8), rng.integers(0, classes, n)


def write_binary(folder, sizes=(7, 7, 7, 7, 7, 4)):
    folder.mkdir(parents=True)
    batches = [drawn(n, seed=number) for number, n in enumerate(sizes)]
    for name, (x, y) in zip(BATCHES, batches, strict=True):
        (folder / f"{name}.bin").write_bytes(
            np.concatenate([y[:, None].astype(np.uint8), x], axis=1).tobytes()
        )
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
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


@pytest.mark.parametrize("coarse", [False, True])
def test_cifar100_has_a_fine_and_a_coarse_label(tmp_path, coarse):
    x, fine = drawn(30, 100)
    labels = fine // 5, fine
    content = np.concatenate([np.stack(labels, 1).astype(np.uint8), x], axis=1).tobytes()
    for name in ("train", "test"):
        (tmp_path / f"{name}.bin").write_bytes(content)
    dataset = find_source("cifar100", [f"coarse={str(coarse).lower()}"])(tmp_path, 0)
    assert np.array_equal(dataset.x.reshape(30, -1), x)
    assert np.array_equal(dataset.y, labels[0 if coarse else 1])
    assert (dataset.classes, dataset.class_names) == (20 if coarse else 100, None)


FAULTS = {
    "missing": (lambda folder: (folder / "data_batch_3.bin").unlink(), "data_batch_3.bin: cannot be read"),
    "nothing": (
        lambda folder: [path.unlink() for path in folder.iterdir()],
        "data_batch_1.bin: is not there; --data must name its folder, or say --fetch, too",
    ),
    "cut short": (
        lambda folder: shorten(folder / "data_batch_2.bin"),
        "data_batch_2.bin: 21503 bytes are not a whole",
    ),
    "empty": (lambda folder: (folder / "test_batch.bin").write_bytes(b""), "test_batch.bin: 0 bytes"),
    "the python version": (
        lambda folder: [path.rename(path.with_suffix("")) for path in folder.glob("*.bin")],
        "; files without .bin are of the Python version, and docs/howto/formats.md has a function",
    ),
    "a terabyte": (
        lambda folder: os.truncate(folder / "data_batch_1.bin", 1 << 40),
        "1,099,511,627,776 bytes",
    ),
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
