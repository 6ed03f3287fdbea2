"""The GPUs of all ranks: their free memory, and which workers share one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from mpifl.cli.doctor.findings import Finding
from mpifl.wire import Message

GB = 1e9
_MPS = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"
"""The environment variable for the folder where MPS listens, and its default."""


class Gpu(Message):
    """A rank's GPU.

    Attributes:
        id: The id, the same for all processes that use the GPU.
        free, total: Its memory in bytes.
        part: Whether it is a part of a GPU (MIG).
        served: Whether MPS lets processes compute on it at the same time.
    """

    id: str
    free: int
    total: int
    part: bool = False
    served: bool = False


def examine_gpu(device: torch.device) -> Gpu | None:
    """Return the facts of a rank's GPU; None if its runtime does not tell them."""
    runtime = getattr(torch, device.type)
    with contextlib.suppress(AttributeError, RuntimeError):
        free, total = runtime.mem_get_info(device)
        about = runtime.get_device_properties(device)
        id = str(getattr(about, "uuid", device))
        served = (Path(os.environ.get(*_MPS)) / "control").exists()
        return Gpu(id=id, free=free, total=total, part="MIG" in about.name, served=served)
    return None


def judge_gpus(gpus: Sequence[tuple[str, Gpu]]) -> Iterator[Finding]:
    """Yield a finding on how many workers share a GPU, and on the least free memory.

    Args:
        gpus: The host and the GPU of each worker with a GPU.
    """
    shared: dict[tuple[str, str], list[Gpu]] = {}
    for host, gpu in gpus:
        shared.setdefault((host, gpu.id), []).append(gpu)
    if not shared:
        return
    most, fullest = max(shared.values(), key=len), min((gpu for _, gpu in gpus), key=lambda gpu: gpu.free)
    workers = f"{len(most)} worker{'s' * (len(most) > 1)} on one"
    free = f"{fullest.free / GB:.1f} of {fullest.total / GB:.1f} GB free on the fullest"
    said = f"{len(shared)} in use, {workers}; {free}"
    if len(most) == 1:
        yield Finding("GPUs", "ok", said)
    elif most[0].part:
        to_do = "a process sees one instance: start a worker for each, with its CUDA_VISIBLE_DEVICES"
        yield Finding("GPUs", "warning", f"{said}; it is a MIG instance", to_do)
    elif most[0].served:
        yield Finding("GPUs", "ok", f"{said}, by MPS at once")
    else:
        to_do = "they take turns: start MPS (nvidia-cuda-mps-control -d), or a worker for each GPU"
        yield Finding("GPUs", "warning", said, to_do)
