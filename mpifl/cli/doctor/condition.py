"""The condition of one rank: its place, its tools, its shards and the run folder."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from mpifl import __version__
from mpifl.cli.doctor.disk import Disk, examine_folder, file_system
from mpifl.cli.doctor.gpus import Gpu, examine_gpu
from mpifl.cli.doctor.site_check import SiteCondition, examine_site
from mpifl.common import InputError
from mpifl.common.machine import (
    granted_cores,
    hardware,
    pin_kernels,
    processor,
    scratch_room,
    signals,
)
from mpifl.data.shards import (
    AnyEntry,
    AnySpec,
    FederationSpec,
    ShardEntry,
    Split,
    VerticalEntry,
    VerticalSpec,
    VerticalSplit,
    open_shard,
    open_vertical,
    parse_any,
)
from mpifl.exchange.server_side import place
from mpifl.run.job import Job
from mpifl.sums import kernels
from mpifl.training import device_name, device_of, models_of, place_on_gpus, threads_of
from mpifl.training.beforehand import BITS, about_bits, about_plain
from mpifl.wings.fast import Trial, try_batching
from mpifl.wings.masked import user_name
from mpifl.wings.split import placement
from mpifl.wire import Message, Transport, possible
from mpifl.wire.launching import MPIFacts, facts, started_by

CPU = torch.device("cpu")


class Plan(Message):
    """What all ranks must look at, from rank 0."""

    device: str = "auto"
    threads: int | str = 1
    folder: str | None = None
    """The folder of the shards."""
    spec: str | None = None
    """Its `federation.json`."""
    run: str | None = None
    compile: bool = False
    batched: bool = False
    job: str | None = None
    """The whole job, or None."""
    private: bool | None = None
    """Whether silos draw noise for the job's `[privacy]`; None without a job."""
    masked: bool = False
    """Whether the job's sums are masked."""

    @property
    def needs_site(self) -> bool:
        """Whether each worker's site needs a folder."""
        return self.masked or bool(self.private)


class FoundShards(Message):
    """The shards that a rank would open."""

    count: int = 0
    mapped: int = 0
    """How many of them are mapped into memory; compressed ones are read whole."""
    bytes: int = 0
    system: str = ""
    faults: list[str] = []  # noqa: RUF012 - pydantic copies it


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


class Condition(Message):
    """The condition of one rank, found by itself."""

    rank: int
    host: str
    node: int
    doorbell: bool
    memory: bool
    mpi: MPIFacts
    launcher: str | None
    family: str | None
    device: str
    device_fault: str | None = None
    gpu: Gpu | None = None
    cores: list[int]
    threads: int
    kernels: str
    compiler: str | None
    cpp: str | None
    versions: str
    hdf5: str
    deaf: list[str]
    """Signals that do not arrive."""
    shards: FoundShards = FoundShards()
    run: Disk | None = None
    user: str = ""
    site: SiteCondition | None = None
    batched: Trial | None = None
    computes: Computes = Computes()
    hardware: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    granted: float | None = None
    """Cores' time that control groups grant; None if they set no limit."""
    room: dict[str, int] = {}  # noqa: RUF012
    """Free bytes of folders for files that do not last."""


def examine_rank(transport: Transport, plan: Plan) -> Condition:
    """Return this rank's condition; no file is left behind."""
    _, workers = transport.place()
    spec, job = (parse_any(plan.spec) if plan.spec else None), plan.job and Job.model_validate_json(plan.job)
    computes = examine_processor(job or None, spec, workers)  # before anything else computes
    program, family = started_by() or (None, None)
    device, fault, gpu = _device(plan.device, transport)
    return Condition(
        rank=transport.rank,
        host=socket.gethostname(),
        node=transport.nodes.number,
        doorbell=transport.has_doorbell,
        memory=possible(),
        mpi=facts(),
        launcher=program,
        family=family,
        device=device,
        device_fault=fault,
        gpu=gpu,
        cores=_cores(),
        threads=threads_of(plan.threads, workers),
        kernels="tensors" if kernels.compiled() is None else "compiled",
        compiler=shutil.which(os.environ.get("CC", "cc")),
        cpp=shutil.which(os.environ.get("CXX", "g++")),
        versions=f"mpifl {__version__}, Python {platform.python_version()}, torch {torch.__version__}",
        hdf5=h5py.version.hdf5_version,
        deaf=_deaf(),
        shards=_shards(plan, transport),
        run=examine_folder(Path(plan.run)) if plan.run else None,
        user=user_name(),
        site=_site(plan),
        batched=None if fault else _batched(plan, transport),
        computes=computes,
        hardware=hardware(),
        granted=granted_cores(),
        room=scratch_room(),
    )


