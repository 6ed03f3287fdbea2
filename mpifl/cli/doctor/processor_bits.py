"""A digest of what a rank's processor computes, to compare ranks."""

from __future__ import annotations

import torch

from mpifl.common import InputError
from mpifl.common.machine import pin_kernels, processor
from mpifl.data.shards import AnySpec, FederationSpec
from mpifl.run.job import Job
from mpifl.training import models_of, threads_of
from mpifl.training.beforehand import BITS, about_bits, about_plain
from mpifl.wire import Message

CPU = torch.device("cpu")


class Computes(Message):
    """How a rank computes.

    Attributes:
        processor: The processor and its instruction sets.
        bits: The digest of two steps of the job's model, or of a perceptron; "" if unknown.
        fault: Why it cannot use the job's `kernels`; "" if it can.
    """

    processor: str = ""
    bits: str = ""
    fault: str = ""


def examine_processor(job: Job | None, spec: AnySpec | None, workers: int) -> Computes:
    """Take two steps, as a training does at its start.

    Args:
        job: The job, or None.
        spec: The federation of its shards.
        workers: The number of workers on the node.
    """
    before = torch.get_num_threads()
    try:
        if job is not None and job.kernels == "avx2":
            pin_kernels()
        torch.set_num_threads(threads_of(job.threads, workers) if job else 1)
        return Computes(processor=processor(), bits=_bits(job, spec))
    except InputError as error:
        return Computes(processor=processor(), fault=str(error))
    finally:
        torch.set_num_threads(before)


def _bits(job: Job | None, spec: AnySpec | None) -> str:
    if job is None or not isinstance(spec, FederationSpec):
        return about_plain(CPU)[BITS]
    try:
        algorithm = job.build_algorithm().for_federation(spec)
        model, *_ = models_of(job, spec, algorithm, CPU, is_reporter=False)
    except InputError:
        return ""  # another finding reports it
    return about_bits(model, algorithm.task, spec.features)[BITS]
