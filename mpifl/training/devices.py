"""Where a rank computes: on which device, with how many threads."""

from __future__ import annotations

import math
import os
import socket

import torch

from mpifl.common import InputError
from mpifl.common.machine import pin_kernels
from mpifl.run.job import Job
from mpifl.silo import Lanes
from mpifl.wire import Transport


def rank_device(job: Job, nth: int, is_worker: bool) -> torch.device:
    """Return where a rank computes, if the job's precision gains something there.

    Raises:
        InputError: it does not, or there is no such device.
    """
    device = device_of(job.device, nth, is_worker)
    if (precision := job.local.precision) != "fp32" and device.type == "cpu" and is_worker:
        what = f"{socket.gethostname()} trains on its CPU, where {precision} gains nothing"
        to_do = "take 'fp32', or device = 'gpu' where there is one"
        raise InputError(f"[local] precision = '{precision}': {what}; {to_do}")
    return device


def settle(job: Job, workers: int) -> None:
    """Have this process compute from now on by the job's kernels, with as many threads as it may.

    Args:
        job: The job.
        workers: How many the node has.

    Raises:
        InputError: it cannot compute by these kernels.
    """
    settle_kernels(job)
    torch.set_num_threads(threads_of(job.threads, workers))


def settle_kernels(job: Job) -> None:
    """Have this process compute from now on by the job's kernels; nothing may have been computed before.

    Raises:
        InputError: it cannot.
    """
    if job.kernels == "avx2":
        pin_kernels()


def threads_of(wanted: int | str, workers: int) -> int:
    """Return the threads of a rank: by "auto" its part of the cores that it may use.

    A launcher that binds ranks gives each a part of its own cores, which fewer ranks share.

    Args:
        wanted: The job's `threads`.
        workers: How many the node has; 0 on the server of several ranks, which computes little.
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
    """Return a rank's place among those of its node that share its GPUs; a server that is no worker comes
    behind the workers."""
    is_worker = transport.rank in transport.workers
    return transport.place()[0] if is_worker else len(transport.peers)


def lanes_of(wanted: int | str, transport: Transport, device: torch.device) -> Lanes:
    """Return how the server scores while the ranks of its node wait: on the cores that the job has there.

    Args:
        wanted: The job's `threads`.
        transport: The world.
        device: Where the server computes; a GPU takes one batch after another.
    """
    waiting = [one.process for rank, one in transport.nodes.neighbours.items() if rank != transport.rank]
    if device.type != "cpu" or not waiting or not hasattr(os, "sched_getaffinity"):
        return Lanes()
    cores = frozenset().union(*map(_cores_of, [0, *waiting]))
    own, theirs = threads_of(wanted, 0), threads_of(wanted, len(transport.peers))
    return Lanes(max(min(own + theirs * len(waiting), len(cores)) // own, 1), cores)


def _cores_of(process: int) -> set[int]:
    """Return the cores that a process may use; none if it has ended meanwhile."""
    try:
        return os.sched_getaffinity(process)
    except OSError:
        return set()


def device_of(wanted: str, nth: int, is_worker: bool) -> torch.device:
    """Return the GPU of a rank's place on its node, or the CPU.

    The GPU is this process's current one from then on: streams and graphs are made there. A server that is no
    worker does without one where none is left for it.

    Raises:
        InputError: a worker is to have a GPU, and there is none of the kind.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    if (kind := _kind(wanted)) is not None:
        torch.backends.cudnn.deterministic = True  # or a convolution's gradient differs from run to run
        runtime = getattr(torch, kind)
        device = torch.device(kind, nth % runtime.device_count())
        runtime.set_device(device.index)
        return device if is_worker or _answers(device) else torch.device("cpu")
    if wanted != "auto" and is_worker:
        what = f"{socket.gethostname()} has no GPU that torch can use"
        raise InputError(f"device = '{wanted}': {what}; take 'cpu' or 'auto'")
    return torch.device("cpu")


def _answers(device: torch.device) -> bool:
    """Whether a GPU computes for this process, too: one may be for a single process alone, or full."""
    try:
        return bool(torch.ones(1, device=device).add_(1).cpu() == 2)
    except RuntimeError:
        return False


def device_name(device: torch.device) -> str:
    """Return what people read of a device."""
    return (
        "cpu" if device.type == "cpu" else f"{device} {getattr(torch, device.type).get_device_name(device)}"
    )


def _kind(wanted: str) -> str | None:
    """Return torch's name for the kind of GPU to take, None where there is none.

    "gpu" takes any that computes in float64, which sums and statistics need; Apple's do not.
    """
    if torch.cuda.is_available():
        return "cuda"
    if wanted != "gpu" or not hasattr(torch, "accelerator") or not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return found.type if found is not None and found.type != "mps" else None
