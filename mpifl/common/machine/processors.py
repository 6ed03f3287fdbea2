"""Which processor computes, and by which of its instructions: bits follow from both."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from pathlib import Path

from mpifl.common import InputError

PINS = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""What has torch, MKL and oneDNN compute by what Intel's and AMD's processors have in common.

MKL promises one result on both makers' for COMPATIBLE alone: on AMD's its other branches are "the best".
"""
_COMPATIBLE = 3
"""MKL_CBWR_COMPATIBLE, of mkl_types.h."""


def processor() -> str:
    """Return what computes here, such as `AMD EPYC (AVX2)`: its name, torch's instructions, and what was set
    of `PINS`."""
    import torch

    libraries = [name for name in PINS if name != "ATEN_CPU_CAPABILITY"]  # torch says what came of that one
    given = [f"{name}={os.environ[name]}" for name in libraries if name in os.environ]
    return f"{_name()} ({', '.join([torch.backends.cpu.get_cpu_capability(), *given])})"


def moved_from(then: str) -> str:
    """Say which processor answered first, "" if that is not known or is the one that computes here."""
    return f", {then}; this is {now}" if then and then != (now := processor()) else ""


def pin_kernels() -> None:
    """Have this process compute by `PINS`; each library takes them when it computes first.

    Raises:
        InputError: it has computed otherwise, or cannot.
    """
    import torch

    before = {name: os.environ.get(name) for name in PINS}
    os.environ.update(PINS)
    found = torch.backends.cpu.get_cpu_capability()
    if found == "AVX2" and _mkl_branch() == _COMPATIBLE:
        return
    for name, value in before.items():
        os.environ.pop(name)
        os.environ.update({name: value} if value is not None else {})
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        raise InputError("kernels = 'avx2': this torch has no MKL, whose bits it pins; leave it out")
    given = " ".join(f"{name}={value}" for name, value in PINS.items())
    what = f"this process has computed before, or cannot: torch takes {found}"
    raise InputError(f"kernels = 'avx2': {what}; start it with {given}, or leave the key out")


def _mkl_branch() -> int | None:
    """Return the branch by which MKL computes, None if it does not say."""
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        return int(ctypes.CDLL(str(library)).mkl_serv_cbwr_get(1))
    except (OSError, AttributeError):
        return None


@functools.cache
def _name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()
