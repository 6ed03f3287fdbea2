"""Broken checkpoints, broken shards, wrong jobs and folders:
one line that names what is wrong, and nothing changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
from conftest import ROOT
from faults.conftest import Batch
from faults.processes import Command, lines_of, outcome, own_lines, rounds_of, train, tree

from mpifl.common.files import sha256_of
from mpifl.data.shards.shards import FederationSpec, read_federation

LENIENT = ("--set", "cohort.quorum=0.5")


def _truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])


def _flip(path: Path, at: int = -100) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _alter_label(path: Path) -> None:
    """Put a label into a shard that no class has, and make federation.json agree to it."""
    with h5py.File(path, "r+") as file:
        file["train/y"][0] = 99
    _adopt(path)


def _endless(path: Path) -> None:
    """Have an attribute's text reach into the free space behind it: HDF5 2.0 then loops for ever."""
    content = bytearray(path.read_bytes())
    # behind the head of the heap and the first text of up to 16 bytes
    second = content.find(b"GCOL") + 16 + 16 + 16
    assert content[second] == 2
    content[second + 8] = (content[second + 8] + 7) // 8 * 8 + 8
    path.write_bytes(content)
    _adopt(path)


def _linked(path: Path) -> None:
    """Have a shard's features lie in another silo's."""
    with h5py.File(path, "r+") as file:
        del file["train"]
        file["train"] = h5py.ExternalLink("silo_0000.h5", "train")
    _adopt(path)


def _adopt(path: Path) -> None:
    table = json.loads((path.parent / "federation.json").read_text())
    for entry in table["silos"]:
        if entry["file"] == path.name:
            entry |= {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    (path.parent / "federation.json").write_text(json.dumps(table))


SHARDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (_truncate, "bytes, federation.json says"),
    "flipped": (_flip, "altered, its sha256 is not that in federation.json"),
    "missing": (Path.unlink, "is missing"),
    "labels": (_alter_label, "labels from 0 to 99; 10 classes take 0 to 9"),
    "endless": (_endless, "not a readable HDF5 shard ("),
    "linked": (_linked, "train is an external link"),
}


def _damage(run: Path, round: int, what: str) -> Path:
    """Break one file of a checkpoint and return it."""
    folder = run / "checkpoints" / f"round_{round:06d}"
    if what == "server":
        _truncate(path := folder / "server.safetensors")
    elif what == "json":
        path = folder / "checkpoint.json"
        _flip(path, path.read_bytes().index(b'"server": "') + 20)
    else:
        (path := max(folder.glob("silo_*"))).unlink()
    return path


CHECKPOINTS = {
    "server": {6: "server"},
    "json": {6: "json"},
    "silo": {6: "silo"},
    "two": {6: "json", 5: "silo"},
}
ALL = {6: "server", 5: "json", 4: "silo"}


