"""The check that a job's keys go together: it asks the tables of fits and checks the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mpifl.algorithms import Algorithm, ServerSGD
from mpifl.common import InputError
from mpifl.run.job.fits import FITS, IN_EFFECT, whys_not
from mpifl.run.job.tables import POISSON

if TYPE_CHECKING:
    from mpifl.run.job.job import Job

TAKING_LATE = ("fedavg", "fedprox", "fedsam", "fedsgd", "finetune")
"""The algorithms with which a sum may count in a later round. Whatever else a round's updates tell, or silos
keep, is of that round alone."""


def check_fits(job: Job, algorithm: Algorithm) -> None:
    """Check that a job's keys go together, as far as this can be known without shards.

    Raises:
        InputError: they do not; the line gives advice, and names what else does not go with `[privacy]`.
    """
    found = _refusals(job, algorithm)
    if (why := next(found, None)) is None:
        return
    others = [one.partition(": ")[0] for one in found] if job.privacy is not None else []
    more = [one for one in dict.fromkeys(others) if one != why.partition(": ")[0]]
    raise InputError(f"{why} (refused, too: {'; '.join(more)})" if more else why)


def _refusals(job: Job, algorithm: Algorithm) -> Iterator[str]:
    yield from _of_poisson(job)
    yield from _of_layout(job, algorithm)
    yield from _of_clock(job, algorithm)
    asked = [way for way, is_asked in IN_EFFECT.items() if is_asked(job)]
    for way in [*(way for way in algorithm.ways if way in FITS.cells), *asked]:
        yield from _FIRST.get(way, _nothing)(job, algorithm)
        yield from whys_not(way, job)
        yield from _THEN.get(way, _nothing)(job, algorithm)


def _nothing(job: Job, algorithm: Algorithm) -> Iterator[str]:
    return iter(())


def _of_layout(job: Job, algorithm: Algorithm) -> Iterator[str]:
    name, is_split = job.algorithm["name"], algorithm.layout == "vertical"
    if job.split is not None and not is_split:
        what = f"'{name}' trains one model, which is not split; use 'splitnn', or leave [split] out"
        yield f"[algorithm] name = '{name}': {what}"
    if job.split is None and is_split:
        what = "the network is split by [split], and the job has none; it needs cut, the width of a line"
        yield f"[algorithm] name = '{name}': {what}"
    if is_split and algorithm.server_optimizer != ServerSGD():
        yield "[server_optimizer]: there is no mean to step along; [local] says how each half steps"


def _of_clock(job: Job, algorithm: Algorithm) -> Iterator[str]:
    name = job.algorithm["name"]
    if job.clock is not None and (why := algorithm.why_not_clocked()):
        yield f"[clock]: '{name}' {why}, or leave [clock] out"
    if job.clock is None and algorithm.timed:
        what = "who is done when is said by [clock], and the job has none; it may be empty"
        yield f"[algorithm] name = '{name}': {what}"


def _of_sum(job: Job, algorithm: Algorithm) -> Iterator[str]:
    key, name = "[privacy] noise_at = 'sum'", job.algorithm["name"]
    if not job.secure:
        yield f"{key}: each site's own sum would have too little noise to be seen; add a table [security]"
    if name != "fedsgd":
        yield f"{key}: '{name}' takes steps of its own at silos; use 'fedsgd', one step of all a round"


def _of_examples(job: Job, algorithm: Algorithm) -> Iterator[str]:
    if (why := algorithm.why_not_private()) and not IN_EFFECT["sum"](job):
        yield f"[privacy]: '{job.algorithm['name']}' {why}"


def _of_poisson(job: Job) -> Iterator[str]:
    if job.cohort.select == POISSON and not IN_EFFECT["silo"](job):
        what = "draws silos in secret, which goes with [privacy] level = 'silo' alone"
        yield f"[cohort] select = '{POISSON}': {what}; use 'uniform'"


def _of_silos(job: Job, algorithm: Algorithm) -> Iterator[str]:
    if job.privacy is not None and job.privacy.in_sum and not job.secure:
        what = "each silo's own update would have too little noise to be seen"
        yield f"[privacy] noise_at = 'sum': {what}; add a table [security], or use 'server'"
    if why := algorithm.why_not_noised():
        yield f"[privacy] level = 'silo': '{job.algorithm['name']}' does not go with it: {why}"


def _of_masks(job: Job, algorithm: Algorithm) -> Iterator[str]:
    if why := algorithm.why_not_masked():
        yield f"[algorithm] name = '{job.algorithm['name']}': {why}; leave [security] masks out"


def _of_late(job: Job, algorithm: Algorithm) -> Iterator[str]:
    if (name := job.algorithm["name"]) not in TAKING_LATE:
        what = "takes no late sums: its silos keep something, or send more than one change of the model"
        use = ", ".join(TAKING_LATE)
        yield f"[algorithm] name = '{name}': {what}; use {use}, or leave [cohort] late out"


def _of_halves(job: Job, algorithm: Algorithm) -> Iterator[str]:
    if job.local.batch_size != "full" and (why := algorithm.task.why_no_mean()):
        yield f"[local] batch_size = {job.local.batch_size}: {why}; use 'full'"
    assert job.split is not None
    tables = {"top": job.split.top}
    tables |= {f"bottoms.{silo}": table for silo, table in job.split.bottoms.items()}
    for key in (key for key, table in tables.items() if "buffers" in table):
        what = "each party keeps all buffers of its part of a split network; leave it out"
        yield f"[split.{key}] buffers: {what}"


Says = Callable[["Job", Algorithm], Iterator[str]]
_FIRST: dict[str, Says] = {"sum": _of_sum, "private": _of_examples}
"""Checks before the table of fits is asked for a way."""
_THEN: dict[str, Says] = {"silo": _of_silos, "masks": _of_masks, "split": _of_halves, "late": _of_late}
"""Checks after that."""
