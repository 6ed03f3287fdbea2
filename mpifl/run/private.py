"""What a job with `[privacy]` may not ask, since no noise would protect it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpifl.algorithms import Algorithm
from mpifl.common import InputError
from mpifl.data import AnySpec
from mpifl.run.private_silos import is_silo_level, why_not_at_silos, why_not_of_silos
from mpifl.server import POISSON

if TYPE_CHECKING:
    from mpifl.run.job import Job


def check_private(job: Job, algorithm: Algorithm) -> None:
    """See that a job goes with its `[privacy]`, as far as it can be seen without shards.

    Raises:
        InputError: it asks what no noise would protect.
    """
    if is_silo_level(job):
        whys: tuple[str, ...] = (why_not_at_silos(job, algorithm),)
    elif job.privacy is None:
        whys = (_of_poisson(job),)
    else:
        whys = (_of_sum(job), _of_algorithm(job, algorithm), _of_local(job), _of_cohort(job), _of_tables(job))
    if why := next(filter(None, whys), ""):
        raise InputError(why)


def check_private_data(job: Job, algorithm: Algorithm, spec: AnySpec) -> None:
    """See that a job's `[privacy]` goes with the federation.

    Args:
        job: The job.
        algorithm: Its algorithm, which knows the federation.
        spec: The federation.

    Raises:
        InputError: delta promises nothing, or figures of the silos' own examples would leave them.
    """
    if job.privacy is None:
        return
    of_silos = is_silo_level(job)
    if why := why_not_of_silos(job, len(spec.silos)) if of_silos else _of_examples(job, algorithm, spec):
        raise InputError(why)
    held_out = any(entry.examples.get(split) for entry in spec.silos for split in ("test", "valid"))
    if not (job.evaluate.silos and held_out) or job.privacy.evaluate_unprotected:
        return
    asked = {"target": job.evaluate.wanted, "patience": job.evaluate.patience, "split": job.evaluate.split}
    asked |= {"keep_best": job.evaluate.keep_best or None}
    by_it = [key for key, value in asked.items() if value is not None]
    more = f" ({', '.join(by_it)} may go by it)" if by_it else ""
    what = f"figures of what silos hold out are queries that no noise protects{more}"
    to_do = "take false, or say [privacy] evaluate_unprotected = true"
    raise InputError(f"[evaluate] silos = true: {what}; {to_do}")


def _of_examples(job: Job, algorithm: Algorithm, spec: AnySpec) -> str:
    assert job.privacy is not None
    sizes = [entry.examples["train"] for entry in spec.silos]
    union = job.privacy.in_sum
    most, whose = (sum(sizes), "all silos have") if union else (max(sizes), "the largest silo has")
    if job.privacy.delta > 1 / most:
        what = f"{whose} {most} examples, and above 1/{most} delta allows to publish one of them"
        return f"[privacy] delta = {job.privacy.delta:g}: {what}; take less"
    why = algorithm.task.why_no_mean()
    return f"[privacy]: the loss {why}" if why else ""


def _of_sum(job: Job) -> str:
    """Say what does not go with noise that is added to one sum of gradients a round."""
    assert job.privacy is not None
    if not job.privacy.in_sum:
        return ""
    key = "[privacy] noise_at = 'sum'"
    if not job.secure:
        return f"{key}: each site's own sum would have too little noise to be seen; add a table [security]"
    if (name := job.algorithm["name"]) != "fedsgd":
        return f"{key}: '{name}' takes steps of its own at silos; take 'fedsgd', one step of all a round"
    if job.aggregation.clip is not None:
        what = "says of each silo whether its gradient is longer, which no noise hides"
        return f"{key}: [aggregation] clip = {job.aggregation.clip:g} {what}; leave it out"
    if job.cohort.fraction < 1 or job.cohort.weights != "examples":
        what = "examples of all silos have one chance to be drawn, and count alike"
        return f"{key}: {what}; leave [cohort] fraction and weights out"
    return ""


def _of_algorithm(job: Job, algorithm: Algorithm) -> str:
    if job.privacy is not None and job.privacy.in_sum:
        return ""
    why = algorithm.why_not_private()
    return f"[privacy]: '{job.algorithm['name']}' {why}" if why else ""


def _of_local(job: Job) -> str:
    local = job.local
    if local.deadline is not None:
        what = "a silo asked again would answer otherwise, and the difference is protected by nothing"
        return f"[local] deadline = {local.deadline:g}: {what}; leave it out under [privacy]"
    if local.precision != "fp32":
        return f"[local] precision = '{local.precision}': [privacy] bounds norms in float32; take 'fp32'"
    if local.accumulate > 1:
        what = "a step of [privacy] has one batch, of any size"
        return f"[local] accumulate = {local.accumulate}: {what}; take a larger batch_size"
    if local.batched:
        return "[local] batched = true: each silo of [privacy] draws and clips by itself; leave it out"
    return (
        "[local] compile = true: a step of [privacy] is not compiled; leave it out" if local.compile else ""
    )


def _of_tables(job: Job) -> str:
    if job.data.augment is not None:
        what = "[privacy] takes examples as they are"
        return f"[data] augment = '{job.data.augment}': {what}; leave one of them out"
    if job.attack.kind != "none":
        return f"[attack] kind = '{job.attack.kind}': who lies spends no budget; leave one of them out"
    return ""


def _of_poisson(job: Job) -> str:
    if job.cohort.select != POISSON:
        return ""
    what = "draws silos in secret, which goes with [privacy] level = 'silo' alone"
    return f"[cohort] select = '{POISSON}': {what}; take 'uniform'"


def _of_cohort(job: Job) -> str:
    if job.cohort.select == POISSON:
        return _of_poisson(job)
    if job.cohort.select != "power-of-choice":
        return ""
    return "[cohort] select = 'power-of-choice': goes by losses, which [privacy] withholds; take another"
