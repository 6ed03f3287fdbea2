"""The fake accelerator, built once, and worlds that trained on it."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from conftest import launcher, ranks
from faults.test_survival import _has_ulfm as has_ulfm

from mpifl.common import cache

HERE = Path(__file__).parent
SOURCE = HERE / "fake.cpp"
FLAGS = ("-O1", "-std=c++20", "-fPIC", "-shared")
PATIENCE = 300
"""Seconds that the compiler may take; alone on a core it takes twelve."""


@pytest.fixture(scope="session")
def library() -> Path:
    """The fake accelerator's library, in the user's cache under the hash of all that it follows from."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("the fake accelerator needs a C++ compiler")
    about = [
        SOURCE.read_text(),
        torch.__version__,
        str(torch.__file__),
        sysconfig.get_platform(),
        repr(FLAGS),
    ]
    path = cache.folder() / f"fake-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.so"
    if not path.exists():
        _build(compiler, path)
    return path


def _build(compiler: str, path: Path) -> None:
    """Compile the library; other processes see the file whole or not at all."""
    root = Path(torch.__file__).parent
    include = [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    made = path.with_suffix(f".{os.getpid()}")
    libraries = [f"-L{root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    command = [compiler, *FLAGS, *include, str(SOURCE), *libraries, "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        pytest.skip(f"the fake accelerator cannot be compiled: {done.stderr.strip()[-500:]}")
    made.replace(path)


@pytest.fixture(scope="session")
def device_worlds(library: Path, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The run folders of the jobs in `worlds` on 1 and on 3 ranks."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_LIBRARY", str(library))
        if has_ulfm():
            patch.setenv("MPIFL_MPIRUN", shlex.join([*launcher(), "--with-ft", "ulfm"]))
        for n in (1, 3):
            found[n] = tmp_path_factory.mktemp(f"device{n}") / "runs"
            done = ranks(n, HERE / "drive.py", digits, found[n])
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
            (found[n] / "err").write_text(done.stderr)
    return found
