"""What several test folders share: a way to start ranks, and shards to train on."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kept_commands  # noqa: F401 - before anything calls a program
import pytest
import suite_shards
from hypothesis import settings
from starting import ROOT, python, rank_environment, warm_executable, warm_folder  # noqa: F401

from data_prep.cli import app as data_prep
from mpifl.common.machine import imports

settings.register_profile("drawn alike", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("drawn alike")
"""Here, before any file of tests is read: what a test draws is the same in each run, whichever files are."""
RANKS = (1, 2, 3, 5)
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
"""As in an activated environment. Messages name the package's commands by what the PATH has."""
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]
"""Tests talk with this machine alone, which a proxy would not find."""
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
"""Threads of torch that wait for others sleep: by default they keep a core busy that other ranks need."""
if not os.environ.get("MPIFL_SLOW"):
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
"""Inductor takes the instructions that the processor has. By itself it compiles and loads a program for each
kind first, in a Python of its own: that is most of what a compiled step takes."""


def pytest_configure() -> None:
    if sys.platform == "linux":
        warm_folder()  # of this process, before it starts others


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    with imports.gc_frozen():
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not os.environ.get("MPIFL_SLOW"):
            item.add_marker(pytest.mark.skip(reason="slow: MPIFL_SLOW=1 runs it"))


def launcher() -> list[str]:
    """The mpirun that belongs to this environment, with the flags that let it start more ranks than cores."""
    if command := os.environ.get("MPIFL_MPIRUN"):
        return shlex.split(command)
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [str(Path(sys.prefix) / "bin" / "mpirun"), "--oversubscribe", "--bind-to", "none", *root]


def with_usual(more: Sequence[Any], **usual: Any) -> list[Any]:
    """Return words of a command: the usual options, but for those that `more` gives, and these."""
    left = {f"--{name.replace('_', '-')}": value for name, value in usual.items()}
    return [*(word for name, value in left.items() if name not in more for word in (name, value)), *more]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """See that a test leaves no variable of mpifl's behind: others, of any file, would train by it."""
    before = {name: value for name, value in os.environ.items() if name.startswith("MPIFL_")}
    yield
    assert {name: value for name, value in os.environ.items() if name.startswith("MPIFL_")} == before


@pytest.fixture
def warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is tested start its commands by `python`, where it starts them by `sys.executable`."""
    monkeypatch.setattr(sys, "executable", warm_executable())


def ranks(
    n: int,
    *arguments: str | Path,
    timeout: float = 120,
    cwd: Path | None = None,
    cold: bool | int = False,
    **more: str,
) -> subprocess.CompletedProcess:
    """Run `python ARGUMENTS` on n ranks; a deadlock fails by the time limit instead of hanging.

    Args:
        cold: Start Python as users do, which takes 2 seconds of the processor a rank; or on how many ranks.
        more: Environment variables.
    """
    cold = n if cold is True else int(cold)
    parts = [(n - cold, python()), (cold, [sys.executable])]
    worlds = [[*(["-n", str(m)] if n > 1 else []), *start, *map(str, arguments)] for m, start in parts if m]
    command = [*(launcher() if n > 1 else []), *worlds[0], *([":", *worlds[1]] if len(worlds) > 1 else [])]
    more |= {} if cold else {"WARM_PYTHON": warm_executable()}
    for _ in range(2):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd,
            env=rank_environment(**more),
            stdin=subprocess.DEVNULL,
        )
        # Rarely Open MPI's launcher ends so beside another, before it has started anything.
        if "PMIx server's listener thread failed to start" not in done.stderr:
            break
    return done


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shards of the suite's jobs; see `suite_shards.requests`."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root  # that all processes share
    folder, whole = root / "shards", root / "shards-are-whole"
    with (root / "shards.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            folder.mkdir()
            _write_shards(folder)
            whole.touch()
    return folder


def _write_shards(folder: Path) -> None:
    suite_shards.write_lines(folder)
    for name, asked in suite_shards.requests(folder).items():
        data_prep([*asked, "--out", str(folder / name)], standalone_mode=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 4 MiB, in pages of 4 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,huge=never", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a disk to be filled")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
