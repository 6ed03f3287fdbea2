"""What a site demands of each job that its ranks are asked for, whatever the job says."""

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
    """Refuse jobs that this rank's site does not allow."""

    of_rank = True

    def __init__(self, job: Job) -> None:
        self._job = job

    def context(
        self,
        context: WorkerContext,
        placed: Mapping[int, Sequence[int]],
        transport: Transport,
        told: str,
    ) -> WorkerContext:
        """See that a site with a budget, or one that lists others for masked sums, is asked for no less.

        Raises:
            InputError: it is.
        """
        if transport.rank in transport.workers:
            if not self._job.secure:
                refuse_unmasked()
            if self._job.privacy is None or is_silo_level(self._job):
                refuse_unbudgeted()
        return context


def wing(job: Job) -> Wing:
    """Return what this rank's site demands of a job."""
    return OwnRules(job)


def refuse_unmasked() -> None:
    """See that no site that lists others for masked sums is asked for a sum without masks.

    Raises:
        InputError: it is.
    """
    if lists_sites():
        what = f"{os.environ[VARIABLE]} has a {SITES_FILE}, and the job has no [security] with masks"
        raise InputError(f"{what}; give it one, or start this site without {VARIABLE}")


def refuse_unbudgeted() -> None:
    """See that no site with a budget is asked for what no budget counts.

    Raises:
        InputError: it is.
    """
    named = os.environ.get(VARIABLE)
    if named and os.path.lexists(Path(named).expanduser() / "budget.toml"):  # as a link that leads nowhere
        what = f"{named} has a budget.toml, and the job has no [privacy] with noise at the silos"
        raise InputError(f"{what}; give it one, or start this site without {VARIABLE}")
