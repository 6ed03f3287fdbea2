"""Loops in C: a file beside a module, built once for a user, in a fifth of a second, and kept in the user's
cache.

Whoever has such loops states them in tensors, too, with the same bits. So nothing but time depends on the
compiler.
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
    "-ffp-contract=off",  # each product and each sum is rounded, as those of tensors are
    *("-fno-math-errno", "-fno-trapping-math"),  # which change no number, and keep roots from vectors
)
WITHOUT = "MPIFL_KERNELS"
"""Environment variable: "tensors" does without the compiled loops."""
PATIENCE = 60.0
"""Seconds that a compiler may take."""


def library(source: Path) -> ctypes.CDLL | None:
    """Return the library of a C file, or None where it cannot be had.

    It is built if this user has not got it yet; nobody but this user can have written it.
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
    except OSError:  # not there, or not to be trusted
        _build(source, path)
        descriptor = cache.opened(path)
    return ctypes.CDLL(cache.loadable(descriptor, path))


def _build(source: Path, path: Path) -> None:
    """Compile the loops; other ranks see the file whole or not at all."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / "library.so"
        command = [compiler, *FLAGS, "-o", str(built), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        built.chmod(0o700)  # whatever the umask
        built.replace(path)
