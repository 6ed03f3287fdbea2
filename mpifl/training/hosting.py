"""What a rank hosts silos with: its device, its threads, and the worker that answers for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mpifl.common import check_open_files
from mpifl.data.shards import FederationSpec
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.run.job import Job
from mpifl.training.beforehand import about_bits
from mpifl.training.devices import place_on_gpus, rank_device, settle
from mpifl.wings.crews import trains_of
from mpifl.wings.dpsgd import about_rank
from mpifl.wings.fast import Batching
from mpifl.wire import Transport


def worker_of(context: WorkerContext, job: Job, silos: Sequence[int], transport: Transport) -> Worker:
    """Return what answers for a rank's silos.

    Raises:
        InputError: it may not open that many files, or a rank of its crew cannot take part.
    """
    check_open_files(len(silos))
    device = context.models[0].device
    trains = trains_of(job, context.algorithm, context.models, device, transport)
    hosts = Batching if job.local.batched else Worker
    bits = about_bits(context.models[0], context.algorithm.task, context.spec.features)
    return hosts(context, silos, about_rank(device, len(silos), job, bits), transport, trains)


def settled_device(job: Job, spec: FederationSpec, transport: Transport) -> torch.device:
    """Return where a rank computes, from now on with as many threads as it may.

    A server that is no worker has the GPU behind theirs, if it has work for one: a GPU takes memory of its
    own for each process.
    """
    settle(job, transport.place()[1] * transport.crew_size)
    is_worker = transport.rank in transport.workers
    if not is_worker and spec.test is None and spec.public is None:
        return torch.device("cpu")
    return rank_device(job, place_on_gpus(transport), is_worker)
