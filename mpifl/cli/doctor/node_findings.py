"""Findings on the nodes of the ranks: unlike processors, little processor time, little room for files."""

from __future__ import annotations

from collections.abc import Iterator

from mpifl.cli.doctor.alike_ranks import Conditions, differing, grouped
from mpifl.cli.doctor.findings import Finding

ROOM = {"/tmp": 100 << 20, "/dev/shm": 0}
"""Free bytes that a node needs, besides `A_RANK` for each rank in /dev/shm."""
A_RANK = 16 << 20
"""Bytes of the segment that Open MPI makes in /dev/shm for each rank."""


def of_nodes(conditions: Conditions) -> Iterator[Finding]:
    """Return findings on what the ranks' nodes are made of and grant."""
    kinds = grouped(conditions, lambda c: _kind(c.hardware))
    if len(kinds) > 1:
        remedy = "rounds last as long as the slowest; ask for nodes of one kind"
        yield Finding("hardware", "warning", differing(kinds), remedy)
    elif any(kinds):
        yield Finding("hardware", "ok", next(iter(kinds)))
    hosts = grouped(conditions, lambda c: c.host)
    for host, ranks in hosts.items():
        yield from _time(host, ranks, len(conditions) == 1)
    little = [finding for host, ranks in hosts.items() for finding in _little_room(host, ranks)]
    yield from little
    free = {name: min(c.room[name] for c in conditions if name in c.room) for name in conditions[0].room}
    if free and not little:
        said = ", ".join(f"{folder} {size / 1e9:.1f} GB" for folder, size in free.items())
        yield Finding("room for files", "ok", f"free at least: {said}")


def _time(host: str, ranks: Conditions, alone: bool) -> Iterator[Finding]:
    granted = min((c.granted for c in ranks if c.granted is not None), default=None)
    working = sum(c.threads for c in ranks if c.rank or alone)
    if granted is None:
        return
    found = f"{host}: a control group grants {granted:g} cores' time to {working} working threads"
    if granted >= working:
        yield Finding("processor time", "ok", found)
    else:
        remedy = "they are halted in turns, which bends timings: ask for more, or start fewer"
        yield Finding("processor time", "warning", found, remedy)


def _little_room(host: str, ranks: Conditions) -> Iterator[Finding]:
    for folder, least in ROOM.items():
        free = min((c.room[folder] for c in ranks if folder in c.room), default=None)
        needed = least + A_RANK * len(ranks) * (folder == "/dev/shm" and len(ranks) > 1)
        if free is not None and free < needed:
            found = f"{host}: {folder} has {free / 1e6:.0f} MB free, for {len(ranks)} ranks"
            remedy = f"{needed / 1e6:.0f} MB may be needed; make room, or give a container more"
            yield Finding("room for files", "warning", found, remedy)


def _kind(hardware: dict[str, str]) -> str:
    told = (hardware.get("instructions", ""), hardware.get("caches", ""))
    return "; ".join(text for text in told if text)
