"""The command `mpifl doctor`: all ranks examine themselves and talk to each other, and rank 0 reports."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mpifl.cli.doctor import contract
from mpifl.cli.doctor.condition import Condition, Plan, examine_rank
from mpifl.cli.doctor.findings import Finding, hurts, show, write
from mpifl.cli.doctor.judgement import judge, table
from mpifl.common import InputError, lock
from mpifl.data.shards import read_any
from mpifl.run.job import Job, is_silo_level, read_job
from mpifl.training.beforehand import plan_wings, validate_job
from mpifl.wings import wings_of
from mpifl.wire import Transport
from mpifl.wire.launching import world

GRACE = 5
"""Seconds that other ranks wait so that rank 0 reports first; twice this is left for the thread before the
alarm."""


@dataclass
class _Examined:
    """The results at rank 0 so far."""

    plan: Plan = field(default_factory=Plan)
    findings: list[Finding] = field(default_factory=list)
    conditions: dict[int, Condition] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    size: int = 1
    judged: bool = False

    def judge(self) -> None:
        """Add the findings from the conditions before the other findings, once. Needs at least rank 0's
        condition."""
        if 0 in self.conditions and not self.judged:
            self.judged = True
            self.findings = [*judge(self._conditions(), self.plan), *self.findings]

    def tell(self, file: Path | None) -> None:
        """Print all results, and write them to a file."""
        findings, conditions = self.findings, self._conditions()
        show(findings, table(conditions))
        if file is not None:
            write(
                file, findings, [condition.model_dump(mode="json") for condition in conditions], self.figures
            )

    def _conditions(self) -> list[Condition]:
        return [self.conditions[rank] for rank in sorted(self.conditions)]


def examine(target: Path | None, out: Path | None, file: Path | None, limit: float, speaks: bool) -> int:
    """Examine this world of ranks; all ranks call this together.

    Args:
        target: A shard folder, or a job file.
        out: The run folder to try; a job's own, `runs/NAME`, by default.
        file: The JSON file for rank 0's findings.
        limit: Seconds after which this ends in any case, with the findings so far.
        speaks: Whether this is rank 0, as far as known before the world is joined.

    Returns:
        The exit code: 1 if any finding would hurt a training, else 0.

    Raises:
        InputError: `file` cannot be written.
    """
    record = _Examined()

    def late(stage: str) -> None:
        if speaks:
            record.judge()
            record.findings.append(_late(stage, limit, record))
            record.tell(file)

    watch = TimeLimit(limit if speaks else limit + GRACE, late)
    try:
        transport = world()
    except InputError as error:
        record.findings.append(Finding("world", "bad", " ".join(str(error).split())))
        watch.end()
        if speaks:
            record.tell(file)
        return 1
    record.size = transport.size
    code = _examine(transport, record, watch, target, out)
    watch.end()
    if transport.is_server:
        record.tell(file)
    return code


def _examine(
    transport: Transport, record: _Examined, watch: TimeLimit, target: Path | None, out: Path | None
) -> int:
    watch.begin("telling all ranks what to look at")
    if transport.is_server:
        record.plan, record.findings = _plan(target, out)
    plan = record.plan = Plan.model_validate_json(
        transport.broadcast_record(record.plan.encode() if transport.is_server else None)
    )
    watch.begin("looking at each rank")
    own = examine_rank(transport, plan)
    if transport.is_server:
        record.conditions[0] = own
        for rank, said in transport.reports():
            record.conditions[rank] = Condition.model_validate_json(said)
        record.judge()
    else:
        transport.report(own.encode())
    record.findings += _between(transport, record, watch)
    watch.begin("the verdict")
    if transport.is_server:
        return int(transport.broadcast_record(b"\x01" if hurts(record.findings) else b"\x00")[0])
    return int(transport.broadcast_record()[0])


def _between(transport: Transport, record: _Examined, watch: TimeLimit) -> list[Finding]:
    """Test the transport's contract and time it; return the findings at rank 0."""
    began = time.perf_counter()
    faults = contract.check(transport, lambda part: watch.begin(f"the contract of the transport, {part}"))
    seconds = time.perf_counter() - began
    watch.begin("timing the transport")
    record.figures = contract.measure(transport)
    if not transport.is_server:
        transport.report("\n".join(faults).encode())
        return []
    for _, said in transport.reports():
        faults += said.decode().splitlines()
    if faults:
        more = [f"and {len(faults) - 5} more"] if len(faults) > 5 else []
        return [Finding("transport", "bad", fault) for fault in [*faults[:5], *more]]
    kept = f"records, vectors, reports, sums, memory and exact means arrive as they must ({seconds:.1f} s)"
    return [Finding("transport", "ok", kept), Finding("speed", "note", _speed(record.figures, transport))]


