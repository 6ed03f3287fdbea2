"""What a rank finds in the folder that MPIFL_SITE names; nothing is made or changed there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mpifl.common import InputError
from mpifl.wings.privacy import site_of_worker
from mpifl.wings.site import VARIABLE, Problem, checkup, mark_of
from mpifl.wire import Message


class SiteFolder(Message):
    """A site's folder as one rank found it."""

    folder: str
    mark: str = ""
    """By which ranks see that they mean the same site; it tells nothing of the key."""
    problems: list[Problem] = []  # noqa: RUF012 - pydantic copies it


def examine_site(silos: Sequence[str], private: bool | None) -> SiteFolder | None:
    """Look at this rank's site folder, None if it names none.

    Args:
        silos: The names of the federation's silos.
        private: Whether silos draw noise by the job's `[privacy]`, None without a job.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    folder = Path(given).expanduser()
    problems = checkup(folder, silos)
    if private is False:
        try:
            site_of_worker(protected=False)
        except InputError as error:
            problems.append(("bad", str(error)))
    return SiteFolder(folder=str(folder), mark=mark_of(folder), problems=problems)
