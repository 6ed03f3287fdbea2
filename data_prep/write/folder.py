"""A folder that is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from mpifl.common import InputError

AGREED = "agreed"
"""The folder in a shard folder with what sites had in common beforehand: statistics, and specs."""


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
    """Refuse to begin if the disk has not enough room."""
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
    aside = keep or out.with_name(f".{out.name}.{partial()}")
    _make(out, aside, missing, exist_ok=keep is not None)
    if keep:
        _check_ours(keep)
    try:
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
    aside = out / f".{partial()}"
    _make(out, aside, missing)
    try:
        yield aside
        shutil.rmtree(aside)
    except BaseException as error:
        _remove(aside, missing)
        if isinstance(error, OSError):
            raise unwritable(out, error) from None
        raise


def partial() -> str:
    """Return a name that no other process takes: in two containers a process may have the same number."""
    return f"partial-{secrets.token_hex(6)}"


def unwritable(out: Path, error: OSError) -> InputError:
    """Say what the file system refused."""
    return InputError(
        f"--out: {out} cannot be written ({error.strerror or error}); name another, or make room"
    )


def _above(out: Path) -> Path:
    """Return the nearest folder above that is there."""
    return next(parent for parent in out.absolute().parents if parent.exists())


def _make(out: Path, folder: Path, parents: list[Path], *, exist_ok: bool = False) -> None:
    """Make a folder and its parents, or none of them; raise InputError where it cannot be."""
    if folder.is_symlink():
        raise InputError(f"--out: {folder} is a link; remove it")
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        _remove_empty(parents)
        raise unwritable(out, error) from None


def _check_ours(folder: Path) -> None:
    """Refuse to continue in a folder that others can write to."""
    found = folder.stat()
    whose = {os.geteuid(), folder.parent.stat().st_uid}  # who owns what it is in can put anything there
    if found.st_uid not in whose or found.st_mode & stat.S_IWOTH:
        how = "can be written by others" if found.st_uid in whose else "belongs to another user"
        raise InputError(f"--resume: {folder} {how}; remove it, and begin again")


def _remove(folder: Path, parents: list[Path]) -> None:
    """Remove a folder, and those of its parents that were made for it."""
    shutil.rmtree(folder, ignore_errors=True)
    _remove_empty(parents)


def _remove_empty(parents: list[Path]) -> None:
    for parent in parents:
        with contextlib.suppress(OSError):
            parent.rmdir()
