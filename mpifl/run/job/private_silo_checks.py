"""What a job that protects silos may not ask of a federation and a model, since no noise would protect it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.run.job.fits import IN_EFFECT

if TYPE_CHECKING:
    from mpifl.run.job.job import Job

LEAST = 100
"""Silos that a round expects at least where the clip is adaptive; of fewer the bits are all noise."""


def is_silo_level(job: Job) -> bool:
    """Whether a job protects silos, by noise of the server's."""
    return IN_EFFECT["silo"](job)


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
