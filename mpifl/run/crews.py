"""What a job may not ask whose silos take the gradients of a batch by parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpifl.algorithms import Algorithm
from mpifl.common import InputError

if TYPE_CHECKING:
    from mpifl.run.job import Job


def check_crews(job: Job, algorithm: Algorithm) -> None:
    """See that a job goes with its `[silo]`.

    Raises:
        InputError: it asks what has no parts; the line says what would do.
    """
    if job.silo.parts == 1:
        return
    given = f"[silo] parts = {job.silo.parts}: gradients are of parts of a batch"
    for why in (*_of_local(job), *_of_silos(job, algorithm)):
        raise InputError(f"{given}, and {why}")


def _of_local(job: Job) -> Iterator[str]:
    local = job.local
    if local.compile:
        yield "[local] compile = true makes one step of a whole batch; leave one of them out"
    if local.batched:
        yield "[local] batched = true takes whole batches of several silos; leave one of them out"
    if local.accumulate > 1:
        yield f"[local] accumulate = {local.accumulate} adds batches up instead; leave one of them out"
    if local.precision == "fp16":
        yield "[local] precision = 'fp16' scales the loss of a whole batch; take 'bf16' or 'fp32'"


def _of_silos(job: Job, algorithm: Algorithm) -> Iterator[str]:
    if algorithm.layout != "horizontal":
        yield f"'{job.algorithm['name']}' trains a network that is split by columns; leave [silo] out"
    if job.privacy is not None and job.privacy.level == "example":
        yield "[privacy] clips the gradient of each example; leave one of them out"
    if why := algorithm.task.why_whole():
        yield f"the loss {why}; leave [silo] out"
