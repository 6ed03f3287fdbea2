"""Silos' files: plain ones as ever, sealed ones that tell nothing and open where they belong."""

from __future__ import annotations

import hashlib

import pytest
import torch

from mpifl.run.folder import CheckpointError, StateFiles, checkpoint, serialization
from mpifl.wings.site import SiteSeal

CPU = torch.device("cpu")
STATE = {"c": torch.arange(500.0), "n": 3}


def files(run, secret=bytes(32), name="run"):
    return StateFiles(run, SiteSeal(secret, name))


def write(these, round, silo, state=STATE):
    these.begin(round, silo, state)
    return these.digest(round, silo)


def test_without_a_seal_a_file_is_what_it_was(tmp_path):
    plain = StateFiles(tmp_path)
    sha256 = write(plain, 10, 1)
    path = checkpoint.silo_file(tmp_path, 10, 1)
    assert serialization.write_state(tmp_path / "other", STATE) == sha256
    assert (tmp_path / "other").read_bytes() == path.read_bytes()
    assert plain.read(10, 1, sha256)["n"] == 3


def test_files_of_checkpoints_that_the_server_has_no_more_are_removed(tmp_path):
    plain = StateFiles(tmp_path)
    for round, oldest in ((10, 0), (20, 10), (30, 20)):
        plain.begin(round, 1, STATE, oldest)
        plain.begin(round, 4, STATE, oldest)
        plain.digest(round, 1)
        plain.digest(round, 4)
    assert checkpoint.rounds(tmp_path) == [30, 20]
    theirs = checkpoint.server_file(tmp_path, 20)
    theirs.touch()
    for silo in (1, 4):
        plain.begin(40, silo, STATE, 10**9)
        plain.digest(40, silo)
    assert [plain.path(40, silo).exists() for silo in (1, 4)] == [True, True], "whatever the server says"
    assert [path.name for path in theirs.parent.iterdir()] == [theirs.name], "what silos did not write stays"


def test_a_sealed_state_is_read_again_and_equal_states_have_equal_files(tmp_path):
    sha256 = write(files(tmp_path / "one"), 10, 1)
    assert write(files(tmp_path / "two"), 10, 1, {"n": 3, "c": torch.arange(500.0)}) == sha256
    (path,) = (tmp_path / "one").rglob("silo_*")
    assert path.name == "silo_0001.sealed"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    assert b"F32" not in path.read_bytes()
    found = files(tmp_path / "one").read(10, 1, sha256)
    assert found["c"].equal(STATE["c"])
    assert found["n"] == 3


@pytest.mark.parametrize(("round", "silo"), [(20, 1), (10, 2)])
def test_a_file_of_another_round_or_silo_is_seen_though_its_sha256_is_told(tmp_path, round, silo):
    """Who holds the run folder can put an older file there, and say its sha256."""
    these = files(tmp_path)
    sha256 = write(these, 10, 1)
    these.path(round, silo).parent.mkdir(parents=True, exist_ok=True)
    these.path(10, 1).rename(these.path(round, silo))
    with pytest.raises(CheckpointError) as caught:
        these.read(round, silo, sha256)
    what = f"is not what this site has sealed as round {round} silo {silo} of this run, or was altered"
    to_do = "put back that file, or the key in the site's folder"
    assert str(caught.value) == f"{these.path(round, silo)}: {what}; {to_do}"


@pytest.mark.parametrize("other", [{"secret": b"\1" * 32}, {"name": "another"}])
def test_a_file_of_another_site_or_run_does_not_open(tmp_path, other):
    sha256 = write(files(tmp_path), 10, 1)
    with pytest.raises(CheckpointError, match="is not what this site has sealed"):
        files(tmp_path, **other).read(10, 1, sha256)


def test_a_sealed_tensor_that_changes_while_it_is_written_makes_no_checkpoint(tmp_path, monkeypatch):
    these, state = files(tmp_path), {"c": torch.ones(5)}
    packed = serialization.packed
    monkeypatch.setattr(serialization, "packed", lambda given: [packed(given), state["c"].add_(1)][0])
    these.begin(10, 1, state)
    with pytest.raises(CheckpointError, match="'c' was changed while it was written"):
        these.digest(10, 1)
