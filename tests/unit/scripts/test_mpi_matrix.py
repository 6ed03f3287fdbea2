"""What the matrix of MPI libraries sees of a command: its end, and what it left."""

import sys
import time

import pytest

from scripts.mpi_matrix import commands
from scripts.mpi_matrix.commands import Command, Library

PYTHON = Library("Open MPI", sys.executable, "/none/mpirun", "")
SLEEPS = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder in the place of /dev/shm, in which other tests' ranks make files."""
    monkeypatch.setattr(commands, "SHARED", tmp_path / "shm")
    monkeypatch.setattr(commands, "GRACE", 0.3)
    (tmp_path / "shm").mkdir()
    return tmp_path / "shm"


def run(program, folder):
    return Command([sys.executable, "-c", program], PYTHON, folder)


def test_a_command_that_leaves_nothing_says_what_it_came_to(shared, tmp_path):
    (shared / "of others").touch()
    program = "import os, sys; print('out'); sys.stdout.flush(); os.write(2, b'err'); sys.exit(3)"
    assert run(program, tmp_path).end() == (3, "out\nerr")
    assert (shared / "of others").exists()


def test_a_file_that_is_left_is_named_and_removed(shared, tmp_path):
    with pytest.raises(AssertionError, match="left in /dev/shm: sm_segment"):
        run(f"open({str(shared / 'sm_segment')!r}, 'w')", tmp_path).end()
    assert list(shared.iterdir()) == []


def test_a_process_that_is_left_is_counted_and_killed(shared, tmp_path):
    command = run(SLEEPS, tmp_path)
    with pytest.raises(AssertionError, match="1 processes left"):
        command.end()
    until = time.monotonic() + 180
    while command.processes():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_command_that_hangs_ends_with_all_that_it_started(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "PATIENCE", 1.0)
    command = run(f"{SLEEPS}.wait()", tmp_path)
    with pytest.raises(AssertionError, match="hangs"):
        command.end()
    until = time.monotonic() + 180
    while command.processes():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_library_is_named_by_its_file_or_found_in_its_folder(tmp_path, monkeypatch):
    """What the launcher of another training has told its ranks is not told to these."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    (tmp_path / "libmpi.so").touch()
    for path, variable in ((tmp_path / "libmpi.so", "MPI4PY_LIBMPI"), (tmp_path, "LD_LIBRARY_PATH")):
        told = Library("MPICH", sys.executable, "/a/bin/mpiexec", str(path)).environment()
        assert told[variable] == str(path)
        assert told["PATH"].startswith("/a/bin:")
        assert "OMPI_COMM_WORLD_SIZE" not in told
