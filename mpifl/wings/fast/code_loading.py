"""Machine code of a step, brought into a process, and tried in one of its own beforehand.

A compiler may be wrong in a way that no comparison finds: what it made ends the process that loads it. So new
code is loaded and called in a child first.

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
"""Seconds that a child may take to load and call it; it takes four."""


class NotLoaded(Exception):
    """Code cannot be used; the message says why."""


def load(path: Path, device: torch.device) -> Run:
    """Return what a package of AOTInductor does.

    Raises:
        NotLoaded: this PyTorch cannot be told which GPU it is for.
        RuntimeError: it cannot be loaded.
    """
    from torch._inductor import aoti_load_package

    wanted: dict[str, Any] = {
        "run_single_threaded": True,
        "device_index": device.index if device.type == "cuda" else -1,
    }
    taken = inspect.signature(aoti_load_package).parameters  # those of PyTorch before 2.8 are fewer
    if device.type == "cuda" and "device_index" not in taken:
        raise NotLoaded("on a GPU this needs PyTorch 2.8")
    package: Any = aoti_load_package(
        str(path), **{name: value for name, value in wanted.items() if name in taken}
    )
    run: Run = package.loader.run  # the package itself would look at the arguments at every call
    return run


def survives(path: Path, inputs: Sequence[Tensor], device: torch.device) -> bool:
    """Load a package and call it on zeros of a layout in another process; return whether that did so.

    It does not where it may not compute, as on a GPU that is for one process alone. That says nothing of the
    code.

    Raises:
        NotLoaded: that process died, or has no end.
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
            f"{_maker()} makes code that dies of {signal.Signals(-done.returncode).name}; "
            "name another compiler by CXX"
        )
    return done.returncode == 0


def _maker() -> str:
    return os.environ.get("CXX", "g++")


def main() -> None:
    """Load and call a package; what it raises is for the process that asked to meet itself."""
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
