"""The lock of a run folder: held by one, only as long as that lives, and by none where there are no locks."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from mpifl.common import lock
from mpifl.common.errors import InputError

HOLDER = "import sys, time; from pathlib import Path; from mpifl.common import lock\n"
HOLDER += "with lock.hold(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"


@pytest.fixture
def holder(tmp_path):
    """A process that holds the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=180)


def refused(look, folder):
    with pytest.raises(InputError) as error:
        look(folder)
    return str(error.value)


def enter(folder):
    with lock.hold(folder):
        pass


@pytest.mark.parametrize("look", [lock.check, enter])
def test_a_folder_that_is_held_is_refused_with_its_holder(tmp_path, holder, look):
    before = (tmp_path / lock.FILE).read_text()
    line = refused(look, tmp_path)
    assert line.startswith(
        f"{tmp_path} is in use by a training with pid {holder.pid} on {os.uname().nodename} since "
    )
    assert (tmp_path / lock.FILE).read_text() == before


def test_a_holder_that_was_killed_holds_no_more(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(180)
    lock.check(tmp_path)
    with lock.hold(tmp_path) as problem:
        assert problem is None
        assert f'"pid": {os.getpid()}' in (tmp_path / lock.FILE).read_text()


def test_a_lock_ends_with_its_context_whatever_ends_that(tmp_path):
    def fail():
        with lock.hold(tmp_path):
            assert refused(enter, tmp_path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    enter(tmp_path)


def test_looking_makes_nothing(tmp_path):
    lock.check(tmp_path / "new")
    lock.check(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("said", ["", "[1]", '{"host": "node7"}'])
def test_a_holder_that_has_not_said_who_it_is_holds_all_the_same(tmp_path, said):
    with lock.hold(tmp_path):
        (tmp_path / lock.FILE).write_text(said)
        assert "is in use by another training; " in refused(enter, tmp_path)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_a_run_goes_on_with_a_warning(tmp_path, monkeypatch, number):
    def unsupported(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with lock.hold(tmp_path) as problem:
        assert f"{tmp_path}: its file system has no locks ({os.strerror(number)})" in problem
    lock.check(tmp_path)
