"""Checkpoints that are written while training continues: held half way, what comes then does no harm."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from faults.processes import Command, checkpoints, lines_of, outcome, own_lines, pid_of, train
from faults.test_survival import LONGEST, _has_ulfm, _what_counts

BACKGROUND = ("--set", "checkpoint.background=true")
FOREGROUND = ("--set", "checkpoint.every=2")
survives = pytest.mark.skipif(not _has_ulfm(), reason="needs Open MPI 5")


def _every(rounds: int) -> tuple[str, ...]:
    return (*BACKGROUND, "--set", f"checkpoint.every={rounds}")


def test_the_bits_are_those_of_checkpoints_in_the_foreground(
    yard: Path, untroubled: Path, tmp_path: Path
) -> None:
    with Command(
        tmp_path / "command", 3, *train(yard / "steady.toml", tmp_path / "run", *BACKGROUND)
    ) as command:
        assert command.end().code == 0
    assert own_lines(command.err) == []
    assert outcome(tmp_path / "run") == outcome(untroubled / "whole")
    assert checkpoints(tmp_path / "run") == [4, 5, 6]


def test_a_kill_amid_a_write_leaves_the_checkpoint_before(
    yard: Path, untroubled: Path, tmp_path: Path
) -> None:
    run, trouble = tmp_path / "run", {"write": [4, "silo_*", 1]}
    arguments = train(yard / "steady.toml", run, *_every(2))
    with Command(tmp_path / "1", 3, *arguments, trouble=trouble) as command:
        command.reached().until(
            lambda: lines_of(run) >= 5, "a round after the one whose checkpoint is being written"
        )
        command.kill()
    assert checkpoints(run) == [2]
    assert list(run.glob("checkpoints/round_000004/.*.partial"))
    with Command(tmp_path / "2", 2, *arguments, "--resume") as command:
        assert command.end().code == 0
    assert "round_000004/checkpoint.json: missing or torn" in command.err
    assert outcome(run) == outcome(untroubled / "whole")


@pytest.mark.slow
def test_a_signal_waits_for_what_is_being_written(yard: Path, untroubled: Path, tmp_path: Path) -> None:
    run, trouble = tmp_path / "run", {"write": [4, "silo_*", 1]}
    arguments = train(yard / "steady.toml", run, *_every(4), "--set", "rounds=12")
    with Command(tmp_path / "1", 3, *arguments, trouble=trouble) as command:
        command.reached().until(
            lambda: lines_of(run) >= 6, "rounds after the one whose checkpoint is being written"
        )
        os.kill(pid_of(run, 1), signal.SIGUSR1)
        command.wait(0.2)
        assert checkpoints(run) == []
        assert command.release().end().code == 75
    assert checkpoints(run)[0] == 4
    assert checkpoints(run)[-1] == lines_of(run)
    assert own_lines(command.err) == []
    with Command(tmp_path / "2", 1, *arguments, "--resume") as command:
        assert command.end().code == 0
    assert outcome(run) == outcome(untroubled / "long")


@pytest.mark.parametrize(
    ("more", "pattern"),
    [
        (_every(2), "silo_0001*"),
        *(
            pytest.param(FOREGROUND, name, marks=pytest.mark.slow)
            for name in ("checkpoint.json", "silo_0001*")
        ),
        *(pytest.param(more, "server*", marks=pytest.mark.slow) for more in (_every(2), FOREGROUND)),
        pytest.param(_every(2), "checkpoint.json", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_is_named_and_training_goes_on(
    yard: Path, untroubled: Path, tmp_path: Path, more: tuple[str, ...], pattern: str
) -> None:
    ranks = 3 if pattern == "silo_0001*" else 1
    arguments, trouble = train(yard / "steady.toml", tmp_path / "run", *more), {"full": [4, pattern]}
    with Command(tmp_path / "command", ranks, *arguments, trouble=trouble) as command:
        assert command.end().code == 0
    (line,) = own_lines(command.err)
    assert line.startswith("the checkpoint of round 4 could not be written (")
    assert "No space left on device" in line
    assert line.endswith("; training continues")
    assert checkpoints(tmp_path / "run") == [2, 6]
    assert outcome(tmp_path / "run") == outcome(untroubled / "whole")


@survives
@pytest.mark.slow
def test_a_dead_ranks_silos_come_from_the_last_checkpoint_that_counts(yard: Path, tmp_path: Path) -> None:
    run, trouble = tmp_path / "run", {"write": [2, "silo_*", 1], "die": {"2": ("judged", "learn", 3)}}
    arguments = train(yard / "steady.toml", run, *BACKGROUND)
    with Command(tmp_path / "command", 4, *arguments, trouble=trouble, survive=True) as command:
        command.until(lambda: "rank 2 died" in command.err, "the death to be noticed")
        assert command.release().end(LONGEST).code == 0
    assert ", with what was kept in round 1" in command.err
    assert "the checkpoint of round 2 could not be written (" in command.err
    assert checkpoints(run) == [4, 5, 6]


@survives
@pytest.mark.slow
def test_a_new_server_goes_on_from_the_last_checkpoint_that_counts(
    yard: Path, untroubled: Path, tmp_path: Path
) -> None:
    run, trouble = tmp_path / "run", {"write": [3, "silo_*", 1], "die": {"0": ("judged", "learn", 4)}}
    arguments = train(yard / "steady.toml", run, *BACKGROUND)
    with Command(tmp_path / "command", 4, *arguments, trouble=trouble, survive=True) as command:
        command.until(lambda: "is the server now" in command.err, "another server")
        assert command.release().end(LONGEST).code == 0
    assert "continues from the last checkpoint, after round 2" in command.err
    assert _what_counts(run) == _what_counts(untroubled / "whole")
