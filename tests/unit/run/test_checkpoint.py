"""Checkpoints: bit for bit there and back, and nothing but a whole one is ever read."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file
from unit.builders import batch_norm_net, same_bits

from mpifl.common.errors import InputError
from mpifl.run.folder import checkpoint, serialization
from mpifl.run.folder.checkpoint import CheckpointError
from mpifl.silo.parameters.flat_model import FlatModel

STATE = {
    "w": torch.tensor([0.1, -0.0, math.nan, math.inf, 1e-45, 3e38]),
    "empty": torch.empty(0),
    "precise": torch.tensor([1 / 3, 5e-324], dtype=torch.float64),
    "counts": torch.tensor([2**62, -1]),
    "bytes": torch.tensor([0, 255], dtype=torch.uint8),
    "half": torch.tensor([1.5], dtype=torch.bfloat16).view(1),
    "mu": 1 / 3,
    "step": 2**53 + 1,
    "done": True,
    "word": "é",
}
POSITIONS = [0, 1, 7, 8, 9, 20, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, -1]
KINDS = ["server.safetensors", "silo_0003.safetensors", "checkpoint.json"]


def write(run, round, state, silos):
    """Complete a checkpoint whose silos' files are written."""
    checkpoint.commit(run, round, serialization.write_state(checkpoint.server_file(run, round), state), silos)


def at(content, position):
    """Turn a position, a share of the length or a negative one, into an index."""
    return int(len(content) * position) if isinstance(position, float) else position % len(content)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return same_bits(one, other) if one.dtype != torch.bfloat16 else torch.equal(one, other)
    return type(one) is type(other) and one == other


@pytest.fixture
def run(tmp_path):
    """A run folder with a checkpoint after rounds 10 and 20 in which silo 3 keeps state."""
    for round in (10, 20):
        digest = serialization.write_state(
            checkpoint.silo_file(tmp_path, round, 3), {"c": torch.ones(5), "n": round}
        )
        write(tmp_path, round, STATE, {3: digest})
    return tmp_path


def read_all(run, round):
    """Read a checkpoint as a resumed run does: the server's state, then every silo's."""
    state, silos = checkpoint.read(run, round)
    return state, {
        k: checkpoint.read_state(checkpoint.silo_file(run, round, k), sha) for k, sha in silos.items()
    }


def test_a_checkpoint_comes_back_to_the_bit(run):
    state, silos = read_all(run, 20)
    assert state.keys() == STATE.keys()
    assert all(equal(state[name], STATE[name]) for name in STATE)
    assert silos.keys() == {3}
    assert same_bits(silos[3]["c"], torch.ones(5))
    assert silos[3]["n"] == 20


def test_the_same_state_makes_the_same_bytes_whatever_its_order(tmp_path):
    digests = [
        serialization.write_state(tmp_path / f"{i}.safetensors", state)
        for i, state in enumerate([STATE, dict(reversed(STATE.items()))])
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    "share",
    [lambda t: t, lambda t: t[1:], lambda t: t.view(2, 2), lambda t: t[::2]],
    ids=["itself", "a part", "a view", "every other"],
)
def test_state_that_shares_storage_is_written_as_what_it_is(tmp_path, share):
    whole = torch.arange(4.0)
    state = {"a": whole, "b": share(whole)}
    digest = serialization.write_state(tmp_path / "x.safetensors", state)
    found = checkpoint.read_state(tmp_path / "x.safetensors", digest)
    assert all(torch.equal(found[name], state[name]) for name in state)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_short_anywhere_is_no_checkpoint(run, kind, position):
    path = checkpoint.round_folder(run, 20) / kind
    content = path.read_bytes().rstrip(b"\n")
    path.write_bytes(content[: at(content, position)])
    with pytest.raises(CheckpointError, match=kind):
        read_all(run, 20)
    read_all(run, 10)


@pytest.mark.parametrize("bit", [0, 3, 7])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_anywhere_is_found(run, kind, position, bit):
    path = checkpoint.round_folder(run, 20) / kind
    content = bytearray(path.read_bytes())
    content[at(content, position)] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=kind):
        read_all(run, 20)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_no_checkpoint(run, kind):
    (checkpoint.round_folder(run, 20) / kind).unlink()
    with pytest.raises(CheckpointError, match=kind):
        read_all(run, 20)


