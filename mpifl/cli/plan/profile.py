"""What a job's own model takes on a machine: measured in three rounds of the job, and kept in a TOML file.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

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
from mpifl.run.folder import read_metrics
from mpifl.run.job import Job, differing_keys, read_job
from mpifl.silo.steps import steps_of
from mpifl.training import agree, loop
from mpifl.wings import wings_of
from mpifl.wire import Transport
from mpifl.wire.launching import world

ROUNDS = 3
"""Rounds that are trained to measure; the first of them warms up, and counts only for memory."""
FREE = (
    *("name", "seed", "rounds", "tracking", "checkpoint.every", "checkpoint.keep", "evaluate.every"),
    *("evaluate.patience", "evaluate.target", "evaluate.target_accuracy", "evaluate.stop_at_target"),
)
"""Keys of a job that may differ from those that were measured: rounds cost the same."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Bytes = Annotated[int, Field(gt=0, le=2**50)]


class SeenWorld(BaseModel):
    """What the job took on so many ranks and nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    ranks: Annotated[int, Field(ge=1)]
    nodes: Annotated[int, Field(ge=1)]
    start_seconds: Seconds
    """From the start of the processes to the first round, and from the last one to the end."""
    step_seconds: Seconds
    """A step of local training, on the rank with most of them."""
    exchange_seconds: Seconds
    """The rest of a round: copies, sums, messages, the server's step."""
    evaluation_seconds: Seconds
    checkpoint_seconds: Seconds
    server_bytes: Bytes
    """The most memory that the server's process had; below a worker's, and of all of a node with helpers."""
    worker_bytes: Bytes
    node_bytes: Bytes


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
    had = ", ".join(f"{one.ranks} ranks on {one.nodes} nodes" for one in profile.world) or "nothing"
    asked = f"--ranks {ranks}" if ranks is not None else f"--nodes {nodes}" if nodes else "--ranks"
    raise InputError(f"{asked}: {path} has measured {had}; give one of these, or measure yours")


def measure(path: Path | None, file: Path) -> None:
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
        told = agree(transport, lambda: {"job": _trial(path, file).model_dump_json(exclude_none=True)})
        job = Job.model_validate_json(told["job"])
        with tuning.subnormals_as_zero():
            loop.train(job, run, (), False, transport, wings_of=wings_of)
        peaks = _peaks(transport)
        if transport.is_server:
            spec = read_any(Path(job.shards))
            found = _found(transport, read_metrics(run), job, spec, peaks)
            _write(file, read_job(path), found)


def _trial(path: Path, file: Path) -> Job:
    """Return the job that is trained to measure a job."""
    job = read_job(path)
    if file.exists():
        read_profile(file, job)
    checkpoint = job.checkpoint.model_copy(update={"every": 1})
    evaluate = job.evaluate.model_copy(update={"every": 1, "patience": None, "stop_at_target": False})
    tracking = job.tracking.model_copy(update={"console": False, "mlflow": False, "wandb": False})
    changed = {"rounds": ROUNDS, "checkpoint": checkpoint, "evaluate": evaluate, "tracking": tracking}
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
    transport: Transport,
    records: Sequence[Mapping[str, Any]],
    job: Job,
    spec: AnySpec,
    peaks: Sequence[tuple[int, int, int]],
) -> SeenWorld:
    """Return what the trial took: rounds after the first one, and memory of all."""
    later, steps = records[1:], 0
    for round, one in [*enumerate(play(job).rounds)][1:]:
        steps += max(loads(job, spec, one.silos, transport.size, round).values(), default=0)
    trained = sum(one["seconds_training"] for one in later)
    spent = [one["seconds"] - one["seconds_training"] for one in later]
    scored = [one.get("seconds_evaluation", 0.0) for one in later]
    saved = [one.get("seconds_checkpoint", 0.0) for one in later]
    whole = sum(one["seconds"] + one.get("seconds_evaluation", 0.0) for one in records)
    of_nodes: Counter[int] = Counter()
    for node, most, helpers in peaks:
        of_nodes[node] += most + helpers
    return SeenWorld(
        ranks=transport.size,
        nodes=len(transport.nodes),
        start_seconds=max(_age() - whole - sum(saved), 0.0),
        step_seconds=trained / max(steps, 1),
        exchange_seconds=max(sum(spent) / len(spent), 0.0),
        evaluation_seconds=sum(scored) / len(scored),
        checkpoint_seconds=sum(saved) / len(saved),
        server_bytes=peaks[0][1],
        worker_bytes=max(most for _, most, _ in peaks[1:] or peaks),
        node_bytes=max(of_nodes.values()),
    )


def _age() -> float:
    """Return the seconds since this process began."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
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
    print(f"{file}: {found.ranks} ranks on {found.nodes} nodes are measured")