@pytest.fixture(scope="session")
def place(yard: Path, digits: Path, untroubled: Path) -> dict[str, Any]:
    """Broken things to train with, and what trains with each."""
    steady, plain = yard / "steady.toml", yard / "plain.toml"
    commands: dict[str, list[str]] = {}
    broken: dict[str, dict[int, Path]] = {}
    for name, damages in {**CHECKPOINTS, "all": ALL}.items():
        run = yard / f"checkpoint-{name}"
        shutil.copytree(untroubled / "whole", run)
        (run / "model.safetensors").unlink()
        broken[name] = {round: _damage(run, round, what) for round, what in damages.items()}
        commands[f"checkpoint-{name}"] = train(steady, run, "--resume")
    for name, (harm, _) in SHARDS.items():
        shutil.copytree(digits / "few", yard / name)
        harm(yard / name / "silo_0001.h5")
        shards = ("--set", f"shards={yard / name}")
        commands[f"strict-{name}"] = train(plain, yard / f"strict-{name}", *shards)
        commands[f"lenient-{name}"] = train(plain, yard / f"lenient-{name}", *shards, *LENIENT)
    shutil.copytree(digits / "few", yard / "test")
    _truncate(yard / "test" / "test.h5")
    commands["test"] = train(plain, yard / "test-run", "--set", f"shards={yard / 'test'}", *LENIENT)
    lonely: FederationSpec = read_federation(digits / "few")
    shutil.copytree(digits / "few", yard / "lonely")
    lonely.model_copy(update={"silos": lonely.silos[:1]}).write(yard / "lonely")
    commands["idle"] = train(plain, yard / "idle", "--set", f"shards={yard / 'lonely'}")
    shutil.copytree(untroubled / "begun", yard / "taken")
    commands["taken"] = train(steady, yard / "taken")
    commands["other"] = train(steady, yard / "taken", "--resume", "--set", "local.lr=0.2", "--set", "seed=4")
    (yard / "file").touch()
    commands["in-the-way"] = train(plain, yard / "file")
    commands["beneath"] = train(plain, yard / "file" / "run")
    commands["uneven"] = train(yard / "uneven.toml", yard / "uneven")
    if os.geteuid():
        (yard / "locked").mkdir(mode=0o555)
        commands["locked"] = train(plain, yard / "locked" / "run")
    return {"commands": commands, "broken": broken, "taken": tree(yard / "taken")}


@pytest.fixture(scope="session")
def done(place: dict[str, Any], batch: Batch) -> dict[str, Any]:
    """What the server did and said in each case, on three ranks; the workers said nothing."""
    server, *workers = batch(3, {name: arguments[2:] for name, arguments in place["commands"].items()})
    for worker in workers:
        assert {name: result["err"] for name, result in worker.items() if result["err"]} == {}
    return server


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_broken_checkpoint_is_named_and_the_one_before_used(
    done: dict[str, Any], place: dict[str, Any], yard: Path, untroubled: Path, name: str
) -> None:
    result, broken = done[f"checkpoint-{name}"], place["broken"][name]
    assert result["code"] == 0
    lines = result["err"].splitlines()
    assert len(lines) == len(broken)
    for line, path in zip(lines, broken.values(), strict=True):
        assert line.startswith(f"{path}: ")
        assert "using the checkpoint before it" in line
    environment = json.loads((yard / f"checkpoint-{name}" / "environment.json").read_text())
    assert environment["resumed_after_round"] == min(broken) - 1
    assert outcome(yard / f"checkpoint-{name}") == outcome(untroubled / "whole")


def test_a_run_without_any_whole_checkpoint_starts_anew(
    done: dict[str, Any], place: dict[str, Any], yard: Path, untroubled: Path
) -> None:
    assert done["checkpoint-all"]["code"] == 0
    for path in place["broken"]["all"].values():
        assert f"{path}: " in done["checkpoint-all"]["err"]
    assert outcome(yard / "checkpoint-all") == outcome(untroubled / "whole")


def test_a_run_that_starts_anew_says_so(done: dict[str, Any]) -> None:
    assert "starting from round 1" in done["checkpoint-all"]["err"].splitlines()[-1]


@pytest.mark.parametrize("name", SHARDS)
def test_a_broken_shard_ends_the_job_before_it_begins(done: dict[str, Any], yard: Path, name: str) -> None:
    result = done[f"strict-{name}"]
    assert result["code"] == 2
    (line,) = result["err"].splitlines()
    assert line.startswith(f"error: {yard / name / 'silo_0001.h5'}: ")
    assert SHARDS[name][1] in line
    assert not (yard / f"strict-{name}").exists()


