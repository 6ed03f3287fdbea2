"""Files that a thread writes: what was there when they were begun, and one line where that cannot be."""

import hashlib
import threading

import pytest
import torch
from unit.builders import room_for

from mpifl.run.folder import checkpoint, serialization
from mpifl.run.folder.checkpoint import CheckpointError
from mpifl.run.folder.writer import StateWriter


@pytest.fixture
def gate(monkeypatch):
    """What the writing of files waits for."""
    opened, write_atomic = threading.Event(), serialization.write_atomic

    def later(path, content):
        assert opened.wait(180)
        write_atomic(path, content)

    monkeypatch.setattr(serialization, "write_atomic", later)
    yield opened
    opened.set()


def test_what_is_written_is_the_state_as_it_was(tmp_path, gate):
    writer, path, state = StateWriter(), tmp_path / "round" / "a.safetensors", {"c": torch.ones(5), "n": 1}
    writer.begin(path, state)
    assert writer.writing(path)
    state |= {"c": torch.zeros(5), "n": 2}  # as a silo's state is replaced when it keeps something
    gate.set()
    digest = writer.digest(path)
    assert not writer.writing(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    found = checkpoint.read_state(path, digest)
    assert (found["c"].tolist(), found["n"]) == ([1.0] * 5, 1)


def test_a_tensor_that_changes_while_it_is_written_makes_no_checkpoint(tmp_path, gate):
    writer, path, state = StateWriter(), tmp_path / "a.safetensors", {"c": torch.ones(5)}
    writer.begin(path, state)
    state["c"].add_(1)
    gate.set()
    with pytest.raises(CheckpointError, match="'c' was changed while it was written"):
        writer.digest(path)


def test_a_full_disk_is_one_line_and_the_next_file_is_written(tmp_path):
    writer, path = StateWriter(), tmp_path / "a.safetensors"
    with room_for(64):
        writer.begin(path, {"c": torch.ones(5)})
        with pytest.raises(CheckpointError) as caught:
            writer.digest(path)
    assert str(caught.value) == f"{path}: cannot be written (File too large)"
    assert list(tmp_path.iterdir()) == []
    writer.begin(path, {"c": torch.ones(5)})
    assert checkpoint.read_state(path, writer.digest(path))["c"].tolist() == [1.0] * 5


def test_a_file_that_was_not_begun_here_is_refused_and_another_folder_forgets(tmp_path):
    writer, old, new = StateWriter(), tmp_path / "1" / "a", tmp_path / "2" / "a"
    writer.begin(old, {"n": 1})
    writer.begin(new, {"n": 2})
    assert writer.digest(new)
    assert old.exists()
    with pytest.raises(CheckpointError, match="by a rank that died"):
        writer.digest(old)
