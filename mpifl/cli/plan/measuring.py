"""Measures what a job takes on the ranks that are there, and writes its profile."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import tomli_w

from mpifl.cli.doctor import scratch
from mpifl.cli.plan.played_rounds import play
from mpifl.cli.plan.profile import ROUNDS, Profile, SeenWorld, loads, read_profile
from mpifl.cli.plan.untrained import throwaway_site
from mpifl.common import InputError, write_atomic
from mpifl.common.machine import tuning
from mpifl.data.hdf5 import start_parser
from mpifl.data.shards import read_any
from mpifl.report.observers import Record
from mpifl.run.folder import read_metrics
from mpifl.run.job import Job, read_job
from mpifl.training import agree, loop
from mpifl.wings import wings_of
from mpifl.wire import Transport
from mpifl.wire.launching import world

MOST, ENOUGH = 100, 10.0
"""Rounds of the first trial at most, and seconds of them that are enough: a machine has moments."""
AFTER = ("seconds_evaluation", "seconds_checkpoint")
"""Figures of a round that come after its own seconds."""


def measure(path: Path | None, file: Path, overrides: Sequence[str] = ()) -> None:
    """Measure a job in this world of ranks, and write or complete its profile; all ranks call this together.

    Raises:
        InputError: it is no job, the job is refused, or the file is a profile of another job.
    """
    if path is None or path.is_dir():
        raise InputError("--profile: name the job that is to be measured: mpifl doctor JOB --profile FILE")
    start_parser()  # as a training does, and all that bears on memory
    transport = world()
    if transport.rank in transport.workers:
        tuning.keep_all_memory()
    with scratch(transport.is_server) as run, throwaway_site():
        rounds = _train(transport, run / "rounds", lambda: _trial(read_job(path, overrides), file, None))
        peaks = _peaks(transport)
        costs = _train(transport, run / "costs", lambda: _trial(read_job(path, overrides), file, ROUNDS))
        if transport.is_server:
            _write(file, read_job(path, overrides), _found(transport, rounds, costs, peaks))


class Measurement(NamedTuple):
    """A training that measures: its job and the records of its rounds, the seconds from the launcher's start
    to the first one, and after the last one."""

    job: Job
    records: Sequence[Record]
    began: float
    end: float


def _train(transport: Transport, run: Path, trial: Callable[[], Job]) -> Measurement:
    """Train the server's trial on all ranks; it alone has the records."""
    told = agree(transport, lambda: {"job": trial().model_dump_json(exclude_none=True)})
    job, seen = Job.model_validate_json(told["job"]), list[float]()

    def enough(record: Record) -> bool:
        seen.append(record["seconds"])
        return len(seen) >= ROUNDS and sum(seen[1:]) >= ENOUGH

    with tuning.subnormals_as_zero():
        loop.train(job, run, (), False, transport, on_round=enough, wings_of=wings_of)
    if not transport.is_server:
        return Measurement(job, [], 0.0, 0.0)
    records, now = read_metrics(run), time.time()
    began = _age(of_launcher=transport.size > 1) - (now - records[0]["time"]) - records[0]["seconds"]
    end = now - records[-1]["time"] - sum(records[-1].get(part, 0.0) for part in AFTER)
    return Measurement(job.model_copy(update={"rounds": len(records)}), records, began, max(end, 0.0))


def _trial(job: Job, file: Path, rounds: int | None) -> Job:
    """Return the job that is trained to measure a job: as it is, or with so many rounds that each score and
    save."""
    every = {} if rounds is None else {"every": 1}
    if file.exists():
        read_profile(file, job)
    checkpoint = job.checkpoint.model_copy(update=every)
    evaluate = job.evaluate.model_copy(update={**every, "patience": None, "stop_at_target": False})
    tracking = job.tracking.model_copy(update={"console": False, "mlflow": False, "wandb": False})
    rounds = rounds or max(ROUNDS, min(job.rounds, MOST))
    changed = {"rounds": rounds, "checkpoint": checkpoint, "evaluate": evaluate, "tracking": tracking}
    return job.model_copy(update=changed)


def _peaks(transport: Transport) -> list[tuple[int, int, int]]:
    """Return, at the server, each rank's node, the most memory of it and of its helpers, in bytes."""
    own = json.dumps([transport.nodes.number, *_peak()]).encode()
    if not transport.is_server:
        transport.report(own)
        return []
    said = dict(transport.reports())
    told = [json.loads(one) for one in (own, *(said[rank] for rank in sorted(said)))]
    return [(int(node), int(most), int(helpers)) for node, most, helpers in told]


def _peak() -> tuple[int, int]:
    """Return the most memory that this process has had, and that processes have had that parse files for it.

    `getrusage` would tell that of the process that started this one, if it had more.
    """
    with contextlib.suppress(OSError):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return _most_of("self"), sum(map(_most_of, children))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0


def _most_of(process: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _found(
    transport: Transport, rounds: Measurement, costs: Measurement, peaks: Sequence[tuple[int, int, int]]
) -> SeenWorld:
    """Return what the trials took: the first one's start and rounds; the second one's scores, checkpoints and
    end."""
    spec = read_any(Path(rounds.job.shards))
    steps = [
        max(loads(rounds.job, spec, one.silos, transport.size, nth).values(), default=0)
        for nth, one in enumerate(play(rounds.job).rounds)
    ]
    first, *records = rounds.records
    trained, sent, whole = (
        sum(one[part] for one in records) for part in ("seconds_training", "seconds_communication", "seconds")
    )
    step, usual = trained / max(sum(steps[1:]), 1), (whole - trained) / len(records)
    scored, saved = ([one.get(part, 0.0) for one in costs.records[1:]] for part in AFTER)
    of_nodes: Counter[int] = Counter()
    for node, most, helpers in peaks:
        of_nodes[node] += most + helpers
    return SeenWorld(
        ranks=transport.size,
        nodes=len(transport.nodes),
        rounds=len(rounds.records),
        start_seconds=max(rounds.began, 0.0) + costs.end,
        first_seconds=max(first["seconds"] - usual - step * steps[0], 0.0),
        step_seconds=step,
        communication_seconds=min(sent / len(records), max(usual, 0.0)),
        server_seconds=max(usual - sent / len(records), 0.0),
        evaluation_seconds=sum(scored) / len(scored),
        checkpoint_seconds=sum(saved) / len(saved),
        server_bytes=peaks[0][1],
        worker_bytes=max(most for _, most, _ in peaks[1:] or peaks),
        node_bytes=max(of_nodes.values()),
    )


def _age(*, of_launcher: bool) -> float:
    """Return the seconds since this process began, or the one of the launcher that started it."""
    told = Path(f"/proc/{os.getppid() if of_launcher else 'self'}/stat").read_text()
    ticks = int(told.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _write(file: Path, job: Job, found: SeenWorld) -> None:
    """Write a measurement beside those of other worlds of the same job."""
    before = read_profile(file, job).world if file.exists() else []
    kept = [one for one in before if (one.ranks, one.nodes) != (found.ranks, found.nodes)]
    profile = Profile(version=1, job=job.model_dump_json(exclude_none=True), world=[*kept, found])
    try:
        write_atomic(file, tomli_w.dumps(profile.model_dump()).encode())
    except OSError as error:
        raise InputError(f"--profile {file}: cannot be written ({error.strerror})") from None
    print(f"{file}: {found.world} are measured")
