"""The processor and its instructions that compute here: the bits of results depend on both."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from pathlib import Path

from mpifl.common import InputError

PINS = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""Variables with which torch, MKL and oneDNN use only instructions common to processors of Intel and AMD.

MKL promises the same result on both only for COMPATIBLE: its other branches choose "the best" one on AMD.
"""
_COMPATIBLE = 3
"""MKL_CBWR_COMPATIBLE in mkl_types.h."""


def processor() -> str:
    """Return the processor, such as `AMD EPYC (AVX2)`: its name, torch's instructions, its set `PINS`."""
    import torch

    libraries = [name for name in PINS if name != "ATEN_CPU_CAPABILITY"]  # torch itself reports this one
    given = [f"{name}={os.environ[name]}" for name in libraries if name in os.environ]
    return f"{_name()} ({', '.join([torch.backends.cpu.get_cpu_capability(), *given])})"


def moved_from(then: str) -> str:
    """Return a text that names an earlier processor and this one; "" if it is unknown or the same.

    Args:
        then: The earlier result of `processor`.
    """
    return f", {then}; this is {now}" if then and then != (now := processor()) else ""


def pin_kernels() -> None:
    """Set `PINS` for this process; each library reads them when it first computes.

    Raises:
        InputError: a library has computed before, or cannot compute so.
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
    """Return the branch of instructions that MKL uses; None if it does not say."""
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        return int(ctypes.CDLL(str(library)).mkl_serv_cbwr_get(1))
    except (OSError, AttributeError):
        return None


@functools.cache
def _name() -> str:
    """Return the processor's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()
