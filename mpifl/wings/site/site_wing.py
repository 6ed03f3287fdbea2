"""The site wing: each rank refuses jobs that its own site does not allow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpifl.common import InputError
from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.job import Job, is_silo_level
from mpifl.training import Wing
from mpifl.wings.site.site_directory import VARIABLE
from mpifl.wings.site.site_identity import SITES_FILE, lists_sites
from mpifl.wire import Transport


class OwnRules(Wing):
    """Refuses jobs that this rank's site does not allow."""

    of_rank = True

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Check that the job has masks if the site lists sites, and noise at the silos if it has a budget.

        Raises:
            InputError: the job lacks one of them.
        """
        if transport.rank in transport.workers:
            check_own_rules(self._job)
        return context


wing = OwnRules


def check_own_rules(job: Job) -> None:
    """Check that a job has masks if this machine's site lists sites, and noise at the silos if it has a
    budget.

    Raises:
        InputError: the job lacks one of them.
    """
    if not job.secure:
        refuse_unmasked()
    if job.privacy is None or is_silo_level(job):
        refuse_unbudgeted()


def refuse_unmasked() -> None:
    """Refuse a job without masks if this rank's site has a `sites.toml`.

    Raises:
        InputError: it has one.
    """
    if lists_sites():
        what = f"{os.environ[VARIABLE]} has a {SITES_FILE}, and the job has no [security] with masks"
        raise InputError(f"{what}; give it one, or start this site without {VARIABLE}")


def refuse_unbudgeted() -> None:
    """Refuse a job that no budget counts if this rank's site has a `budget.toml`.

    Raises:
        InputError: it has one.
    """
    named = os.environ.get(VARIABLE)
    if named and os.path.lexists(Path(named).expanduser() / "budget.toml"):  # also a broken link
        what = f"{named} has a budget.toml, and the job has no [privacy] with noise at the silos"
        raise InputError(f"{what}; give it one, or start this site without {VARIABLE}")
