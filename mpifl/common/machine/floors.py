"""The lowest library versions that the package runs with, by its metadata from pyproject.toml."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from importlib import metadata

from mpifl.common import InputError


def hold(extra: str = "") -> None:
    """Refuse libraries that are older than the package needs; a missing library fails later, at its import.

    Args:
        extra: The extra of pyproject.toml whose libraries are checked; by default those of every command.

    Raises:
        InputError: a library is too old; the line says what to install.
    """
    if found := _too_old(extra):
        lowest = " ".join(f"'{name}>={least}'" for name, _, least in found)
        have = ", ".join(f"{name} {version}" for name, version, _ in found)
        raise InputError(f"{have}: older than mpifl runs with; pip install --upgrade {lowest}")


def hold_or_exit() -> None:
    """Refuse old libraries by one line and exit code 2, before a command imports any of them."""
    try:
        hold()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


@functools.cache
def _too_old(extra: str) -> tuple[tuple[str, str, str], ...]:
    """Return (library, its version, the lowest version) of each library that is too old."""
    found = []
    for name, least in _lowest(extra):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if _numbers(version) < _numbers(least):
            found.append((name, version, least))
    return tuple(found)


def _lowest(extra: str) -> Iterator[tuple[str, str]]:
    """Yield (library, its lowest version); nothing in a checkout that was not installed."""
    try:
        wanted = metadata.requires("mpifl") or []
    except metadata.PackageNotFoundError:
        return
    for one in wanted:
        if "python_version" in one:  # this Python may not need it
            continue
        whose = re.search(r"extra == ['\"]([\w-]+)['\"]", one)
        if (whose[1] if whose else "") == extra and (found := re.match(r"([\w.-]+)[^;]*>=([\d.]+)", one)):
            yield found[1], found[2]


def _numbers(version: str) -> list[int]:
    """Return the numbers of a version's release part, without final zeros: `2.13.0+cpu` is [2, 13]."""
    numbers = [int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part]  # type: ignore[index]
    while numbers and not numbers[-1]:
        del numbers[-1]
    return numbers
