"""Where a rank computes: on which device, with how many threads."""

from __future__ import annotations

import math
import os
import socket

import torch

from mpifl.common import InputError
from mpifl.run import Job


def rank_device(job: Job, nth: int, is_worker: bool) -> torch.device:
    """Return where a rank computes, if the job's precision gains something there.

    Raises:
        InputError: it does not, or there is no such device.
    """
    device = device_of(job.device, nth, is_worker)
    if (precision := job.local.precision) != "fp32" and device.type == "cpu" and is_worker:
        what = f"{socket.gethostname()} trains on its CPU, where {precision} gains nothing"
        to_do = "take 'fp32', or device = 'cuda' where there is a GPU"
        raise InputError(f"[local] precision = '{precision}': {what}; {to_do}")
    return device


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


def device_of(wanted: str, nth: int, is_worker: bool) -> torch.device:
    """Return the GPU of a worker's place on its node, or the CPU, as for the server of several ranks.

    Raises:
        InputError: "cuda" is wanted, and there is none.
    """
    if wanted == "cpu" or not is_worker:
        return torch.device("cpu")
    if torch.cuda.is_available():
        torch.backends.cudnn.deterministic = True  # or a convolution's gradient differs from run to run
        return torch.device("cuda", nth % torch.cuda.device_count())
    if wanted == "cuda":
        what = f"{socket.gethostname()} has no GPU that torch can use"
        raise InputError(f"device = 'cuda': {what}; take 'cpu' or 'auto'")
    return torch.device("cpu")
