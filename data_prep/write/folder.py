"""A folder that is there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mpifl.common import InputError


def check_free(out: Path) -> None:
    """Refuse a folder that holds something, or that cannot be made; an empty one may be filled."""
    try:
        to_nothing = out.is_symlink() and not out.exists()
        if to_nothing or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
            raise InputError(f"--out: {out} exists; remove it or name another")
    except OSError as error:
        raise unwritable(out, error) from None
    above = _above(out)
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise InputError(
            f"--out: {out} cannot be made, {above} is not a folder you may write to; name another"
        )


def check_room(out: Path, needed: int) -> None:
    """Refuse to begin what the disk has no room for."""
    free = shutil.disk_usage(_above(out)).free
    if free < needed:
        sizes = f"needs {needed / 1e9:.3g} GB, the disk has {free / 1e9:.3g} GB left"
        raise InputError(f"--out: {out} {sizes}; name another, or make room")


@contextlib.contextmanager
def written_atomically(out: Path, keep: Path | None = None) -> Iterator[Path]:
    """Lend a folder next to `out` and rename it to `out` when the block ends well; otherwise remove it.

    Ctrl-C and an exit count as otherwise. A folder to `keep` may be there before, and stays when the block
    ends badly. Raises InputError for what the file system refuses, a full disk included.
    """
    out = out.resolve()
    missing = [parent for parent in out.parents if not parent.exists()]
    aside = keep or out.with_name(f".{out.name}.partial-{os.getpid()}")
    if aside.is_symlink():
        raise InputError(f"--out: {aside} is a link, to what is not ours; remove it")
    try:
        aside.mkdir(parents=True, exist_ok=keep is not None)
        yield aside
        os.replace(aside, out)
    except BaseException as error:
        if not keep:
            _remove(aside, missing)
        if isinstance(error, OSError):
            raise unwritable(out, error) from None
        raise


@contextlib.contextmanager
def scratch(out: Path) -> Iterator[Path]:
    """Lend a folder in `out` to make files in that are renamed into it; it is removed however the block ends.

    Raises InputError for what the file system refuses, a full disk included; nothing that was made for it is
    left then.
    """
    missing = [folder for folder in (out, *out.absolute().parents) if not folder.exists()]
    aside = out / f".partial-{os.getpid()}"
    try:
        aside.mkdir(parents=True)
        yield aside
        shutil.rmtree(aside)
    except BaseException as error:
        _remove(aside, missing)
        if isinstance(error, OSError):
            raise unwritable(out, error) from None
        raise


def unwritable(out: Path, error: OSError) -> InputError:
    """Say what the file system refused; h5py tells its number in the text alone."""
    full = f"errno = {errno.ENOSPC}" in str(error)
    reason = os.strerror(errno.ENOSPC) if full else error.strerror or error
    return InputError(f"--out: {out} cannot be written ({reason}); name another, or make room")


def _above(out: Path) -> Path:
    """Return the nearest folder above that is there."""
    return next(parent for parent in out.absolute().parents if parent.exists())


def _remove(folder: Path, parents: list[Path]) -> None:
    """Remove a folder, and those of its parents that were made for it."""
    shutil.rmtree(folder, ignore_errors=True)
    for parent in parents:
        with contextlib.suppress(OSError):
            parent.rmdir()
