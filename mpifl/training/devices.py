"""The device and the number of threads of a rank."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping

import torch

from mpifl.common import InputError
from mpifl.common.machine import pin_kernels
from mpifl.run.job import Job
from mpifl.silo import Lanes
from mpifl.wire import Transport


def rank_device(job: Job, nth: int, is_worker: bool) -> torch.device:
    """Return the device of a rank, after a check that the job's precision is of use there.

    Raises:
        InputError: it is of no use, or there is no such device.
    """
    device = device_of(job.device, nth, is_worker)
    if (precision := job.local.precision) != "fp32" and device.type == "cpu" and is_worker:
        what = f"{socket.gethostname()} trains on its CPU, where {precision} gains nothing"
        to_do = "use 'fp32', or device = 'gpu' where there is one"
        raise InputError(f"[local] precision = '{precision}': {what}; {to_do}")
    return device


def settle(job: Job, workers: int) -> None:
    """Set the job's kernels and this rank's number of threads for this process.

    Args:
        workers: The number of workers on the node.

    Raises:
        InputError: this process cannot use these kernels.
    """
    settle_kernels(job)
    torch.set_num_threads(threads_of(job.threads, workers))


def settle_kernels(job: Job) -> None:
    """Set the job's kernels for this process. It must not have computed anything before.

    Raises:
        InputError: it cannot use them.
    """
    if job.kernels == "avx2":
        pin_kernels()


def threads_of(wanted: int | str, workers: int) -> int:
    """Return the number of threads of a rank; for "auto", its share of the cores that it may use.

    If a launcher binds ranks to cores, fewer ranks share each part of the node's cores.

    Args:
        wanted: The job's `threads`.
        workers: The number of workers on the node; 0 at a server that is no worker, which computes little.
    """
    if isinstance(wanted, int):
        return wanted
    if not hasattr(os, "sched_getaffinity"):
        mine = launchers = os.cpu_count() or 1
    else:
        mine = len(os.sched_getaffinity(0))
        launchers = max(len(os.sched_getaffinity(os.getppid())), mine)
    return max(mine // max(math.ceil(workers * mine / launchers), 1), 1) if workers else 1


def place_on_gpus(transport: Transport) -> int:
    """Return a rank's number among the ranks that share its node's GPUs. A server that is no worker comes
    last."""
    is_worker = transport.rank in transport.workers
    return transport.place()[0] if is_worker else len(transport.peers)


def lanes_of(wanted: int | str, transport: Transport, device: torch.device) -> Lanes:
    """Return the lanes with which the server scores while other ranks of its node wait: on all the job's
    cores there.

    Args:
        wanted: The job's `threads`.
        device: The server's device; a GPU gets one lane.
    """
    waiting = [one.process for rank, one in transport.nodes.neighbours.items() if rank != transport.rank]
    if device.type != "cpu" or not waiting or not hasattr(os, "sched_getaffinity"):
        return Lanes()
    cores = frozenset().union(*map(_cores_of, [0, *waiting]))
    own, theirs = threads_of(wanted, 0), threads_of(wanted, len(transport.peers))
    return Lanes(max(min(own + theirs * len(waiting), len(cores)) // own, 1), cores)


def _cores_of(process: int) -> set[int]:
    """Return the cores that a process may use; none if the process has ended."""
    try:
        return os.sched_getaffinity(process)
    except OSError:
        return set()


def device_of(wanted: str, nth: int, is_worker: bool) -> torch.device:
    """Return the GPU for a rank's number on its node, or the CPU.

    The GPU becomes this process's current one, where streams and graphs are made. A server that is no worker
    uses the CPU if no GPU is free for it.

    Raises:
        InputError: a worker needs a GPU, and there is none of this kind.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    if (kind := _kind(wanted)) is not None:
        torch.backends.cudnn.deterministic = True  # else a convolution's gradient differs between runs
        runtime = getattr(torch, kind)
        device = torch.device(kind, nth % runtime.device_count())
        runtime.set_device(device.index)
        return device if is_worker or _answers(device) else torch.device("cpu")
    if wanted != "auto" and is_worker:
        what = f"{socket.gethostname()} has no GPU that torch can use"
        raise InputError(f"device = '{wanted}': {what}; use 'cpu' or 'auto'")
    return torch.device("cpu")


def unused_gpus(wanted: str, ranks: Mapping[str, Mapping[str, str]]) -> str:
    """Return a warning where SLURM gave GPUs and workers train on CPUs, "" otherwise.

    Args:
        wanted: The job's `device`.
        ranks: What each worker reports of itself.
    """
    given = next((key for key in ("SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS") if os.environ.get(key)), "")
    on_cpu = sorted({about["host"] for about in ranks.values() if about["device"] == "cpu"})
    if wanted != "auto" or not given or not on_cpu:
        return ""
    why = "torch has no CUDA" if torch.version.cuda is None else "torch sees none"
    what = f"SLURM gave GPUs ({given}={os.environ[given]}), and workers on {', '.join(on_cpu)} train on CPUs"
    return f"{what}: {why}; see mpifl doctor, or set device = 'cuda' to have this refused"


def _answers(device: torch.device) -> bool:
    """Return whether a GPU accepts this process; it may be in exclusive mode, or full."""
    try:
        return bool(torch.ones(1, device=device).add_(1).cpu() == 2)
    except RuntimeError:
        return False


def device_name(device: torch.device) -> str:
    """Return a device's name for messages."""
    return (
        "cpu" if device.type == "cpu" else f"{device} {getattr(torch, device.type).get_device_name(device)}"
    )


def _kind(wanted: str) -> str | None:
    """Return torch's name for the kind of GPU to use, or None.

    "gpu" means any that computes in float64, which sums and statistics need; Apple's GPUs do not.
    """
    if torch.cuda.is_available():
        return "cuda"
    if wanted != "gpu" or not hasattr(torch, "accelerator") or not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return found.type if found is not None and found.type != "mps" else None
