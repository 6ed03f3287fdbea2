"""Checks of a job with silo-level privacy against its federation and model: what no noise protects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.run.job.fits import IN_EFFECT

if TYPE_CHECKING:
    from mpifl.run.job.job import Job

LEAST = 100
"""The least expected silos of a round for an adaptive clip: with fewer its bits are all noise."""


def is_silo_level(job: Job) -> bool:
    """Return whether a job protects whole silos: `[privacy] level = 'silo'`."""
    return IN_EFFECT["silo"](job)


def why_not_of_silos(job: Job, silos: int) -> str:
    """Return why silo-level privacy would promise nothing for `silos` silos; "" if it does promise."""
    assert job.privacy is not None
    delta, expected = job.privacy.delta, job.cohort.expected(silos)
    if delta > 1 / silos:
        what = f"there are {silos} silos, and above 1/{silos} delta allows to publish one of them"
        return f"[privacy] delta = {delta:g}: {what}; use a smaller value"
    if expected == 0:
        return "[cohort] fraction = 0: poisson draws no silo; use a larger value"
    if job.privacy.is_adaptive and expected < LEAST:
        what = f"a round expects {expected:g} silos, and of fewer than {LEAST} its bit is all noise"
        return f"[privacy] clip = 'adaptive': {what}; use clip as a number"
    return ""


def why_no_statistics(algorithm: Algorithm, module: nn.Module) -> str:
    """Return which statistics of a model would leave silos beside their updates; "" if none."""
    own, kept = algorithm.personal_names(module), module.state_dict()
    shared = [name for name, _ in module.named_buffers() if name in kept and name not in own]
    if not shared:
        return ""
    what = f"running statistics ('{shared[0]}') travel beside the update, and no clip bounds them"
    return f"[privacy] level = 'silo': {what}; use GroupNorm"
