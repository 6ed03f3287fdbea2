"""What a job's own model takes on a machine: measured in rounds of the job, and kept in a TOML file.

A profile holds one measurement for each number of ranks and nodes. It is of one job: nothing is forecast for
another model, another batch, or a world that was not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mpifl.common import InputError, read_toml
from mpifl.data.shards import AnySpec
from mpifl.exchange.server_side import place
from mpifl.run.job import Job, differing_keys
from mpifl.silo.steps import steps_of

ROUNDS = 3
"""Rounds of a trial at least; the first of each warms up, and counts only for memory."""
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
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Bytes = Annotated[int, Field(gt=0, le=2**50)]


class World(BaseModel):
    """So many ranks on so many nodes."""

    model_config = ConfigDict(frozen=True, strict=True)

    ranks: Annotated[int, Field(ge=1, le=100_000)]
    nodes: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _no_node_is_empty(self) -> World:
        if self.nodes > self.ranks:
            raise ValueError(f"nodes = {self.nodes}: is more than ranks = {self.ranks}")
        return self


class SeenWorld(World):
    """What the job took on so many ranks and nodes."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    rounds: Annotated[int, Field(ge=1)]
    """How many rounds were trained before the memory was read."""
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

    @model_validator(mode="after")
    def _a_node_has_its_processes(self) -> SeenWorld:
        if self.node_bytes < max(self.server_bytes, self.worker_bytes if self.nodes == 1 else 0):
            raise ValueError(f"node_bytes = {self.node_bytes}: is less than one process of it")
        return self

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
    world: Annotated[list[SeenWorld], Field(min_length=1)]

    @model_validator(mode="after")
    def _each_world_once(self) -> Profile:
        told = [one.world for one in self.world]
        if twice := next((one for one in told if told.count(one) > 1), None):
            raise ValueError(f"{twice} stand there twice; leave one out")
        return self


def read_profile(path: Path, job: Job) -> Profile:
    """Read a profile of a job.

    Raises:
        InputError: the file is not there, is no profile, or is of another job.
    """
    if not path.is_file():
        there = "is not a file" if path.exists() else "is not there"
        raise InputError(f"{path}: {there}; measure by mpifl doctor JOB --profile FILE")
    try:
        found = Profile.model_validate(read_toml(path))
        measured = Job.model_validate_json(found.job)
    except InputError as error:
        raise InputError(f"{error}; a profile is written by mpifl doctor JOB --profile FILE") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "job"
        given = "" if first["type"] in ("missing", "value_error") else f" = {first['input']!r:.60}"
        what = f"{where}{given}: {first['msg'].removeprefix('Value error, ')}"
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
    had = ", ".join(one.world for one in profile.world)
    asked = f"--ranks {ranks}" if ranks is not None else f"--nodes {nodes}" if nodes else "--ranks"
    raise InputError(f"{asked}: {path} has measured {had}; give one of these, or measure yours")


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
