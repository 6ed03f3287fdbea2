"""What a job's own model takes on a machine: measured in rounds of the job, and kept in a TOML file.

A profile holds one measurement for each number of ranks and nodes. It is of one job: nothing is forecast for
another model, another batch, or a world that was not seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpifl.cli.doctor import scratch
from mpifl.cli.plan.played_rounds import play
from mpifl.cli.plan.untrained import throwaway_site
from mpifl.common import InputError, read_toml, write_atomic
from mpifl.common.machine import tuning
from mpifl.data.hdf5 import start_parser
from mpifl.data.shards import AnySpec, read_any
from mpifl.exchange.server_side import place
from mpifl.report.observers import Record
from mpifl.run.folder import read_metrics
from mpifl.run.job import Job, differing_keys, read_job
from mpifl.silo.steps import steps_of
from mpifl.training import agree, loop
from mpifl.wings import wings_of
from mpifl.wire import Transport
from mpifl.wire.launching import world

ROUNDS = 3
"""Rounds of a trial at least; the first of each warms up, and counts only for memory."""
MOST, ENOUGH = 100, 10.0
"""Rounds of the first trial at most, and seconds of them that are enough: a machine has moments."""
FREE = (
    *("name", "seed", "rounds", "tracking", "checkpoint.every", "checkpoint.keep", "evaluate.every"),
    *(
        "local.lr",
        "server_optimizer.lr",
        "evaluate.patience",
        "evaluate.target",
        "evaluate.target_accuracy",
        "evaluate.stop_at_target",
    ),
)
"""Keys of a job that may differ from those that were measured: rounds cost the same."""
AFTER = ("seconds_evaluation", "seconds_checkpoint")
"""Figures of a round that come after its own seconds."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Bytes = Annotated[int, Field(gt=0, le=2**50)]


class SeenWorld(BaseModel):
    """What the job took on so many ranks and nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    ranks: Annotated[int, Field(ge=1)]
    nodes: Annotated[int, Field(ge=1)]
    start_seconds: Seconds
    """From the start of the launcher to the first round, and from the last one to the end."""
    first_seconds: Seconds
    """What the first round takes more than others of as many steps."""
    step_seconds: Seconds
    """A step of local training, on the rank with most of them."""
    communication_seconds: Seconds
    """Copies and messages of a round."""
    server_seconds: Seconds
    """The rest of a round: sums, and the server's step."""
    evaluation_seconds: Seconds
    checkpoint_seconds: Seconds
    server_bytes: Bytes
    """The most memory that the server's process had; below a worker's, and of all of a node with helpers."""
    worker_bytes: Bytes
    node_bytes: Bytes

    @property
    def world(self) -> str:
        """Its ranks and nodes in words."""
        ranks, nodes = (
            f"{self.ranks} rank{'s' * (self.ranks > 1)}",
            f"{self.nodes} node{'s' * (self.nodes > 1)}",
        )
        return f"{ranks} on {nodes}"


class Profile(BaseModel):
    """What one job takes on one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1]
    job: str
    """The whole job that was measured, as JSON."""
    world: list[SeenWorld]


def read_profile(path: Path, job: Job) -> Profile:
    """Read a profile of a job.

    Raises:
        InputError: the file is not there, is no profile, or is of another job.
    """
    if not path.exists():
        raise InputError(f"{path}: is not there; measure by mpifl doctor JOB --profile FILE")
    try:
        found = Profile.model_validate(read_toml(path))
        measured = Job.model_validate_json(found.job)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "job"
        given = "" if first["type"] == "missing" else f" = {first['input']!r:.60}"
        what = f"{where}{given}: {first['msg']}"
        raise InputError(f"{path}: {what}; measure by mpifl doctor JOB --profile FILE") from None
    if others := differing_keys(job, measured, FREE):
        what = f"was measured with another {', '.join(others[:3])}; measure this job"
        raise InputError(f"{path}: {what} by mpifl doctor JOB --profile FILE")
    return found


def seen(profile: Profile, ranks: int | None, nodes: int | None, path: Path) -> SeenWorld:
    """Return the measurement of a world; of the only one that was measured, if neither is given.

    Raises:
        InputError: this world was not measured.
    """
    fits = [
        one for one in profile.world if ranks in (None, one.ranks) and nodes in (None, one.nodes)
    ]  # fmt: skip
    if len(fits) == 1:
        return fits[0]
    had = ", ".join(one.world for one in profile.world) or "nothing"
    asked = f"--ranks {ranks}" if ranks is not None else f"--nodes {nodes}" if nodes else "--ranks"
    raise InputError(f"{asked}: {path} has measured {had}; give one of these, or measure yours")


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


def loads(job: Job, spec: AnySpec, silos: Sequence[int], ranks: int, round: int) -> Counter[int]:
    """Return how many gradients of a batch each worker computes in a round, counted from 0."""
    sizes, algorithm = [entry.examples["train"] for entry in spec.silos], job.build_algorithm()
    local = algorithm.local.model_copy(update={"straggler_chance": 0.0}).at_round(round)
    found: Counter[int] = Counter()
    for rank, held in place(sizes, range(1, ranks) if ranks > 1 else range(1)).items():
        for silo in {*held} & {*silos}:
            settings = local
            if local.epochs_by_silo is not None:
                epochs = local.epochs_by_silo[silo % len(local.epochs_by_silo)]
                settings = local.model_copy(update={"epochs": epochs})
            found[rank] += algorithm.gradients(steps_of(settings, sizes[silo]))
    return found


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
