"""A disk that is full: training continues as far as it can,
says in a line what is missing, and is resumed with room."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from faults.processes import Command, lines_of, outcome, own_lines, train

FULL = "cannot be written (No space left on device)"
RESUME = "; make room, and continue with --resume"


def _fill(disk: Path, pages: int = 0) -> Path:
    """Leave so many pages of 4 KiB free; return the file that takes the room."""
    fill = disk / "fill"
    with fill.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    if pages:
        with fill.open("r+b") as file:
            file.truncate(fill.stat().st_size - pages * 4096)
    return fill


def test_a_disk_that_fills_amid_a_training_ends_it_in_a_line_and_resume_goes_on(
    yard: Path, untroubled: Path, tmp_path: Path, disk: Path
) -> None:
    run = disk / "run"
    arguments = train(yard / "steady.toml", run)
    with Command(tmp_path / "1", 3, *arguments, trouble={"hold": 3}) as command:
        command.reached()
        room = _fill(disk)
        assert command.release().end().code == 2
    *notes, last = own_lines(command.err)
    assert last == f"error: {run / 'model.safetensors'}: {FULL}{RESUME}"
    assert [line for line in notes if "the checkpoint of round" not in line] in (
        [],  # where the last page of the metrics has had room
        [f"{run / 'metrics.jsonl'}: {FULL}; training continues, its lines follow when there is room"],
    )
    assert [json.loads(line)["round"] for line in (run / "metrics.jsonl").open()] == [
        *range(1, 1 + lines_of(run))
    ]
    room.unlink()
    with Command(tmp_path / "2", 2, *arguments, "--resume") as command:
        assert command.end().code == 0
    assert outcome(run) == outcome(untroubled / "whole")


@pytest.mark.parametrize(
    ("pages", "name"),
    [pytest.param(2, "initial.safetensors", marks=pytest.mark.slow), (4, "environment.json")],
)
def test_a_disk_with_too_little_room_to_begin_is_a_line(
    yard: Path, tmp_path: Path, disk: Path, pages: int, name: str
) -> None:
    """The lock and the job take a page each, the model two."""
    room, run = _fill(disk, pages), disk / "run"
    arguments = train(yard / "plain.toml", run)
    with Command(tmp_path / "1", 1, *arguments) as command:
        assert command.end().code == 2
    assert own_lines(command.err) == [f"error: {run / name}: {FULL}{RESUME}"]
    room.unlink()
    with Command(tmp_path / "2", 1, *arguments, "--resume") as command:
        assert command.end().code == 0
    assert lines_of(run) == 2


@pytest.mark.slow
def test_a_full_disk_at_a_silo_is_a_line_and_resume_writes_its_model(
    yard: Path, tmp_path: Path, disk: Path
) -> None:
    run, room = tmp_path / "run", _fill(disk)
    run.mkdir()
    (run / "personal").symlink_to(disk)
    arguments = train(yard / "plain.toml", run, "--set", "algorithm.name=ditto")
    with Command(tmp_path / "1", 2, *arguments) as command:
        assert command.end().code == 2
    assert own_lines(command.err) == [f"error: {run / 'personal' / 'silo_0000.safetensors'}: {FULL}{RESUME}"]
    room.unlink()
    with Command(tmp_path / "2", 2, *arguments, "--resume") as command:
        assert command.end().code == 0
    assert sorted(path.name for path in disk.iterdir()) == ["silo_0000.safetensors", "silo_0001.safetensors"]
