"""Say what machine this is, and what of the other steps' needs it has."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import metadata
from importlib.util import find_spec

import torch

import mpifl
from mpifl.common.machine import hardware, processor
from mpifl.training import device_of
from mpifl.wire.launching import library
from scripts.gpu_day.reporting import Noted, arguments

TOOLS = ("nvidia-smi", "nvidia-cuda-mps-control", "compute-sanitizer", "nvcc", "c++", "mpirun")
LIBRARIES = ("numpy", "h5py", "mpi4py", "pytest", "transformers", "peft", "triton")
ASKED = "name,driver_version,memory.total,power.limit,compute_mode,mig.mode.current"


def main() -> None:
    given = arguments(__doc__)
    noted, device = Noted(given.json), device_of(given.device, 0, True)
    noted.add("device", str(device))
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        size = f"{about.total_memory / 1e9:.0f} GB, {about.multi_processor_count} units"
        noted.add("GPU", f"{about.name}, {size}")
        noted.add("GPUs", torch.cuda.device_count())
        noted.add("CUDA or ROCm", torch.version.cuda or torch.version.hip)
        noted.add("cuDNN", torch.backends.cudnn.version())
    noted.add("mpifl, torch", f"{mpifl.__version__}, {torch.__version__}")
    noted.add("processor", f"{processor()}, {len(os.sched_getaffinity(0))} cores")
    noted.add("instruction sets, caches, nodes", str(hardware()))
    noted.add("MPI", library())
    for tool in TOOLS:
        noted.add(tool, shutil.which(tool) or "not here")
    for name in LIBRARIES:
        noted.add(name, metadata.version(name) if find_spec(name) else "not here")
    if smi := shutil.which("nvidia-smi"):
        words = [smi, f"--query-gpu={ASKED}", "--format=csv,noheader"]
        told = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        noted.add(f"nvidia-smi: {ASKED}", (told.stdout or told.stderr).strip())


if __name__ == "__main__":
    main()
