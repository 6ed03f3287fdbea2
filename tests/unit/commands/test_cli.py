"""The command's own parts: what a rank says last is read before the launcher speaks of its end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpifl.cli.ending import CUT_OFF, _await_reader, code_of_launched


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_what_was_written_is_read_before_the_wait_ends(pipe: tuple[int, int]) -> None:
    def read_in_pieces() -> None:
        for _ in range(2):
            time.sleep(0.05)
            os.read(pipe[0], 4096)

    os.write(pipe[1], bytes(5000))
    reader = threading.Thread(target=read_in_pieces)
    reader.start()
    _await_reader(pipe[1], 30)
    os.set_blocking(pipe[0], False)
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)
    reader.join()


def test_who_never_reads_is_waited_for_so_long(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"unread")
    began = time.monotonic()
    _await_reader(pipe[1], 0.05)
    assert time.monotonic() - began >= 0.05


def test_a_file_has_no_reader(tmp_path: Path) -> None:
    began = time.monotonic()
    with (tmp_path / "log").open("w+") as file:
        file.write("unread")
        file.seek(0)  # a pipe would have 6 bytes to be read
        _await_reader(file.fileno(), 30)
    _await_reader(1 << 20, 30)  # nor has what is closed
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("begun", "committed", "says"),
    [
        (False, False, "the launcher ended ({code}) before the training began; run the same command again"),
        (False, True, "the launcher ended ({code}) before the training began; run the same command again"),
        (True, False, "ranks died, and the training ended with them before the first checkpoint; start anew"),
        (True, True, "ranks died, and the training ended with them; go on with --resume"),
    ],
)
@pytest.mark.parametrize("code", [0, 213])
def test_a_launched_training_that_is_cut_off_says_what_would_do(
    tmp_path: Path, capsys: pytest.CaptureFixture, begun: bool, committed: bool, says: str, code: int
) -> None:
    def launch() -> int:
        if begun:
            (tmp_path / "job.toml").write_text("rounds = 2")
        return code

    if committed:  # by the start before this one
        (tmp_path / "job.toml").write_text("rounds = 2")
        os.utime(tmp_path / "job.toml", (1, 1))
        (tmp_path / "checkpoints" / "round_000001").mkdir(parents=True)
        (tmp_path / "checkpoints" / "round_000001" / "checkpoint.json").touch()
    assert code_of_launched(launch, tmp_path) == (code or CUT_OFF)
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: {says.format(code=code)}")
