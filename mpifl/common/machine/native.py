"""Loops in C: a C file beside a module, built once for each user and kept in the user's cache.

Building one takes about a second. A module with such loops has them in tensor operations, too, with the
same bits. So only the time depends on the compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from mpifl.common import cache

FLAGS = (
    *("-O3", "-fPIC", "-shared", "-std=gnu11"),
    "-ffp-contract=off",  # round each product and each sum, as tensor operations do
    *("-fno-math-errno", "-fno-trapping-math"),  # they change no number, but would keep roots out of vectors
)
WITHOUT = "MPIFL_KERNELS"
"""Environment variable: with "tensors" the compiled loops are not used."""
PATIENCE = 60.0
"""Seconds that the compiler may take."""


def library(source: Path) -> ctypes.CDLL | None:
    """Return the library of a C file, or None if it cannot be built or is not wanted.

    It is built if this user does not have it yet. Nobody but this user can have written it.
    """
    if os.environ.get(WITHOUT) == "tensors":
        return None
    try:
        return _loaded(source)
    except (OSError, subprocess.SubprocessError):
        return None


def _loaded(source: Path) -> ctypes.CDLL:
    """Load the library, building it if need be.

    Raises:
        OSError, subprocess.SubprocessError: there is no compiler, or it fails.
    """
    what = [source.read_bytes(), repr(FLAGS).encode(), platform.platform().encode()]
    key = hashlib.sha256(b"\0".join(what)).hexdigest()
    name = f"{source.stem}-{key[:16]}.so"
    try:
        path = cache.folder() / name
    except OSError:  # no home, or one where others may write
        with tempfile.TemporaryDirectory(prefix="mpifl-") as private:
            return _opened(source, Path(private) / name)
    return _opened(source, path)


def _opened(source: Path, path: Path) -> ctypes.CDLL:
    try:
        descriptor = cache.opened(path)
    except OSError:  # missing, or not to be trusted
        _build(source, path)
        descriptor = cache.opened(path)
    return ctypes.CDLL(cache.loadable(descriptor, path))


def _build(source: Path, path: Path) -> None:
    """Compile the loops; other ranks see the complete file or none."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / "library.so"
        command = [compiler, *FLAGS, "-o", str(built), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        built.chmod(0o700)  # whatever the umask
        built.replace(path)
