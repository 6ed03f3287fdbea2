"""Start a world of ranks from one command: run the `mpirun` that belongs to the MPI library in use.

This process asks mpi4py which library it loads, without joining a world. Then it stays only to hand signals
on: Open MPI's mpirun kills its ranks on TERM and INT, but a training should end with a checkpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mpifl.common import InputError
from mpifl.common.machine import signals
from mpifl.wire.launching import libraries

NAMES = ("mpiexec", "mpirun", "mpiexec.openmpi", "mpiexec.mpich")
"""Names of launchers. Debian has the last two, and its administrator chooses which of them `mpiexec` is."""
BANNERS = {
    "Open MPI": ("Open MPI", "OpenRTE"),
    "MPICH": ("HYDRA", "MPICH"),
    "MVAPICH": ("HYDRA", "MVAPICH"),
    "Intel MPI": ("Intel(R) MPI",),
}
"""Words by which `--version` of a launcher shows its family, by the vendor of the library."""
_MARKS = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD", "MPIFL_RANKS")
"""Environment variables of launched ranks; the last is our own, in case a launcher sets none."""
FAMILIES = {
    "mpirun": "Open MPI", "orterun": "Open MPI", "prterun": "Open MPI", "orted": "Open MPI",
    "prted": "Open MPI",
    "mpiexec.hydra": "MPICH", "hydra_pmi_proxy": "MPICH", "slurmstepd": "Slurm",
}  # fmt: skip
"""Programs that start ranks, and the MPI family of each."""
_SESSION = "PRTE_MCA_prte_local_tmpdir_base"
"""Environment variable: the folder where Open MPI's mpirun keeps its session, which is named by its pid.
A killed mpirun leaves its session behind. A later one with the same pid then starts nothing. So each mpirun
gets its own folder."""
_SESSIONS = {_SESSION, "PRTE_MCA_prte_tmpdir_base"}
"""Variables by which the user may have chosen such a folder."""
_LAST_WORD = "MPIFL_LAST_WORD"
"""Environment variable: a file in which ranks leave the line to print below the launcher's own output."""
_CODE = "MPIFL_EXIT_CODE"
"""Environment variable: the file in which rank 0 leaves its exit code. The launcher's code may differ:
Hydra's is 9 if a rank was killed, and that of MPICH 4.0 is 0 if a signal came."""
GRACE = 3.0
"""Seconds that a launcher gets to end its ranks."""
NOT_BEGUN = -1
"""The exit code of `launch` if a signal came before the launcher was started."""


def launched(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a launcher has started this process as one of its ranks."""
    # a plain batch script has SLURM's other variables, too
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    return any(mark in environ for mark in _MARKS) or (tasks.isdigit() and int(tasks) > 1)


def launch(ranks: int, survive: bool = False) -> int:
    """Run the command of this process on several ranks and return the exit code.

    TERM, INT, USR1 and USR2 reach the ranks as USR1, which every launcher hands on. A second INT ends the
    ranks at once.

    Args:
        ranks: How many.
        survive: Whether ranks live on when another dies.

    Raises:
        InputError: there is no MPI library, no launcher that belongs to it, or it cannot let ranks survive.
    """
    flags = _surviving() if survive else []
    command = [*own_launcher(), *flags, "-n", str(ranks), sys.executable, *sys.orig_argv[1:]]
    with tempfile.TemporaryDirectory(prefix="mpifl-", ignore_cleanup_errors=True) as session:
        last, told, came = (Path(session) / name for name in ("last_word", "exit_code", "signalled"))
        last.touch()
        told.touch()
        files = {_LAST_WORD: str(last), _CODE: str(told), signals.CAME: str(came)}
        code = _run(command, session_in(session) | {"MPIFL_RANKS": str(ranks), **files}, came)
        print(last.read_text(), end="", file=sys.stderr, flush=True)
        left = told.read_text()
    return int(left) if left else code


def session_in(folder: str) -> dict[str, str]:
    """Return the environment of a launcher that keeps its session in a folder of its own."""
    home = os.environ.get("HOME", str(Path("~").expanduser()))  # Open MPI gives up without one
    environment = {"HOME": home, **os.environ}
    return environment if environment.keys() & _SESSIONS else {**environment, _SESSION: folder}


def last_word(line: str) -> None:
    """Print the last line of a command; a rank leaves it to the program that started the launcher.

    If the exit code is not 0, Open MPI's launcher prints six lines after the ranks are gone. This line should
    stand below them.
    """
    if not _left(_LAST_WORD, f"{line}\n", os.O_APPEND):
        print(line, file=sys.stderr, flush=True)


def leave_code(code: int) -> None:
    """Leave this rank's exit code, which is that of the run, to the program that started the launcher."""
    _left(_CODE, str(code), os.O_TRUNC)


def _left(variable: str, text: str, flags: int) -> bool:
    """Write to the file that a variable names, if it exists; return whether it does."""
    try:
        # a missing file is not created: this may be another machine
        file = os.open(os.environ[variable], os.O_WRONLY | flags)
    except (KeyError, OSError):
        return False
    with os.fdopen(file, "w") as left:
        left.write(text)
    return True


def _run(command: list[str], environment: Mapping[str, str], signalled: Path) -> int:
    """Run a launcher, hand signals on to its ranks, and return its exit code.

    Args:
        command: The launcher and the command of its ranks.
        environment: The environment of launcher and ranks.
        signalled: The file to create when a signal comes, for ranks that have not started yet.
    """
    came: list[int] = []

    def hand_on(number: int, _: object) -> None:
        at_once = number == signal.SIGINT and number in came
        came.append(number)
        signals.note()
        if at_once:
            raise _AtOnce
        pass_on()

    def pass_on() -> None:
        signalled.touch()
        started.send_signal(signal.SIGUSR1)

    if signals.pending():
        return NOT_BEGUN
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, preexec_fn=_apart())
    try:
        for name in signals.SIGNALS:
            signal.signal(name, hand_on)
        if signals.pending():  # while it was started
            pass_on()
        code = started.wait()
    except _AtOnce:
        code = _end(started)
    return code if code >= 0 else 128 - code


