"""Time rounds whose workers share the GPU under CUDA's MPS, by a daemon that ends with this program."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.gpu_day.reporting import Noted, arguments, not_here
from scripts.gpu_day.steps import Place

CONTROL = "nvidia-cuda-mps-control"


def main() -> None:
    given = arguments(__doc__)
    control = shutil.which(CONTROL)
    if control is None:
        not_here(f"{CONTROL} is not on the path")
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        told = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a step that is cut leaves no daemon behind
        subprocess.run([control, "-d"], env=told, timeout=30, check=True)
        try:
            rounds = Place(given.device, given.quick, Path(folder) / "rounds.json")
            ended = subprocess.run(rounds.bench("gpu", "rounds"), env=told, check=False)
        finally:
            subprocess.run([control], input="quit\n", text=True, env=told, timeout=60, check=False)
        for name, figure in Noted(rounds.figures).figures.get("rounds", {}).items():
            Noted(given.json).add(name, figure)
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
