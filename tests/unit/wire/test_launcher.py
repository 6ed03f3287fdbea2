"""Which launcher --ranks takes, and when it takes none."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpifl.common.errors import InputError
from mpifl.wire.launching import launcher

SAYS = {
    "ompi": "mpirun (Open MPI) 5.0.11",
    "prte": "mpiexec (OpenRTE) 4.1.4",
    "hydra": "HYDRA build details:\n    Version: 5.0.2",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.13",
    "broken": "",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put launchers into folders and let only these be found:
    the environment's own, then those of the PATH."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'one'}:{tmp_path / 'two'}")

    def put(where, name, says):
        path = tmp_path / where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n[ '{says}' != broken ] || exit 1\nprintf '%s\\n' '{SAYS[says]}'\n")
        path.chmod(0o755)
        return str(path)

    return put


@pytest.mark.parametrize(
    ("vendor", "says"),
    [
        ("Open MPI", "ompi"),
        ("Open MPI", "prte"),
        ("MPICH", "hydra"),
        ("MVAPICH", "hydra"),
        ("Intel MPI", "intel"),
    ],
)
def test_the_launcher_of_the_librarys_vendor_is_found_behind_others(install, vendor, says):
    for nth, other in enumerate(set(SAYS) - {"ompi", "prte", "hydra", says}):
        install("one", ("mpiexec", "mpirun")[nth], other)
    wanted = install("two", "mpirun", says)
    assert launcher.find_launcher(vendor, "1")[0] == wanted


def test_the_environments_own_comes_before_the_paths(install):
    install("one", "mpirun", "ompi")
    own = install("venv/bin", "mpirun", "ompi")
    assert launcher.find_launcher("Open MPI", "5.0.11")[0] == own
    beside = install("opt/bin", "mpirun", "ompi")
    assert launcher.find_launcher("Open MPI", "5.0.11", Path(beside).parent)[0] == beside


def test_debians_launchers_are_found_whichever_is_the_default(install):
    install("one", "mpiexec", "ompi")
    mpich = install("one", "mpiexec.mpich", "hydra")
    assert launcher.find_launcher("MPICH", "4.0.2") == [mpich]


def test_open_mpi_is_told_to_start_more_ranks_than_cores(install, monkeypatch):
    install("one", "mpirun", "ompi")
    for uid, more in ((0, ["--allow-run-as-root"]), (1000, [])):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        assert launcher.find_launcher("Open MPI", "5")[1:] == ["--oversubscribe", "--bind-to", "none", *more]


def test_no_launcher_is_one_line_with_the_remedy(install):
    with pytest.raises(
        InputError, match=r"no mpirun that belongs to MPICH 5\.0\.2, .*in use; put it on the PATH"
    ):
        launcher.find_launcher("MPICH", "5.0.2")
    other = install("one", "mpirun", "ompi")
    install("two", "mpirun", "broken")
    with pytest.raises(InputError, match=f"in use; not of its vendor: {other}, .*; put it"):
        launcher.find_launcher("MPICH", "5.0.2")


@pytest.mark.parametrize(
    ("environ", "launched"),
    [
        ({}, False),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, False),  # a batch script
        ({"SLURM_STEP_NUM_TASKS": "1"}, False),  # a shell in an allocation
        ({"SLURM_STEP_NUM_TASKS": "4"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"PMIX_RANK": "0"}, True),
        ({"PMI_FD": "5"}, True),
        ({"MPIFL_RANKS": "3"}, True),
    ],
)
def test_a_rank_knows_that_it_was_launched(environ, launched):
    assert launcher.launched(environ) == launched


def test_a_launcher_that_is_chosen_comes_first(monkeypatch):
    monkeypatch.setenv("MPIFL_MPIRUN", "srun --mpi=pmix '--comment=a b'")
    assert launcher.own_launcher() == ["srun", "--mpi=pmix", "--comment=a b"]
    monkeypatch.setenv("MPIFL_MPIRUN", "mpirun 'a")
    with pytest.raises(InputError, match="quote it as for a shell"):
        launcher.own_launcher()


@pytest.mark.parametrize(("file", "name"), [("sleep", "prterun"), ("orterun", "mpirun.openmpi")])
def test_the_ancestor_that_starts_ranks_is_found(tmp_path, file, name):
    """By its name, or by its file's: Debian's Open MPI 4 is called by another."""
    program, given = tmp_path / name, shutil.which("sleep")
    if file != "sleep":
        given = shutil.copy(given, tmp_path / file)
    program.symlink_to(given)
    with subprocess.Popen([str(program), "60"]) as started:
        while not Path(f"/proc/{started.pid}/comm").read_text().startswith(name):
            time.sleep(0.01)
        found = launcher.started_by(started.pid)
        started.kill()
    assert found == (os.path.realpath(program), "Open MPI")
    assert launcher.started_by(1) is None