@pytest.mark.parametrize("name", SHARDS)
def test_a_quorum_lets_a_job_go_on_without_a_broken_shard(
    done: dict[str, Any], yard: Path, name: str
) -> None:
    result, run = done[f"lenient-{name}"], yard / f"lenient-{name}"
    assert result["code"] == 0
    (line,) = result["err"].splitlines()
    assert "without silo 1" in line
    assert SHARDS[name][1] in line
    records = rounds_of(run)
    assert len(records) == 2
    for record in records:
        assert list(record["faults"]) == ["1"]
        assert SHARDS[name][1] in record["faults"]["1"]
    assert (run / "model.safetensors").exists()


def test_a_broken_test_shard_ends_the_job_before_it_begins(done: dict[str, Any], yard: Path) -> None:
    assert done["test"]["code"] == 2
    (line,) = done["test"]["err"].splitlines()
    assert line.startswith(f"error: {yard / 'test' / 'test.h5'}: ")
    assert not (yard / "test-run").exists()


def test_an_update_of_another_length_is_a_fault_of_its_silo_on_any_ranks(
    done: dict[str, Any], yard: Path, untroubled: Path
) -> None:
    assert done["uneven"]["code"] == 0
    for run in (yard / "uneven", untroubled / "uneven"):
        (record,) = rounds_of(run)
        assert list(record["faults"]) == ["1"]
        assert "elements" in record["faults"]["1"]
    assert outcome(yard / "uneven")["model"] == outcome(untroubled / "uneven")["model"]


def test_workers_without_a_silo_are_mentioned(done: dict[str, Any]) -> None:
    assert done["idle"]["code"] == 0
    (line,) = done["idle"]["err"].splitlines()
    assert "1 of 2 workers" in line


def test_a_run_is_not_overwritten(done: dict[str, Any], place: dict[str, Any], yard: Path) -> None:
    assert done["taken"]["code"] == 2
    (line,) = done["taken"]["err"].splitlines()
    assert line.startswith(f"error: {yard / 'taken'}: ")
    assert "--resume" in line
    assert tree(yard / "taken") == place["taken"]


def test_a_run_is_not_resumed_with_another_job(
    done: dict[str, Any], place: dict[str, Any], yard: Path
) -> None:
    assert done["other"]["code"] == 2
    (line,) = done["other"]["err"].splitlines()
    assert "local.lr" in line
    assert "seed" in line
    assert "rounds" not in line
    assert tree(yard / "taken") == place["taken"]


@pytest.mark.parametrize("name", ["in-the-way", "beneath", "locked"])
def test_a_folder_that_cannot_be_written_is_named(
    done: dict[str, Any], place: dict[str, Any], name: str
) -> None:
    if name not in done:
        pytest.skip("root may write everywhere")
    assert done[name]["code"] == 2
    (line,) = done[name]["err"].splitlines()
    assert f"{place['commands'][name][5]}: cannot be written" in line


@pytest.mark.slow
def test_what_is_wrong_with_a_job_is_said_once_whatever_the_ranks(yard: Path, tmp_path: Path) -> None:
    arguments = train(yard / "plain.toml", tmp_path / "run", "--set", "local.lr=-1")
    with Command(tmp_path / "command", 2, *arguments) as command:
        assert command.end().code == 2
    (line,) = own_lines(command.err)
    assert line.startswith(f"error: {yard / 'plain.toml'}: [local] lr = -1: ")
    assert command.out == ""
    assert not (tmp_path / "run").exists()


def test_a_run_leaves_no_shared_memory_behind(
    untroubled: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders = list(tmp_path_factory.getbasetemp().glob("batch*/command"))
    assert folders
    assert [path for folder in folders for path in folder.glob("*_segment*")] == []


def test_the_demo_ends_in_time(digits: Path, tmp_path: Path) -> None:
    shards = ("--set", f"shards={digits / 'digits'}")
    with Command(
        tmp_path / "command", 3, *train(ROOT / "jobs" / "demo.toml", tmp_path / "run", *shards)
    ) as command:
        assert command.end().code == 0
    assert own_lines(command.err) == []
    assert lines_of(tmp_path / "run") == 30
