"""What a job that protects silos may not ask, since one clip and one noise would not protect it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.privacy import LEAST
from mpifl.server import POISSON

if TYPE_CHECKING:
    from mpifl.run.job import Job

_TAKES = ("uniform", POISSON)


def is_silo_level(job: Job) -> bool:
    """Whether a job protects silos, by noise of the server's."""
    return job.privacy is not None and job.privacy.level == "silo"


def why_not_at_silos(job: Job, algorithm: Algorithm) -> str:
    """Say what of a job goes beyond a noised mean of clipped updates, and what would do; "" if nothing."""
    whys = (_of_cohort(job), _of_tables(job))
    if (why := algorithm.why_not_noised()) and not any(whys):
        return f"[privacy] level = 'silo': '{job.algorithm['name']}' does not go with it: {why}"
    return next(filter(None, whys), "")


def why_not_of_silos(job: Job, silos: int) -> str:
    """Say why a job's promise would be none for so many silos; "" if it is one."""
    assert job.privacy is not None
    delta, expected = job.privacy.delta, job.cohort.expected(silos)
    if delta > 1 / silos:
        what = f"there are {silos} silos, and above 1/{silos} delta allows to publish one of them"
        return f"[privacy] delta = {delta:g}: {what}; take less"
    if expected == 0:
        return "[cohort] fraction = 0: poisson draws nobody; take more"
    if job.privacy.is_adaptive and expected < LEAST:
        what = f"a round expects {expected:g} silos, and of fewer than {LEAST} its bit is all noise"
        return f"[privacy] clip = 'adaptive': {what}; take clip as a number"
    return ""


def why_no_statistics(algorithm: Algorithm, module: nn.Module) -> str:
    """Say which statistics of a model would leave silos beside their updates; "" if none."""
    own, kept = algorithm.personal_names(module), module.state_dict()
    shared = [name for name, _ in module.named_buffers() if name in kept and name not in own]
    if not shared:
        return ""
    what = f"running statistics ('{shared[0]}') travel beside the update, and no clip bounds them"
    return f"[privacy] level = 'silo': {what}; take GroupNorm"


def _of_cohort(job: Job) -> str:
    cohort = job.cohort
    if cohort.weights != "uniform":
        what = "one silo's update would weigh more than the noise hides"
        return f"[cohort] weights = '{cohort.weights}': {what}; [privacy] level = 'silo' takes 'uniform'"
    if cohort.select not in _TAKES:
        what = "silos would be drawn by what they hold, or by code that no promise covers"
        return f"[cohort] select = '{cohort.select}': {what}; take {' or '.join(map(repr, _TAKES))}"
    return ""


def _of_tables(job: Job) -> str:
    aggregation, up, privacy = job.aggregation, job.compression.up, job.privacy
    assert privacy is not None
    if privacy.in_sum and not job.secure:
        what = "each silo's own update would have too little noise to be seen"
        return f"[privacy] noise_at = 'sum': {what}; add a table [security], or take 'server'"
    if not aggregation.is_mean:
        what = "[privacy] level = 'silo' adds its noise to a mean"
        return f"[aggregation] rule = '{aggregation.rule}': {what}; take 'mean'"
    if aggregation.clip is not None:
        return f"[aggregation] clip = {aggregation.clip:g}: [privacy] clip bounds updates; leave this one out"
    if up != "none":
        what = "a codec would change updates after they are clipped"
        return f"[compression] up = '{up}': {what}; take 'none' with [privacy] level = 'silo'"
    if job.attack.kind != "none":
        what = "what liars send is no part of a promise"
        return f"[attack] kind = '{job.attack.kind}': {what}; leave one of them out"
    return ""
