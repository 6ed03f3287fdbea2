"""Loading of a step's machine code, with a first trial in a separate process.

A compiler may have a bug that no comparison can find: its code kills the process that loads it. So new code
is first loaded and called in a child process.

python code_loading.py PACKAGE DEVICE LAYOUT
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

Run: TypeAlias = Callable[[list[Tensor]], object]
PROGRAM = Path(__file__)
PATIENCE = 120.0
"""The most seconds for a child process to load and call the code; it usually takes four."""


class NotLoaded(Exception):
    """Machine code cannot be used; the message says why."""


def load(path: Path, device: torch.device) -> Run:
    """Load a package of AOTInductor; return its function.

    Raises:
        NotLoaded: this version of PyTorch cannot choose the GPU.
        RuntimeError: it cannot be loaded.
    """
    from torch._inductor import aoti_load_package

    wanted: dict[str, Any] = {
        "run_single_threaded": True,
        "device_index": device.index if device.type == "cuda" else -1,
    }
    taken = inspect.signature(aoti_load_package).parameters  # PyTorch before 2.8 has fewer
    if device.type == "cuda" and "device_index" not in taken:
        raise NotLoaded("on a GPU this needs PyTorch 2.8")
    package: Any = aoti_load_package(
        str(path), **{name: value for name, value in wanted.items() if name in taken}
    )
    run: Run = package.loader.run  # the package itself would check the arguments at each call
    return run


def survives(path: Path, inputs: Sequence[Tensor], device: torch.device) -> bool:
    """Load a package in another process and call it on zeros; return whether this succeeded.

    It also fails if that process may not compute, for example on a GPU reserved for one process. So False
    does not mean that the code is bad.

    Raises:
        NotLoaded: the process was killed, or did not end in time.
    """
    layout = json.dumps([(list(t.shape), list(t.stride()), str(t.dtype)[6:]) for t in inputs])
    command = [sys.executable, str(PROGRAM), str(path), str(device), layout]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotLoaded(f"{_maker()} makes code that has no end") from None
    if done.returncode < 0:
        raise NotLoaded(
            f"{_maker()} makes code that crashes with {signal.Signals(-done.returncode).name}; "
            "name another compiler by CXX"
        )
    return done.returncode == 0


def _maker() -> str:
    return os.environ.get("CXX", "g++")


def main() -> None:
    """Load and call a package. The parent ignores an error here: it meets the error itself when it loads."""
    path, device, layout = Path(sys.argv[1]), torch.device(sys.argv[2]), json.loads(sys.argv[3])
    zeros = [
        torch.empty_strided(shape, stride, dtype=getattr(torch, dtype), device=device).zero_()
        for shape, stride, dtype in layout
    ]
    load(path, device)(zeros)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
