"""Digests of code that a job names, which are taken before anything of it is imported."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mpifl.common import InputError, sha256_of

MOST_FILES = 20_000


def code_digest(name: str) -> str:
    """Return the sha256 of the package or the single file that has the module of a name.

    All files of the package count, not only that of the module.

    Args:
        name: A name such as `package.module:attribute`.

    Raises:
        InputError: the package is not installed here, or has no files that can be read.
    """
    top = name.partition(":")[0].partition(".")[0]
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `load_plugin` does
    try:
        spec = importlib.util.find_spec(top) if top else None  # of a top-level name: nothing is imported
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise InputError(f"{name!r}: {top!r} is not installed here; install it, and look at what it does")
    found = hashlib.sha256()
    count = 0
    try:
        for base, path in _files(spec):
            found.update(f"{path.relative_to(base).as_posix()}\0{sha256_of(path)}\n".encode())
            count += 1
            if count > MOST_FILES:
                what = f"{top!r} has more than {MOST_FILES} files"
                raise InputError(f"{name!r}: {what}; name a smaller package")
    except OSError as error:
        raise InputError(f"{name!r}: {top!r} cannot be read ({error.strerror or error})") from None
    if not count:
        raise InputError(f"{name!r}: {top!r} has no files to look at; it is a part of Python itself")
    return found.hexdigest()


def check_code(names: Iterable[str], consented: dict[str, str], where: str) -> None:
    """Check that a consent names all code of a job, and that the code here is what it names.

    Args:
        names: Names such as `package.module:attribute`.
        consented: The digests by name.
        where: What the consent is called in errors.

    Raises:
        InputError: a name is not in the consent, or its code is another.
    """
    for name in names:
        if name not in consented:
            raise InputError(f"{where}: the job names the code {name!r}, and `code` there does not")
        if (digest := code_digest(name)) != consented[name]:
            what = f"code of {name!r} is {consented[name][:8]}... there, and {digest[:8]}... is installed"
            raise InputError(f"{where}: {what}; look at it, and consent anew")


def _files(spec: importlib.machinery.ModuleSpec) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a package, each with the folder that it is looked at from."""
    if spec.submodule_search_locations is None:
        if spec.has_location and spec.origin:
            yield Path(spec.origin).parent, Path(spec.origin)
        return
    for location in spec.submodule_search_locations:
        for path in sorted(Path(location).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield Path(location), path
