"""A training of real ranks watched in a real terminal, and page after page while it continues."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

from conftest import rank_environment, ranks
from faults.processes import PATIENCE, Command, lines_of, train

TAKEN, GIVEN_BACK = b"\x1b[?1049h", b"\x1b[?1049l"
"""What takes a screen of its own, and gives it back (xterm's control sequences)."""


class Terminal:
    """A command in a terminal of 100 columns."""

    def __init__(self, *arguments: str) -> None:
        self.shown = b""
        self._pid, self._keyboard = pty.fork()
        if self._pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests in the background of a script ignore it
            size = {"COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
            os.execve(sys.executable, [sys.executable, *arguments], rank_environment(**size))

    def until(self, text: bytes) -> None:
        """Read until this has been shown."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert self._read_until(deadline), self.shown[-3000:]

    def press(self, key: bytes) -> int:
        """Press a key, and return the exit code of the command that ends of it."""
        os.write(self._keyboard, key)
        deadline = time.monotonic() + PATIENCE
        while self._read_until(deadline):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read_until(self, deadline: float) -> bool:
        """Read what is shown next; return False at the command's end. One that goes on for too long fails."""
        left = deadline - time.monotonic()
        if left < 0 or not select.select([self._keyboard], [], [], left)[0]:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            raise AssertionError(self.shown[-3000:])
        try:
            self.shown += os.read(self._keyboard, 65536)
        except OSError:  # the other end is shut
            return False
        return True


def test_a_training_is_watched_until_its_end_and_ctrl_c_leaves_the_terminal_whole(
    yard: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with Command(tmp_path / "job", 2, *train(yard / "steady.toml", run), trouble={"hold": 3}) as job:
        job.reached()
        assert ranks(1, "-m", "mpifl", "watch", run, "--once").returncode == 5
        terminal = Terminal("-m", "mpifl", "watch", str(run), "--every", "0.1")
        terminal.until(b"round 2 of 6")
        assert terminal.press(b"\x03") == 130
        assert terminal.shown.count(TAKEN) == terminal.shown.count(GIVEN_BACK) == 1
        assert terminal.shown.rindex(b"\x1b[?25h") > terminal.shown.rindex(b"\x1b[?25l")  # the cursor is back
        assert b"Traceback" not in terminal.shown
        with Command(tmp_path / "watch", 1, "-m", "mpifl", "watch", run, "--every", "0.1") as watch:
            watch.until(lambda: "round 2" in watch.out, "the rounds so far")
            assert job.release().end().code == 0
            assert watch.end().code == 0
    assert lines_of(run) == 6
    *rounds, last = watch.out.splitlines()
    assert [line.split()[:2] for line in rounds] == [["round", str(n)] for n in range(1, 7)]
    assert last == f"{run} is finished"
