"""What a rank hosts: a worker with its silos, and the server's state; their device and threads."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from mpifl.algorithms import Algorithm, Server
from mpifl.common import check_open_files
from mpifl.common.machine import hardware
from mpifl.data.batches import Batches
from mpifl.data.shards import AnySpec, FederationSpec, ShardEntry, open_shard
from mpifl.exchange.worker_side import Worker, WorkerContext
from mpifl.learning.tasks import Task
from mpifl.run.job import Job
from mpifl.silo import ALONE, Lanes, learnable
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import Trains, train
from mpifl.training.beforehand import about_bits, about_plain, models_of
from mpifl.training.devices import device_name, place_on_gpus, rank_device, settle
from mpifl.training.wing import Wing, told_once
from mpifl.wire import Transport

BOTTOMS = "bottoms"
"""An entry of what a rank reports of itself: the number of parameters of its bottoms of a split network."""


def worker_of(
    context: WorkerContext, job: Job, silos: Sequence[int], transport: Transport, wings: Sequence[Wing]
) -> Worker:
    """Return the worker of a rank's silos.

    Raises:
        InputError: the rank may not open enough files, or two wings report the same entry.
    """
    check_open_files(len(silos))
    device = context.models[0].device
    hosts: type[Worker] = Worker
    trains: Trains = train
    for wing in wings:
        hosts, trains = wing.worker(hosts), wing.trains(trains, context, device, transport)
    bits = about_bits(context.models[0], context.algorithm.task, context.spec.features)
    about = about_rank(device, len(silos), bits)
    about |= told_once(about, wings, lambda wing: wing.about(), "what a rank says of its")
    worker = hosts(context, silos, about, transport, trains)
    worker.aggregators = told_once(
        worker.kinds, wings, lambda wing: wing.aggregators(context, transport), "the answer to"
    )
    return worker


def about_rank(device: torch.device, silos: int, bits: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a rank reports of itself.

    Args:
        device: The device that it trains on.
        silos: The number of its silos.
        bits: Its entries of `about_bits`; None if each rank has a model of its own.
    """
    about = {
        "host": socket.gethostname(),
        "device": device_name(device),
        "threads": str(torch.get_num_threads()),
    }
    computes = about_plain(device) if bits is None else bits
    return about | {"silos": str(silos), "pid": str(os.getpid())} | hardware() | dict(computes)


def settled_device(job: Job, spec: FederationSpec, transport: Transport) -> torch.device:
    """Return the device of a rank, and set its kernels and threads.

    A server that is no worker gets a GPU only if it has test or public examples, since each process costs
    memory on a GPU. Its number comes after the workers' numbers.
    """
    settle(job, transport.place()[1])
    is_worker = transport.rank in transport.workers
    if not is_worker and spec.test is None and spec.public is None:
        return torch.device("cpu")
    return rank_device(job, place_on_gpus(transport), is_worker)


def successor(job: Job, spec: AnySpec, worker: Server) -> Server:
    """Build a server on a worker that replaces a dead server, with models of its own."""
    assert isinstance(spec, FederationSpec)
    device = worker.model.device
    algorithm = job.build_algorithm().for_federation(spec)
    flat = models_of(job, spec, algorithm, device)
    return server_of(job, spec, algorithm, flat, spec.test, worker.public)


def server_of(
    job: Job,
    spec: FederationSpec,
    algorithm: Algorithm,
    flat: list[FlatModel],
    test: ShardEntry | None,
    public: Batches | None,
    lanes: Lanes = ALONE,
) -> Server:
    """Return the server's state, given its models, its test shard and its public examples."""
    task, device = algorithm.task, flat[0].device
    return Server(
        flat,
        job.seed,
        test=batches_of(Path(job.shards), spec, test, "test", device, task),
        public=public,
        own_objective=algorithm.own_objective,
        task=task,
        evaluation_batch=job.evaluate.batch_size,
        lanes=lanes,
    )


def batches_of(
    folder: Path,
    spec: FederationSpec,
    entry: ShardEntry | None,
    split: str,
    device: torch.device,
    task: Task | None = None,
) -> Batches | None:
    """Open a shard of the server; if a task is given, check that the task can learn from its targets."""
    if entry is None:
        return None
    shard = open_shard(folder, entry, spec)
    return Batches((learnable(shard, task) if task else shard)[split], spec.features, device)
