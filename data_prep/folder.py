"""A folder that is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from mpifl.errors import InputError

HELD = (signal.SIGINT, signal.SIGTERM)


def check_free(out: Path) -> None:
    """Refuse a folder that holds something, or that cannot be made; an empty one may be filled."""
    try:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise InputError(f"--out: {out} exists; remove it or name another")
    except OSError as error:
        raise _unwritable(out, error) from None
    above = next(parent for parent in out.absolute().parents if parent.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise InputError(f"--out: {out} cannot be made, {above} is not a folder you may write to; name another")


@contextlib.contextmanager
def written_aside(out: Path) -> Iterator[Path]:
    """Lend a folder next to `out` and rename it to `out` when the block ends well; otherwise remove it.

    Ctrl-C and an exit count as otherwise. Raises InputError for what the file system refuses, a full disk included.
    """
    out = out.resolve()
    missing = [parent for parent in out.parents if not parent.exists()]
    aside = out.with_name(f".{out.name}.partial-{os.getpid()}")
    try:
        aside.mkdir(parents=True)
        yield aside
        os.replace(aside, out)
    except BaseException as error:
        _remove(aside, missing)
        if isinstance(error, OSError):
            raise _unwritable(out, error) from None
        raise


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block ends.

    HDF5's callbacks swallow an exception that is raised in them, a KeyboardInterrupt too: the signal would be lost.
    """
    caught: list[int] = []
    handlers = {number: signal.signal(number, lambda n, _: caught.append(n)) for number in HELD}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])


def _remove(folder: Path, parents: list[Path]) -> None:
    """Remove a folder, and those of its parents that were made for it."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in parents:
        with contextlib.suppress(OSError):
            parent.rmdir()


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(f"--out: {out} cannot be written ({error.strerror or error}); name another, or make room")
