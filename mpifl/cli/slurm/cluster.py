"""What a SLURM cluster has by `sinfo`, and which jobs wait or run there by `squeue`."""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpifl.common import InputError, count_of

_TIME = re.compile(r"(?:(?P<d>\d+)-(?P<h>\d+)(?::(?P<m>\d+)(?::(?P<s>\d+))?)?|(?P<plain>\d+(?::\d+){0,2}))")
GPUS = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)")


@dataclass(frozen=True)
class Partition:
    """The nodes of a partition, its limit of time, and whether jobs go there by default.

    Attributes:
        nodes: CPUs and GPUs of each node.
        limit: The most time of a job, as SLURM writes it.
    """

    name: str
    nodes: Sequence[tuple[int, int]]
    limit: str
    default: bool

    def lacks(self, nodes: int, tasks: int, cpus: int, gpus: int, time: str | None) -> str:
        """Return the option that asks for more than there is here, with its value; "" if none does."""
        if nodes > len(self.nodes):
            return f"--nodes {nodes}"
        if nodes > sum(held >= tasks * cpus for held, _ in self.nodes):
            return f"{nodes} node{'s' * (nodes > 1)} with {tasks} ranks of {cpus} CPU{'s' * (cpus > 1)} each"
        if nodes > sum(held >= tasks * cpus and there >= gpus for held, there in self.nodes):
            return f"--gpus-per-node {gpus}"
        if time is None or "SBATCH_QOS" in os.environ:  # which may lift the limit
            return ""
        return f"--time {time}" if seconds(time) > seconds(self.limit) else ""

    def __str__(self) -> str:
        kinds = Counter(self.nodes)
        told = [f"{many} node{'s' * (many > 1)} of {cpus} CPUs and {gpus or 'no'} GPUs"
                for (cpus, gpus), many in kinds.items()]  # fmt: skip
        limit = "" if seconds(self.limit) == math.inf else f", for {self.limit} at most"
        return f"partition {self.name} has {' and '.join(told)}{limit}"


def partitions(wished: str | None) -> list[Partition]:
    """Return the partitions that a job may go to, by default SLURM's default one; none if `sinfo` is
    missing."""
    wished = os.environ.get("SBATCH_PARTITION") or wished
    said = ask("sinfo", "-h", "-N", "-o", "%P|%c|%G|%l", *(["-p", wished] if wished else []))
    nodes: dict[str, list[list[str]]] = {}
    for line in said.splitlines():
        name, *node = line.split("|")
        nodes.setdefault(name, []).append(node)
    found = [
        Partition(
            name.rstrip("*"),
            [(int(cpus.rstrip("+")), sum(map(int, GPUS.findall(gres)))) for cpus, gres, _ in each],
            each[0][-1],
            name.endswith("*"),
        )
        for name, each in nodes.items()
    ]
    return [one for one in found if wished or one.default]


def check_room(wished: str | None, nodes: int, tasks: int, cpus: int, gpus: int, *, time: str | None) -> None:
    """Check that a partition could ever start a job, as far as `sinfo` says.

    Args:
        wished: The partition.
        nodes: How many nodes.
        tasks, cpus, gpus: Ranks of each node, CPUs of each rank, and GPUs of each node.
        time: The limit of time, as sbatch takes it.

    Raises:
        InputError: it would wait for ever.
    """
    found = partitions(wished)
    lacking = [one.lacks(nodes, tasks, cpus, gpus, time) for one in found]
    if found and all(lacking):
        there = "; ".join(map(str, found))
        raise InputError(f"{lacking[0]}: {there}; ask for what is there, or name another --partition")


def check_not_queued(script: Path) -> None:
    """Check that no job of this user waits or runs by a batch script.

    Raises:
        InputError: one does.
    """
    found: dict[str, list[tuple[str, str]]] = {}  # by job: the number of each task, and its state
    for line in ask("squeue", "--me", "-h", "-r", "-o", "%F %K %T %o").splitlines():
        job, task, state, command = [*line.split(" ", 3), "", "", ""][:4]
        if command and Path(command).absolute() == script.absolute():
            found.setdefault(job, []).append((task, state))
    for job, tasks in found.items():
        states = Counter(state for _, state in tasks)
        told = f"job {job} of it is {tasks[0][1]}"
        if tasks[0][0].isdigit():
            each = " and ".join(f"{count_of(many, 'task')} {state}" for state, many in states.items())
            told = f"array job {job} of it has {each}"
        to_do = f"let it end, or end it by scancel {job}"
        raise InputError(f"{script}: {told}; {to_do}, or name another --out")


def is_time(time: str) -> bool:
    """Return whether sbatch takes a limit of time in this form."""
    return bool(_TIME.fullmatch(time.strip())) or time.strip().lower() in ("infinite", "unlimited")


def seconds(time: str) -> float:
    """Return the seconds of a limit of time in one of sbatch's forms; infinity for none, or another form."""
    found = _TIME.fullmatch(time.strip())
    if not found:
        return math.inf
    if found["plain"]:
        parts = [int(part) for part in found["plain"].split(":")]
        hours, minutes, rest = (parts if len(parts) == 3 else [0, *parts, 0])[:3]
        days = 0
    else:
        days, hours, minutes, rest = (int(found[part] or 0) for part in "dhms")
    return ((24 * days + hours) * 60 + minutes) * 60 + rest or math.inf


def ask(*command: str) -> str:
    """Return a command's output; "" if it is missing, fails or does not answer."""
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout + asked.stderr if asked.returncode == 0 else ""
