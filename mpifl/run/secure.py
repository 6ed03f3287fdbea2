"""What a job with `[security]` may not ask, since masks would not hide it, or could not be made for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpifl.algorithms import Algorithm
from mpifl.common import InputError
from mpifl.server import POISSON, WITHOUT_LOSSES

if TYPE_CHECKING:
    from mpifl.run.job import Job


def check_secure(job: Job, algorithm: Algorithm) -> None:
    """See that a job goes with its `[security]`.

    Raises:
        InputError: it asks what cannot be added up under masks.
    """
    if job.security is None:
        return
    for why in (_of_sums(job), _of_masks(job, algorithm) if job.security.masks else ""):
        if why:
            raise InputError(why)


def _of_sums(job: Job) -> str:
    """Say what cannot be a sum of whole numbers, masked or not: both are to give the same bits."""
    if not job.aggregation.is_mean:
        what = "a rule that compares silos must see them, and masks hide them"
        return f"[aggregation] rule = '{job.aggregation.rule}': {what}; take 'mean', or leave [security] out"
    if job.compression.up != "none":
        what = "masked vectors do not shrink"
        return f"[compression] up = '{job.compression.up}': {what}; take 'none', or leave [security] out"
    if job.attack.kind != "none":
        what = "who lies is to be seen, and masks hide it"
        return f"[attack] kind = '{job.attack.kind}': {what}; leave one of them out"
    return ""


def _of_masks(job: Job, algorithm: Algorithm) -> str:
    if job.cohort.select not in WITHOUT_LOSSES - {POISSON}:
        what = "each site draws a round's silos itself, by the job's seed, and knows no losses of others"
        return f"[cohort] select = '{job.cohort.select}': {what}; take 'uniform' or 'examples'"
    if job.local.deadline is not None:
        what = "a silo asked again would answer otherwise, and the difference of two sums would show it"
        return f"[local] deadline = {job.local.deadline:g}: {what}; leave it out under [security]"
    if job.checkpoint.mirror:
        what = "another site's rank would become the server"
        return f"[checkpoint] mirror = true: {what}; leave it out under [security]"
    if algorithm.varied and algorithm.architectures():
        what = "silos send vectors that others do not, and a sum over few of them hides little"
        return f"[algorithm] name = '{job.algorithm['name']}': {what}; leave [security] masks out"
    return ""
