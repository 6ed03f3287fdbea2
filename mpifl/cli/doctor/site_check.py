"""Checks the folder that MPIFL_SITE names, without making or changing anything there."""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from mpifl.common import InputError
from mpifl.wings.masked import Released
from mpifl.wings.privacy import LEDGERS, SECRET_BYTES, BudgetEntry, budget_of, why_no_secret
from mpifl.wings.site import (
    VARIABLE,
    SiteLedger,
    identity_of,
    make_own,
    problems_of,
    refuse_unbudgeted,
    sites_of,
)
from mpifl.wire import Message

Problem = tuple[Literal["note", "warning", "bad"], str]
"""A problem's level and one line; with a "bad" problem a training would not start."""
KEY, BUDGET = "key", "budget.toml"


class SiteCondition(Message):
    """The condition of a site's folder on one rank."""

    folder: str
    mark: str = ""
    """A mark that shows whether ranks mean the same site; it reveals nothing of the key."""
    problems: list[Problem] = []  # noqa: RUF012 - pydantic copies it


def examine_site(silos: Sequence[str], private: bool | None) -> SiteCondition | None:
    """Return the condition of this rank's site folder; None if MPIFL_SITE is not set.

    Args:
        silos: The names of the federation's silos.
        private: Whether silos draw noise for the job's `[privacy]`; None without a job.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    folder = Path(given).expanduser()
    problems = checkup(folder, silos)
    if private is False:
        try:
            refuse_unbudgeted()
        except InputError as error:
            problems.append(("bad", str(error)))
    return SiteCondition(folder=str(folder), mark=mark_of(folder), problems=problems)


def checkup(folder: Path, silos: Sequence[str] = ()) -> list[Problem]:
    """Return the problems in a site's folder.

    Args:
        silos: The names of a federation's silos, which `sites.toml` must list.
    """
    if not folder.exists():
        return [("note", f"{folder}: is not there; the first training that needs it makes it")]
    try:
        make_own(folder)
    except InputError as error:
        return [("bad", str(error))]
    looks: list[Callable[[], Iterable[Problem]]] = [
        lambda: _key(folder),
        lambda: _ledger(folder / LEDGERS[0], BudgetEntry),
        lambda: _ledger(folder / LEDGERS[1], Released),
        lambda: _budget(folder / BUDGET),
        lambda: _identity(folder, silos),
    ]
    return [problem for look in looks for problem in _caught(look)]


def mark_of(folder: Path) -> str:
    """Return the mark that shows whether ranks mean the same site, wherever its folder is mounted.

    It is a digest of the key that reveals nothing of it; "" without a key.
    """
    try:
        secret = (folder / KEY).read_bytes()
    except OSError:
        return ""
    return hmac.digest(secret, b"mpifl mark", "sha256").hex()[:16]


def _caught(look: Callable[[], Iterable[Problem]]) -> Iterator[Problem]:
    try:
        yield from look()
    except InputError as error:
        yield "bad", str(error)
    except OSError as error:
        yield "bad", f"{error.filename}: cannot be read ({error.strerror})"


def _key(folder: Path) -> Iterator[Problem]:
    path = folder / KEY
    if not path.exists():
        if why := why_no_secret(folder):
            yield "bad", why
        return
    if (size := len(path.read_bytes())) != SECRET_BYTES:
        yield "bad", f"{path}: has {size} bytes, not {SECRET_BYTES}; put the right one back"
    if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        yield "warning", f"{path}: has mode {mode:04o}, not 0600; chmod 600 {path}"


def _ledger(path: Path, kind: type[BaseModel]) -> Iterator[Problem]:
    if not path.exists():
        return
    SiteLedger(path, kind, lambda line: None).catch_up()
    if (content := path.read_bytes()) and not content.endswith(b"\n"):
        yield "note", f"{path}: its last line is torn, so what it was of never left; the next takes its place"


def _budget(path: Path) -> list[Problem]:
    if path.exists():
        budget_of(path)
    return []


def _identity(folder: Path, silos: Sequence[str]) -> Iterator[Problem]:
    identity, sites = identity_of(folder), sites_of(folder)
    for problem in problems_of(identity, sites, silos) if sites else ():
        yield "warning", problem