def _site(plan: Plan) -> SiteCondition | None:
    entries: Sequence[AnyEntry] = parse_any(plan.spec).silos if plan.spec else []
    return examine_site([entry.name or f"silo {silo}" for silo, entry in enumerate(entries)], plan.private)


def _batched(plan: Plan, transport: Transport) -> Trial | None:
    """Try batched steps at the first worker, if the job could use them."""
    spec = parse_any(plan.spec) if plan.spec else None
    if plan.job is None or not isinstance(spec, FederationSpec) or transport.rank != transport.workers[0]:
        return None
    job, before = Job.model_validate_json(plan.job), torch.get_num_threads()
    hosted = place([entry.examples["train"] for entry in spec.silos], transport.workers)[transport.rank]
    torch.set_num_threads(threads_of(plan.threads, transport.place()[1]))
    try:
        return try_batching(job, spec, hosted, device_of(plan.device, place_on_gpus(transport), True))
    except (InputError, RuntimeError, MemoryError):  # other findings report the fault
        return None
    finally:
        torch.set_num_threads(before)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _device(wanted: str, transport: Transport) -> tuple[str, str | None, Gpu | None]:
    """Return this rank's device for training, why it lacks the wanted device (or None), and its GPU."""
    try:
        device = device_of(wanted, place_on_gpus(transport), transport.rank in transport.workers)
        if device.type == "cpu":
            return "cpu", None, None
        torch.ones(1, device=device).add_(1).cpu()  # a driver that does not fit fails only now
        return device_name(device), None, examine_gpu(device)
    except (InputError, RuntimeError) as error:
        return "none", str(error).partition("\n")[0], None


def _deaf() -> list[str]:
    """Return the signals that ask a training to end but do not arrive here; each is raised once to test
    it."""
    heard: list[int] = []
    deaf = []
    for number in signals.SIGNALS:
        before = signal.signal(number, lambda given, _: heard.append(given))
        blocked = number in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        if not blocked:
            signal.raise_signal(number)
        if number not in heard:
            deaf.append(number.name)
        signal.signal(number, signal.SIG_DFL if before is None else before)
    return deaf


def _shards(plan: Plan, transport: Transport) -> FoundShards:
    """Open the shards that this rank would open; check sizes, not checksums."""
    if plan.folder is None or plan.spec is None:
        return FoundShards()
    spec, folder = parse_any(plan.spec), Path(plan.folder)
    entries = _entries(spec, transport)
    faults, mapped = [], 0
    for entry in entries:
        try:
            mapped += _maps(_opened(folder, entry, spec))
        except InputError as error:
            faults.append(" ".join(str(error).split()))
    size = sum(entry.bytes for entry in entries)
    return FoundShards(
        count=len(entries), mapped=mapped, bytes=size, system=file_system(folder), faults=faults
    )


def _entries(spec: FederationSpec | VerticalSpec, transport: Transport) -> list[ShardEntry | VerticalEntry]:
    """Return the shards that this rank would open: its silos', the public examples, and on the server the
    test set."""
    if isinstance(spec, VerticalSpec):
        return [spec.silos[silo] for silo in placement(spec, transport).get(transport.rank, [])]
    placed = place([entry.examples["train"] for entry in spec.silos], transport.workers)
    entries: list[ShardEntry | VerticalEntry] = [spec.silos[k] for k in placed.get(transport.rank, [])]
    entries += [spec.public] if spec.public else []
    return entries + ([spec.test] if spec.test and transport.is_server else [])


def _opened(
    folder: Path, entry: ShardEntry | VerticalEntry, spec: FederationSpec | VerticalSpec
) -> list[Mapping[str, Any]]:
    """Open a shard; return the arrays of each split by their names."""
    splits: Iterable[Split | VerticalSplit]
    if isinstance(spec, VerticalSpec):
        assert isinstance(entry, VerticalEntry)
        splits = open_vertical(folder, entry, spec, checksum=False).values()
    else:
        assert isinstance(entry, ShardEntry)
        splits = open_shard(folder, entry, spec, checksum=False).splits.values()
    return [split.arrays for split in splits if len(split)]


def _maps(splits: Sequence[Mapping[str, Any]]) -> bool:
    """Read the last example of each split of a shard; return whether all arrays are mapped, not read
    whole."""
    arrays = [array for split in splits for array in split.values()]
    for array in arrays:
        np.array(array[-1])
    return all(isinstance(getattr(array, "values", array), np.memmap) for array in arrays)


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
