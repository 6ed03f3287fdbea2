"""Turns the conditions of all ranks into findings: what they mean for a training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mpifl.cli.doctor.alike_ranks import Conditions, differing, grouped, named, numbers
from mpifl.cli.doctor.condition import Plan
from mpifl.cli.doctor.findings import Finding, State
from mpifl.cli.doctor.gpus import judge_gpus
from mpifl.cli.doctor.node_findings import of_nodes
from mpifl.cli.doctor.sites import of_sites
from mpifl.common import InputError
from mpifl.common.machine import native
from mpifl.training.beforehand import BITS, PROCESSOR, differing as differing_bits
from mpifl.wire import RANKS_PER_NODE
from mpifl.wire.launching import own_launcher

LITTLE = 1 << 30
"""A disk with fewer free bytes is nearly full."""


WORSE, BETTER = 1.05, 0.8
"""Time of batched steps relative to single steps: above WORSE they lose, below BETTER they may pay."""


def judge(conditions: Conditions, plan: Plan) -> list[Finding]:
    """Return findings from all ranks' conditions, in the order in which a training would fail."""
    ranks = (
        _mpi,
        _launcher,
        _tolerance,
        _gpu_buffers,
        _versions,
        _nodes,
        _doorbells,
        _cores,
        of_nodes,
        _signals,
    )
    tools = (_devices, _processors, _kernels, _compile, _batched, _hdf5, _shards, _run, of_sites)
    findings = [finding for look in ranks for finding in look(conditions)]
    return findings + [finding for look in tools for finding in look(conditions, plan)]


def table(conditions: Conditions) -> list[dict[str, str]]:
    """Return a row of the table for each rank."""
    return [
        {
            "rank": str(c.rank),
            "host": c.host,
            "node": str(c.node),
            "cores": numbers(c.cores),
            "threads": str(c.threads),
            "device": c.device,
            "sums": c.kernels,
            "shards": f"{c.shards.count} ({c.shards.bytes / 1e6:.1f} MB)" if c.shards.count else "-",
        }
        for c in conditions
    ]


SHARED_USE = "write checkpoints there and read each other's"


def _mpi(conditions: Conditions) -> Iterator[Finding]:
    libraries = grouped(conditions, lambda c: c.mpi.library)
    if len(libraries) > 1:
        yield Finding("MPI library", "bad", differing(libraries), "load one MPI everywhere")
        return
    mpi, ranks = conditions[0].mpi, len(conditions)
    said = f"{mpi.library} (MPI {mpi.standard}), {ranks} rank{'s' * (ranks > 1)}, thread level {mpi.threads}"
    yield Finding("MPI library", "ok", said)


def _launcher(conditions: Conditions) -> Iterator[Finding]:
    first = conditions[0]
    try:
        own = " ".join(own_launcher())
    except InputError as error:
        own, missing = "", str(error)
    if first.launcher is None:
        if len(conditions) > 1:
            yield Finding("launcher", "note", "not recognised; all its ranks are in one world")
        elif own:
            yield Finding("launcher", "note", f"none, one rank alone; --ranks N starts more by: {own}")
        else:
            yield Finding("launcher", "warning", missing)
        return
    families = {"Open MPI": ("Open MPI",), "MPICH": ("MPICH", "MVAPICH", "Intel MPI")}
    if first.family in families and first.mpi.vendor not in families[first.family]:
        found = f"{first.launcher} is {first.family}'s, the library {first.mpi.library}"
        yield Finding("launcher", "warning", found, f"start with {own or 'the mpirun of the library'}")
        return
    apart = own and first.family != "Slurm" and Path(first.launcher).parent != Path(own.split()[0]).parent
    yield Finding("launcher", "ok", first.launcher + (f" (the library's own: {own})" if apart else ""))


def _tolerance(conditions: Conditions) -> Iterator[Finding]:
    mpi = conditions[0].mpi
    if not mpi.revokes:
        yield Finding("fault tolerance", "note", "no ULFM: a rank that dies ends the job, --resume goes on")
    elif not mpi.tolerant:
        yield Finding(
            "fault tolerance", "note", "ULFM, not asked for: a rank that dies ends the job, --resume goes on"
        )
    else:
        yield Finding(
            "fault tolerance", "ok", "ULFM, mpirun --with-ft ulfm: when a rank dies the others continue"
        )


def _gpu_buffers(conditions: Conditions) -> Iterator[Finding]:
    aware = {True: "yes", False: "no", None: "the library does not say"}[conditions[0].mpi.cuda]
    yield Finding("CUDA-aware MPI", "note", f"{aware}; not needed, vectors travel from the host's memory")


