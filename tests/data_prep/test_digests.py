"""Files are looked through while shards are written: digests are theirs, and what cannot be read is told."""

import hashlib
import json
import sys
import threading

import h5py
import numpy as np
import pytest
from conftest import with_usual

from data_prep.cli import main
from data_prep.sources import npz, reading
from data_prep.sources.aims import PLAIN
from mpifl.common import InputError
from mpifl.data.shards import read_federation


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def arrays(folder):
    folder.mkdir()
    draw = np.random.default_rng(0)
    np.save(folder / "x.npy", draw.normal(size=(40, 3)).astype(np.float32))
    np.save(folder / "y.npy", draw.integers(0, 2, 40))
    return folder


WORDS = "--scheme", "iid", "--silos", 2
FUNCTION = """
import numpy as np

def made(seed, data):
    x, y = (np.load(data / f"{name}.npy") for name in "xy")
    (data / "cache.npy").write_bytes(b"of this very run")
    return x, y
"""


def source_of(kind, tmp_path, monkeypatch):
    """Write a source of a kind; return its name, its `--data`, and the digests that it has."""
    folder = arrays(tmp_path / "in")
    x, y = (np.load(folder / f"{name}.npy") for name in "xy")
    sha256 = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    if kind == "npy":
        return kind, folder, sha256
    if kind == "function":
        (tmp_path / "of_files.py").write_text(FUNCTION)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "of_files", raising=False)
        listed = "".join(f"{name}\n{sha256[name]}\n" for name in sorted(sha256))
        module = hashlib.sha256(FUNCTION.encode()).hexdigest()
        return (
            "of_files:made",
            folder,
            {"in/**": hashlib.sha256(listed.encode()).hexdigest(), "of_files.py": module},
        )
    path = tmp_path / f"own.{kind}"
    if kind == "npz":
        np.savez(path, x=x, y=y)
    else:
        with h5py.File(path, "w") as file:
            file["x"], file["y"] = x, y
    return kind, path, {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}


KINDS = "npy", "npz", "hdf5", "function"


@pytest.mark.parametrize("more", [[], ["--resume"], ["--scheme", "vertical"]])
@pytest.mark.parametrize("kind", KINDS)
def test_the_digests_are_those_of_the_files(tmp_path, monkeypatch, kind, more):
    source, data, sha256 = source_of(kind, tmp_path, monkeypatch)
    words = with_usual(more, scheme="iid", silos=2)
    assert command("partition", source, "--data", data, "--out", tmp_path / "out", *words) == 0
    assert json.loads((tmp_path / "out" / "federation.json").read_text())["source"]["files"] == sha256


@pytest.mark.parametrize("kind", KINDS)
def test_shards_are_written_before_the_last_digest_is_there(tmp_path, monkeypatch, kind):
    written, digest, waited = threading.Event(), reading.content_digest, []

    def late(file):
        waited.append(written.wait(180))
        return digest(file)

    monkeypatch.setattr(reading, "content_digest", late)
    monkeypatch.setattr("data_prep.cut.partitioning.make_shards", lambda *given: made(written, *given))
    source, data, sha256 = source_of(kind, tmp_path, monkeypatch)
    assert command("partition", source, "--data", data, "--out", tmp_path / "out", *WORDS) == 0
    assert waited
    assert all(waited)
    assert read_federation(tmp_path / "out").source["files"] == sha256


def made(written, *given):
    from data_prep.write import make_shards

    entries = make_shards(*given)
    written.set()
    return entries


def test_a_file_that_cannot_be_read_to_its_end_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    def failing(file):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(reading, "content_digest", failing)
    folder = arrays(tmp_path / "in")
    assert command("partition", "npy", "--data", folder, "--out", tmp_path / "out", *WORDS) == 2
    said = capsys.readouterr().err
    assert "x.npy: cannot be read (Input/output error)" in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("pack", [np.savez, np.savez_compressed])
def test_a_large_array_that_is_damaged_is_one_line_and_leaves_nothing(tmp_path, capsys, pack):
    path, rows = tmp_path / "in.npz", npz.LARGE // 4096
    x = np.random.default_rng(0).integers(0, 256, (rows, 4096), np.uint8)
    pack(path, x=x, y=np.arange(rows) % 2)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert command("partition", "npz", "--data", path, "--out", tmp_path / "out", *WORDS) == 2
    said = capsys.readouterr().err
    assert "in.npz: x is damaged (" in said
    assert said.count("\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["in.npz"]
    with pytest.raises(InputError, match="x is damaged"):
        npz.load_arrays(path, PLAIN)


def test_a_file_that_is_not_there_is_told_at_once(tmp_path):
    with pytest.raises(InputError, match=r"x\.npy: cannot be read"):
        reading.Digests().note(tmp_path / "x.npy")
