"""Commands that are forked from a process that has imported torch are as if Python had started them."""

from __future__ import annotations

import json
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, python, warm_executable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python starts everything")
TOLD = """
import json, os, sys
where = [os.getcwd(), sys.path[0], os.environ["FOUND"], __name__]
print(json.dumps([sys.argv, sys.orig_argv[1:], *where, sys.stdin.read()]))
print("heard", file=sys.stderr)
sys.exit(int(os.environ["FOUND"]))
"""
STARTING = """
import subprocess, sys
from mpi4py import MPI
sys.exit(subprocess.run([sys.executable, "-m", "started"]).returncode)
"""
WAITING = """
import os, pathlib, time
pathlib.Path("pid.new").write_text(str(os.getpid()))
os.rename("pid.new", "pid")
time.sleep(60)
"""


def started(folder: Path, program: str, *words: str, **variables: str) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(program)
    return subprocess.Popen(
        [*python(folder), "program.py", *words],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def waiting(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a command that waits; return what was started, and the process that it is."""
    process = started(folder, WAITING)
    while not (folder / "pid").exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process, int((folder / "pid").read_text())


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_has_its_words_its_environment_its_streams_and_its_exit_code(
    tmp_path: Path, code: int
) -> None:
    process = started(tmp_path, TOLD, "a", "", FOUND=str(code))
    out, err = process.communicate("given", timeout=180)
    here = str(tmp_path)
    words = ["program.py", "a", ""]
    assert json.loads(out) == [words, words, here, here, str(code), "__main__", "given"]
    assert (err, process.returncode) == ("heard\n", code)


def test_what_a_command_starts_is_forked_too_and_what_is_no_rank_leaves_mpi_alone(tmp_path: Path) -> None:
    (tmp_path / "started.py").write_text("import sys; sys.exit(7 if 'torch' in sys.modules else 8)")
    variables = {
        "WARM_PYTHON": warm_executable(),
        "WARM_SESSIONS": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
    }
    process = started(tmp_path, f"import mpi4py\nmpi4py.rc.initialize = False\n{STARTING}", **variables)
    out, err = process.communicate(timeout=180)
    assert (out, err, process.returncode) == ("", "", 7)
    assert len([one for one in tmp_path.iterdir() if one.name.isdigit()]) == 2


def test_an_error_is_a_traceback_and_exit_code_1(tmp_path: Path) -> None:
    process = started(tmp_path, "raise KeyError('lost')")
    out, err = process.communicate(timeout=180)
    assert (out, process.returncode, err.count("Traceback")) == ("", 1, 1)
    assert err.endswith("KeyError: 'lost'\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_either_ends_both(tmp_path: Path, number: signal.Signals) -> None:
    for nth in ("asker", "command"):
        (tmp_path / nth).mkdir()
        process, command = waiting(tmp_path / nth)
        assert (tmp_path / nth / str(command)).exists(), "its session is noted"
        os.kill(process.pid if nth == "asker" else command, number)
        assert process.wait(180) == -number
        deadline = time.monotonic() + 180
        while Path(f"/proc/{command}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_what_it_has_forked_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a rank that hangs, whose launcher was killed, and whose asker waits for it."""
    monkeypatch.chdir(tmp_path)  # whose whole name may be longer than that of a socket
    (tmp_path / "program.py").write_text(WAITING)
    command = [*python(), str(ROOT / "tests" / "warm.py"), "warm"]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link,
        subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        link.connect("warm")
        told = marshal.dumps((str(tmp_path), "", ["program.py"], dict(os.environ)))
        socket.send_fds(link, [told], [0, 1, 2])
        forked = os.pidfd_open(int(link.recv(99)))
        server.stdin.close()
        assert server.wait(180) == 0
        assert select.select([forked], [], [], 10)[0], "it goes on"
        os.close(forked)