def _versions(conditions: Conditions) -> Iterator[Finding]:
    versions = grouped(conditions, lambda c: c.versions)
    if len(versions) > 1:
        yield Finding("versions", "warning", differing(versions), "the same bits need the same versions")
    else:
        yield Finding("versions", "ok", conditions[0].versions)


def _nodes(conditions: Conditions) -> Iterator[Finding]:
    nodes = {
        host: grouped(ranks, lambda c: c.node)
        for host, ranks in grouped(conditions, lambda c: c.host).items()
    }
    for host, parts in nodes.items():
        groups = [named([c.rank for c in ranks]) for ranks in parts.values()]
        if len(parts) == 1:
            alone = len(parts[next(iter(parts))]) == 1
            yield Finding(
                "node", "ok", f"{host}: {groups[0]} alone" if alone else f"{host}: {groups[0]} share memory"
            )
        elif RANKS_PER_NODE in os.environ:
            found = f"{host}: {' | '.join(groups)} are taken for nodes, as {RANKS_PER_NODE} says"
            yield Finding("node", "note", found)
        else:
            found = f"{host}: {' | '.join(groups)} cannot read each other's memory, vectors are copied"
            remedy = "let them run as one user, in one container, with /proc of their own processes readable"
            yield Finding("node", "warning", found, remedy)


def _doorbells(conditions: Conditions) -> Iterator[Finding]:
    without = [c.rank for c in conditions if not (c.doorbell and c.memory)]
    if without:
        found = f"no abstract Unix sockets or no memfd for {named(without)}: they look instead of being woken"
        yield Finding("doorbells", "warning", found, "use Linux 3.17 or later")
    else:
        yield Finding("doorbells", "ok", "ranks of a node can wake each other")


def _cores(conditions: Conditions) -> Iterator[Finding]:
    for host, ranks in grouped(conditions, lambda c: c.host).items():
        cores = {core for c in ranks for core in c.cores}
        narrow = [c.rank for c in ranks if c.threads > len(c.cores)]
        working = sum(c.threads for c in ranks if c.rank or len(conditions) == 1)
        counts = {"rank": len(ranks), "working thread": working, "core": len(cores)}
        said = f"{host}: " + ", ".join(f"{count} {word}{'s' * (count > 1)}" for word, count in counts.items())
        if narrow:
            found = f"{said}; more threads than cores that they may use on {named(narrow)}"
            yield Finding("cores", "warning", found, "set threads = 'auto', or launch with --bind-to none")
        elif working > len(cores):
            to_do = "silos take turns: start fewer ranks, or give each fewer threads"
            yield Finding("cores", "warning", said, to_do)
        elif len(ranks) > len(cores):
            to_do = "more by the server alone, which computes little: leave it so"
            yield Finding("cores", "warning", said, to_do)
        else:
            yield Finding("cores", "ok", said)


def _signals(conditions: Conditions) -> Iterator[Finding]:
    deaf = {c.rank: c.deaf for c in conditions if c.deaf}
    if deaf:
        names = ", ".join(sorted({name for names in deaf.values() for name in names}))
        remedy = "start without what blocks them, or a time limit ends a training without a checkpoint"
        yield Finding("signals", "warning", f"{names} do not reach {named(sorted(deaf))}", remedy)
    else:
        yield Finding("signals", "ok", "TERM, INT, USR1 and USR2 can be heard")


