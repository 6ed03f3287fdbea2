"""What this machine's site says to a job before ranks start: its rules, and what is left of its budgets."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from mpifl.data.shards import AnySpec

if TYPE_CHECKING:
    from mpifl.run.job import Job


def check_site_of(job: Job, here: Collection[int]) -> None:
    """Check a job against the rules of this machine's site, where silos lie `here`.

    Raises:
        InputError: a rule refuses it, or MPIFL_SITE is needed and not set.
    """
    from mpifl.run.job import is_silo_level
    from mpifl.wings.dpsgd import check_site
    from mpifl.wings.masked import SITE_NEEDED
    from mpifl.wings.site import VARIABLE, check_own_rules, site_folder

    check_own_rules(job)
    if job.secure and here and not os.environ.get(VARIABLE):
        site_folder(*SITE_NEEDED)
    if job.privacy is not None and not is_silo_level(job) and here:
        check_site(job)


def budgets(job: Job, spec: AnySpec, here: Collection[int]) -> list[str]:
    """Return a line for each silo `here` whose budget at this machine's site does not allow all rounds.

    Raises:
        InputError: no noise meets the job's epsilon, or a silo's budget is spent.
    """
    from mpifl.run.job import is_silo_level

    if job.privacy is None or is_silo_level(job):
        return []
    from mpifl.wings.dpsgd import check_budgets, plans

    planned = plans(job, spec, job.build_algorithm().for_federation(spec))
    return check_budgets(job, spec, [plan.noise for plan in planned], sorted(here))