@pytest.mark.parametrize("content", ["", "null", "3", "[]", '"x"', "{}", '{"sha256": "x"}', "not JSON"])
def test_a_description_that_is_something_else_is_refused(run, content):
    (checkpoint.round_folder(run, 20) / "checkpoint.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json"):
        checkpoint.read(run, 20)


def test_a_checkpoint_under_another_rounds_name_is_refused(run):
    checkpoint.round_folder(run, 20).rename(checkpoint.round_folder(run, 21))
    with pytest.raises(CheckpointError, match="altered"):
        checkpoint.read(run, 21)


def test_another_version_is_named(run, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 99)
    with pytest.raises(CheckpointError, match="version 1, this program reads 99"):
        checkpoint.read(run, 20)


def test_a_file_of_another_checkpoint_is_refused(run):
    folders = [checkpoint.round_folder(run, round) for round in (10, 20)]
    (folders[1] / "silo_0003.safetensors").write_bytes((folders[0] / "silo_0003.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="silo_0003"):
        read_all(run, 20)


def test_what_a_kill_leaves_half_written_is_no_checkpoint(run, monkeypatch):
    def killed(path, content):
        raise KeyboardInterrupt

    digest = serialization.write_state(checkpoint.silo_file(run, 30, 3), {"c": torch.ones(5)})
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            write(run, 30, STATE, {3: digest})
    assert checkpoint.rounds(run) == [30, 20, 10]
    with pytest.raises(CheckpointError):
        checkpoint.read(run, 30)
    write(run, 30, STATE, {3: digest})
    read_all(run, 30)


def test_nothing_but_its_files_is_left_by_a_write(run):
    assert sorted(path.name for path in checkpoint.round_folder(run, 20).iterdir()) == sorted(KINDS)


def test_rounds_are_listed_latest_first_and_other_folders_are_not(run):
    for name in ("round_000005", "round_1234567", "round_7", "round_x", "round_000009.old", "other"):
        (run / "checkpoints" / name).mkdir()
    assert checkpoint.rounds(run) == [1234567, 20, 10, 5]
    assert checkpoint.rounds(run / "nowhere") == []


def test_a_discarded_checkpoint_is_gone_and_discarding_nothing_is_nothing(run):
    checkpoint.discard(run, 20)
    checkpoint.discard(run, 99)
    assert checkpoint.rounds(run) == [10]
    read_all(run, 10)


def test_discarding_first_takes_away_what_makes_it_a_checkpoint(run, monkeypatch):
    monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda *_, **__: None)
    checkpoint.discard(run, 20)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json"):
        checkpoint.read(run, 20)


def test_the_description_names_every_file_with_its_sha256(run):
    body = json.loads((checkpoint.round_folder(run, 20) / "checkpoint.json").read_text())
    assert body["round"] == 20
    assert body["silos"].keys() == {"3"}


def test_a_written_model_loads_without_mpifl(tmp_path):
    model, plain = FlatModel(batch_norm_net(), personal=["0.bias"]), batch_norm_net(seed=1)
    checkpoint.write_model(tmp_path / "model.safetensors", model)
    plain.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert all(
        torch.equal(value, plain.state_dict()[name]) for name, value in model.module.state_dict().items()
    )


def test_a_checkpoint_error_is_one_that_the_user_is_meant_to_read():
    assert issubclass(CheckpointError, InputError)


def test_a_checkpoint_that_is_set_aside_is_none_of_the_runs(tmp_path):
    for round in (2, 4):
        checkpoint.round_folder(tmp_path, round).mkdir(parents=True)
        (checkpoint.round_folder(tmp_path, round) / "checkpoint.json").touch()
    for _ in range(2):
        checkpoint.set_aside(tmp_path, 4)
        checkpoint.round_folder(tmp_path, 4).mkdir()
        assert checkpoint.committed(tmp_path) == [2]
    assert (tmp_path / "checkpoints/unread_000004").is_dir()