def _devices(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    for fault, without in grouped(
        [c for c in conditions if c.device_fault], lambda c: c.device_fault
    ).items():
        yield Finding("device", "bad", f"{named([c.rank for c in without])}: {fault}")
    devices = grouped([c for c in conditions if not c.device_fault], lambda c: c.device)
    if devices:
        said = "; ".join(f"{name} on {named([c.rank for c in ranks])}" for name, ranks in devices.items())
        yield Finding("device", "ok", f"device = '{plan.device}': {said}")
    workers = conditions[1:] or conditions  # the server computes little
    yield from judge_gpus([(c.host, c.gpu) for c in workers if c.gpu is not None])


def _processors(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    told = {c.rank: {PROCESSOR: c.computes.processor, BITS: c.computes.bits} for c in conditions}
    for fault, cannot in grouped(
        [c for c in conditions if c.computes.fault], lambda c: c.computes.fault
    ).items():
        yield Finding("processors", "bad", f"{named([c.rank for c in cannot])}: {fault}")
    found, _, remedy = differing_bits(told).partition("; ")
    if found:
        yield Finding("processors", "warning", found, remedy)
    elif all(told[rank][BITS] for rank in told):
        kinds = sorted({one[PROCESSOR] for one in told.values()})
        yield Finding("processors", "ok", f"{', '.join(kinds)}: two steps have the same bits on all ranks")


def _kernels(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    slow = [c for c in conditions if c.kernels == "tensors"]
    if not slow:
        yield Finding("sums", "ok", "compiled loops")
        return
    found = f"tensor operations on {named([c.rank for c in slow])}: the same bits, slower"
    if os.environ.get(native.WITHOUT) == "tensors":
        yield Finding("sums", "warning", found, f"unset {native.WITHOUT}")
    elif slow[0].compiler is None:
        yield Finding("sums", "warning", found, "install a C compiler, or name one by CC")
    else:
        yield Finding(
            "sums", "warning", found, f"see why {slow[0].compiler} fails, or ~/.cache cannot be written"
        )


def _compile(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    without = [c.rank for c in conditions if c.cpp is None]
    if not without:
        yield Finding("compile = true", "ok", f"C++ compiler {conditions[0].cpp}")
        return
    state: State = "warning" if plan.compile else "note"
    remedy = "steps would run plainly; install g++, or name a C++ compiler by CXX"
    yield Finding("compile = true", state, f"no C++ compiler on {named(without)}", remedy)


def _batched(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    tried = next((c for c in conditions if c.batched is not None), None)
    if tried is None or tried.batched is None:
        return
    found, key, where = tried.batched, "batch_silos = true", f"rank {tried.rank}, {tried.device}"
    if found.ratio is None:
        remedy = "silos would train one after another; leave it out" if plan.batched else ""
        yield Finding(key, "warning" if plan.batched else "note", f"cannot be: {found.why}", remedy)
        return
    took = f"steps of {found.silos} silos, {found.per_step} to a step, took {found.ratio:.2f} of the time"
    loses, wins = plan.batched and found.ratio > WORSE, not plan.batched and found.ratio < BETTER
    remedy = "leave it out" if loses else "it may pay; see whether the model is as good" if wins else ""
    yield Finding(key, "warning" if loses else "note", f"{took} of single ones ({where})", remedy)


def _hdf5(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    yield Finding(
        "HDF5", "ok", ", ".join(sorted({c.hdf5 for c in conditions})) + ", files are opened without locks"
    )


def _shards(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    if plan.folder is None:
        yield Finding("shards", "note", "not looked at; name a shard folder or a job")
    if plan.spec is None:
        return
    faults = [f"rank {c.rank}: {fault}" for c in conditions for fault in c.shards.faults]
    yield from (Finding("shards", "bad", fault) for fault in faults[:5])
    if len(faults) > 5:
        yield Finding("shards", "bad", f"and {len(faults) - 5} more")
    if not faults:
        count, mapped = (sum(getattr(c.shards, name) for c in conditions) for name in ("count", "mapped"))
        kinds = ", ".join(sorted({c.shards.system for c in conditions} - {""})) or "unknown"
        said = f"{plan.folder}: {count} files opened, {mapped} mapped into memory; file system {kinds}"
        yield Finding("shards", "ok", said + (", the others are read whole" if mapped < count else ""))


def _run(conditions: Conditions, plan: Plan) -> Iterator[Finding]:
    disks = {c.rank: c.run for c in conditions if c.run is not None}
    if not disks:
        yield Finding("run folder", "note", "not looked at; name it by --out")
        return
    yield from _unwritable([c for c in conditions if c.run is not None], plan)
    good = {rank: disk for rank, disk in disks.items() if not disk.fault}
    unlocked = [rank for rank, disk in good.items() if disk.locks]
    if unlocked:
        found = f"{plan.run}: no locks ({good[unlocked[0]].locks})"
        yield Finding("run folder", "warning", found, "see to it that no other job writes there")
    full = {rank: disk for rank, disk in good.items() if disk.free < LITTLE}
    if full:
        least = min(disk.free for disk in full.values())
        yield Finding("run folder", "warning", f"{plan.run}: {least / 1e6:.0f} MB are left", "make room")
    if len({disk.inode for disk in good.values()}) > 1:
        found = f"{plan.run}: is not the same folder on all ranks, which {SHARED_USE}"
        yield Finding("run folder", "warning", found, "name one by --out that all hosts share")
    elif len(good) == len(disks) and not unlocked and not full:
        free, slowest = min(disk.free for disk in good.values()), max(disk.seconds for disk in good.values())
        said = f"{free / 1e9:.0f} GB free, 1 MiB flushed in {1e3 * slowest:.0f} ms"
        system = good[0].system or "unknown"
        found = f"{plan.run}: writable, locks work, {said}; file system {system}"
        yield Finding("run folder", "ok", found)


def _unwritable(tried: Conditions, plan: Plan) -> Iterator[Finding]:
    faults = grouped(tried, lambda c: c.run and c.run.fault and f"{c.run.folder}: {c.run.fault}")
    for what, ranks in faults.items():
        if what:
            found = f"{plan.run} cannot be written on {named([c.rank for c in ranks])} ({what})"
            yield Finding("run folder", "bad", found, "name a folder that can by --out")
