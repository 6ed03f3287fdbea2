"""What a rank's node is made of and grants: instruction sets, caches, NUMA, processor time, memory, room."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

SETS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "sve2", "bf16")
"""Instruction sets that libraries of linear algebra choose by, as Linux writes them for x86 and Arm."""
SCRATCH = ("/tmp", "/dev/shm")
"""Where MPI libraries and compilers put files."""
ROOT = Path("/")


def hardware(root: Path = ROOT) -> dict[str, str]:
    """Return `instructions`, `caches` and `numa` of the cores that this process may use; what Linux does not
    tell is left out."""
    cores = _cores()
    told = {"instructions": _sets(root), "caches": _caches(root, min(cores)), "numa": _numa(root, cores)}
    return {name: text for name, text in told.items() if text}


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


def _sets(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):
            known = set(line.partition(":")[2].split())
            return " ".join(name for name in SETS if name in known)
    return ""


def _caches(root: Path, core: int) -> str:
    found = []
    for index in sorted((root / f"sys/devices/system/cpu/cpu{core}/cache").glob("index[0-9]*")):
        level, kind, size = (_text(index / name).strip() for name in ("level", "type", "size"))
        if level and size and kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def _numa(root: Path, cores: set[int]) -> str:
    nodes = sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    mine = [path.name[4:] for path in nodes if cores & _listed(_text(path / "cpulist"))]
    return f"{','.join(mine)} of {len(nodes)}" if mine else ""


def _listed(text: str) -> set[int]:
    """Return the numbers of a list such as 0-3,8."""
    ends = [part.split("-") for part in text.strip().split(",") if part]
    return {number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)}


def granted_cores(root: Path = ROOT) -> float | None:
    """Return how many cores' time the process's control groups grant it; None if they set no limit.

    A process that uses more is halted until its period ends, mostly of 0.1 s. Both versions of control groups
    are read.
    """
    return min(_quotas(root), default=None)


def _quotas(root: Path) -> Iterator[float]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        for base in ("", *(("cpu", "cpu,cpuacct", "cpuacct,cpu") if "cpu" in names.split(",") else ())):
            folder, below = root / "sys/fs/cgroup" / base, path.strip("/").split("/")
            for depth in range(len(below) + 1):
                place = folder.joinpath(*below[:depth])
                limit = _text(place / "cpu.max").split() if not names else []
                if names and base:
                    limit = [_text(place / f"cpu.cfs_{what}_us").strip() for what in ("quota", "period")]
                with contextlib.suppress(ValueError, ZeroDivisionError):
                    cores = int(limit[0]) / int(limit[1]) if len(limit) == 2 else 0.0
                    yield from [cores] if cores > 0 else []


def scratch_room() -> dict[str, int]:
    """Return the free bytes of each folder of `SCRATCH` that there is."""
    return {folder: shutil.disk_usage(folder).free for folder in SCRATCH if Path(folder).is_dir()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def resident_mb() -> float:
    """Return this process's resident memory in MB, or its peak where the current value is unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