class _AtOnce(Exception):
    """Raised by a second INT: the user no longer waits for a checkpoint."""


def _end(started: subprocess.Popen[bytes]) -> int:
    """End a launcher and its ranks.

    Open MPI's launcher ends its ranks on TERM. Hydra only hands TERM on, and the ranks have noted a signal
    already. But when Hydra is gone its proxies end their ranks.
    """
    for name in signals.SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    started.send_signal(signal.SIGTERM)
    try:
        return started.wait(GRACE)
    except subprocess.TimeoutExpired:
        started.kill()
        return started.wait()


def _apart() -> Callable[[], None]:
    """Return a function that the launcher's process runs before it starts.

    It keeps the terminal's Ctrl-C away from the launcher, and ends the launcher when this process dies.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None

    def set_apart() -> None:
        os.setpgid(0, 0)
        prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG

    return set_apart


def find_launcher(vendor: str, version: str, beside: Path | None = None) -> list[str]:
    """Return the launcher that belongs to a library, with the flags that let it start more ranks than cores.

    Args:
        vendor: The vendor of the library, as mpi4py names it.
        version: The version of the library, for the error.
        beside: The folder where the library's installation would have its launchers, if known.

    Raises:
        InputError: none of the launchers found is this vendor's.
    """
    others = []
    for candidate in _candidates(beside):
        if _belongs(candidate, vendor):
            return [candidate, *_flags(vendor)]
        others.append(candidate)
    instead = f"; not of its vendor: {', '.join(others)}" if others else ""
    found = f"found no mpirun that belongs to {vendor} {version}, the MPI library in use{instead}"
    what = f"put it on the PATH ({libraries.TO_DO})"
    raise InputError(f"--ranks: {found}; {what}")


def own_launcher() -> list[str]:
    """Return the launcher and its flags: `MPIFL_MPIRUN` if it is set, else that of the MPI library.

    Raises:
        InputError: there is no MPI library, or no launcher that belongs to it.
    """
    return libraries.chosen_launcher() or find_launcher(*_library())


def library_file() -> Path | None:
    """Return the file of the MPI library that this process has loaded; None if unknown."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # not Linux
        return None
    return next((Path("/" + line.partition("/")[2]) for line in lines if "/libmpi." in line), None)


def started_by(process: int | None = None) -> tuple[str, str] | None:
    """Return the program that has started this rank, and its family; None if unknown.

    Args:
        process: The first ancestor to look at; by default this process's parent.
    """
    process = os.getppid() if process is None else process
    while process > 1 and (found := _name_and_parent(process)):
        program, parent = found[0], found[1]
        with contextlib.suppress(OSError):  # the process is another user's: its name must do
            program = str(Path(f"/proc/{process}/exe").readlink())
        for name in (found[0], Path(program).name):  # on Debian the file has another name
            if name in FAMILIES:
                return program, FAMILIES[name]
        process = parent
    return None


def _name_and_parent(process: int) -> tuple[str, int] | None:
    try:
        name = Path(f"/proc/{process}/comm").read_text().strip()
        return name, int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # not Linux, or gone
        return None


def _library() -> tuple[str, str, Path | None]:
    """Return vendor, version and launchers' folder of the library that mpi4py loads, without MPI_Init."""
    vendor, version = libraries.load().get_vendor()
    file = library_file()
    return vendor, ".".join(map(str, version)), file.parents[1] / "bin" if file else None


def _candidates(beside: Path | None) -> Iterator[str]:
    """Yield launchers of the library's installation, of this Python environment, and on the PATH."""
    folders = [*([str(beside)] if beside else []), str(Path(sys.prefix) / "bin"), *os.get_exec_path()]
    found = (shutil.which(name, path=folder) for folder in folders for name in NAMES)
    yield from dict.fromkeys(path for path in found if path)


def _belongs(launcher: str, vendor: str) -> bool:
    try:
        asking = [launcher, "--version"]
        said = subprocess.run(asking, capture_output=True, text=True, timeout=20, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return False
    return any(banner in said.stdout + said.stderr for banner in BANNERS.get(vendor, (vendor,)))


def _surviving() -> list[str]:
    """Return the flags with which Open MPI lets the other ranks live when one dies."""
    vendor, version, _ = _library()
    if vendor != "Open MPI" or int(version.partition(".")[0]) < 5:
        found = f"the MPI library in use is {vendor} {version}"
        raise InputError(f"--survive: needs Open MPI 5 or later, {found}")
    return ["--with-ft", "ulfm"]


def _flags(vendor: str) -> list[str]:
    """Return the flags with which Open MPI starts more ranks than cores, unbound, as root, too.

    Other launchers do all this without flags.
    """
    if vendor != "Open MPI":
        return []
    return ["--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
