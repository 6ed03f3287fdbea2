"""Files are looked through while shards are written: digests are theirs, and what cannot be read is told."""

import hashlib
import threading

import numpy as np
import pytest
from conftest import with_usual

from data_prep.cli import main
from data_prep.sources import reading
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


@pytest.mark.parametrize("more", [[], ["--resume"], ["--scheme", "vertical"]])
def test_the_digests_are_those_of_the_files(tmp_path, more):
    folder = arrays(tmp_path / "in")
    words = with_usual(more, scheme="iid", silos=2)
    assert command("partition", "npy", "--data", folder, "--out", tmp_path / "out", *words) == 0
    spec = tmp_path / "out" / "federation.json"
    for name in ("x.npy", "y.npy"):
        assert f'"{name}": "{hashlib.sha256((folder / name).read_bytes()).hexdigest()}"' in spec.read_text()


def test_shards_are_written_before_the_last_digest_is_there(tmp_path, monkeypatch):
    written, digest = threading.Event(), reading.content_digest

    def late(file):
        assert written.wait(60)
        return digest(file)

    monkeypatch.setattr(reading, "content_digest", late)
    monkeypatch.setattr("data_prep.cut.partitioning.make_shards", lambda *given: made(written, *given))
    folder = arrays(tmp_path / "in")
    assert command("partition", "npy", "--data", folder, "--out", tmp_path / "out", *WORDS) == 0
    assert len(read_federation(tmp_path / "out").source["files"]["x.npy"]) == 64


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


def test_a_file_that_is_not_there_is_told_at_once(tmp_path):
    with pytest.raises(InputError, match=r"x\.npy: cannot be read"):
        reading.Digests().note(tmp_path / "x.npy")