def _speed(figures: dict[str, float], transport: Transport) -> str:
    workers, megabytes = len(transport.workers), figures["megabytes"]
    rate = workers * megabytes / figures["mean_ms"]
    mean = f"exact mean of {workers} x {megabytes:.0f} MB in {figures['mean_ms']:.1f} ms ({rate:.1f} GB/s)"
    if transport.size == 1:
        return mean
    spread = f"{megabytes:.0f} MB to all ranks in {figures['spread_ms']:.1f} ms"
    return f"a request and its answers {figures['round_trip_us']:.0f} us; {spread}; {mean}"


def _plan(target: Path | None, out: Path | None) -> tuple[Plan, list[Finding]]:
    """Return, on rank 0, the plan for all ranks, and the findings so far."""
    findings, plan, folder = [], Plan(), target
    try:
        if target is not None and (target.suffix == ".toml" or target.is_file()):
            job = read_job(target)
            out, folder = out or Path("runs") / target.stem, Path(job.shards)
            plan = Plan(
                device=job.device,
                threads=job.threads,
                compile=job.local.compile,
                batched=job.local.batch_silos,
                job=job.model_dump_json(exclude_none=True),
                private=job.privacy is not None and not is_silo_level(job),
                masked=job.secure,
            )
            findings.append(_held(job, target))
    except InputError as error:
        findings.append(Finding("job", "bad", str(error)))
        folder = None
    try:
        if folder is not None:
            plan = plan.model_copy(update={"folder": str(folder)})
            plan = plan.model_copy(update={"spec": read_any(folder).model_dump_json()})
    except InputError as error:
        findings.append(Finding("shards", "bad", str(error)))
    if out is not None:
        plan = plan.model_copy(update={"run": str(out)})
        findings += _in_use(out)
    return plan, findings


def _held(job: Job, source: Path) -> Finding:
    """Check a job as a training does at its start; broken shards are reported elsewhere."""
    try:
        read_any(Path(job.shards))
    except InputError:
        return Finding("job", "ok", str(source))
    try:
        spec = validate_job(job, str(source), wings_of)
        plan_wings(job, spec, str(source), wings_of(job))
    except InputError as error:
        return Finding("job", "bad", str(error))
    return Finding("job", "ok", str(source))


def _in_use(out: Path) -> list[Finding]:
    if not (out / lock.FILE).exists():
        return []
    try:
        lock.check(out)
    except InputError as error:
        return [Finding("run folder", "warning", str(error))]
    return []


def _late(stage: str, limit: float, record: _Examined) -> Finding:
    silent = [str(rank) for rank in range(record.size) if rank not in record.conditions]
    ranks = f"; nothing was heard of ranks {', '.join(silent)}" if 0 < len(silent) < record.size else ""
    remedy = "see whether these ranks run and can reach rank 0, or give more time by --timeout"
    return Finding("time", "bad", f"not done in {limit:g} s, at: {stage}{ranks}", remedy)


class TimeLimit:
    """Ends this process when the limit has passed. Make it in the main thread.

    A thread calls `late`. If a library keeps that thread from running, the kernel's alarm ends the process
    without a message.
    """

    def __init__(self, seconds: float, late: Callable[[str], None]) -> None:
        self.stage = "joining the world"
        """The current stage of the work."""
        self._late = late
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True
        self._timer.start()
        signal.alarm(int(seconds) + 2 * GRACE)

    def begin(self, stage: str) -> None:
        """Set the current stage."""
        self.stage = stage

    def end(self) -> None:
        """Cancel the limit."""
        self._timer.cancel()
        signal.alarm(0)

    def _ring(self) -> None:
        try:
            self._late(self.stage)
            sys.stdout.flush()
        finally:
            os._exit(1)  # no MPI_Finalize, which would wait for the other ranks
