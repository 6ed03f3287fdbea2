"""Checks of a job with `[privacy]` against its federation: what no noise protects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from mpifl.algorithms import Algorithm
from mpifl.common import InputError, count_of
from mpifl.data.shards import AnySpec
from mpifl.run.job.fits import IN_EFFECT

if TYPE_CHECKING:
    from mpifl.run.job.job import Job

LEAST = 100
"""The least expected silos of a round for an adaptive clip: with fewer its bits are all noise."""


def check_private_data(job: Job, algorithm: Algorithm, spec: AnySpec) -> None:
    """Check that a job's `[privacy]` goes with the federation.

    Args:
        algorithm: The job's algorithm, which knows the federation.

    Raises:
        InputError: delta is too large to promise anything, or unprotected figures would leave the silos.
    """
    if job.privacy is None:
        return
    of_silos = is_silo_level(job)
    if why := why_not_of_silos(job, len(spec.silos)) if of_silos else _of_examples(job, algorithm, spec):
        raise InputError(why)
    held_out = any(entry.examples.get(split) for entry in spec.silos for split in ("test", "valid"))
    scored = job.evaluate.silos and held_out and algorithm.scored_at_silos
    if not scored or job.privacy.evaluate_unprotected:
        return
    asked = {"target": job.evaluate.wanted, "patience": job.evaluate.patience, "split": job.evaluate.split}
    asked |= {"keep_best": job.evaluate.keep_best or None}
    by_it = [key for key, value in asked.items() if value is not None]
    more = f" ({', '.join(by_it)} may go by it)" if by_it else ""
    what = f"scores on held-out rows of the silos are released without noise{more}"
    to_do = "use false, or set [privacy] evaluate_unprotected = true"
    raise InputError(f"[evaluate] silos = true: {what}; {to_do}")


def _of_examples(job: Job, algorithm: Algorithm, spec: AnySpec) -> str:
    assert job.privacy is not None
    of_training = ("train",) if algorithm.trainings else None  # a table is of all rows
    sizes = [sum(entry.examples[of] for of in of_training or entry.examples) for entry in spec.silos]
    union = job.privacy.in_sum
    most, whose = (sum(sizes), "all silos have") if union else (max(sizes), "the largest silo has")
    if job.privacy.delta > 1 / most:
        what = f"{whose} {most} examples, and above 1/{most} delta allows to publish one of them"
        return f"[privacy] delta = {job.privacy.delta:g}: {what}; use a smaller value"
    why = algorithm.task.why_no_mean() if algorithm.trainings else ""
    return f"[privacy]: the loss {why}" if why else ""


def is_silo_level(job: Job) -> bool:
    """Return whether a job protects whole silos: `[privacy] level = 'silo'`."""
    return IN_EFFECT["silo"](job)


def why_not_of_silos(job: Job, silos: int) -> str:
    """Return why silo-level privacy would promise nothing for `silos` silos; "" if it does promise."""
    assert job.privacy is not None
    delta, expected = job.privacy.delta, job.cohort.expected(silos)
    if delta > 1 / silos:
        what = f"there are {count_of(silos, 'silo')}, and above 1/{silos} delta allows to publish one of them"
        return f"[privacy] delta = {delta:g}: {what}; use a smaller value"
    if expected == 0:
        return "[cohort] fraction = 0: poisson draws no silo; use a larger value"
    if job.privacy.is_adaptive and expected < LEAST:
        many = f"{expected:g} silo{'s' * (expected != 1)}"
        what = f"a round expects {many}, and of fewer than {LEAST} its bit is all noise"
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
