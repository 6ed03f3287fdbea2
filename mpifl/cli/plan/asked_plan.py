"""By what `submit` asks SLURM: a profile, or the JSON file of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mpifl.cli.plan.planned_job import planned
from mpifl.cli.plan.profile import World
from mpifl.common import InputError, read_whole
from mpifl.run.job import Job, differing_keys, read_job

SAME_COSTS = ("name", "seed", "tracking", "local.lr", "server_optimizer.lr")
"""Keys in which a plan's job may differ from the one that is submitted."""


class _Asks(BaseModel):
    """Options of sbatch."""

    model_config = ConfigDict(strict=True)

    time: Annotated[str, Field(pattern=r"^\d+:\d{2}:\d{2}$")]
    mem: Annotated[str, Field(pattern=r"^[1-9]\d*M$")]


class _Forecast(World):
    sbatch: _Asks


class _Plan(BaseModel):
    """Of a plan's JSON file what `submit` takes."""

    model_config = ConfigDict(strict=True)

    job: str
    forecast: _Forecast


def asked_by(
    file: Path, path: Path, overrides: Sequence[str], ranks: int | None, nodes: int | None
) -> dict[str, Any]:
    """Return the forecast by which `submit` asks SLURM: of a plan's JSON file, or of a profile.

    Raises:
        InputError: the file is neither, or is of another job or another world.
    """
    if file.suffix != ".json":
        found: dict[str, Any] = planned(path, overrides, file, ranks, nodes)["forecast"]
        return found
    job = read_job(path, overrides)
    try:
        plan = _Plan.model_validate_json(read_whole(file))
        of = Job.model_validate_json(plan.job)
    except (OSError, ValidationError):
        what = "holds no forecast; write one by mpifl plan JOB --profile FILE --json PLAN.json"
        raise InputError(f"--plan {file}: {what}") from None
    if others := differing_keys(job, of, SAME_COSTS):
        raise InputError(f"--plan {file}: is of a job with another {', '.join(others[:3])}; plan this one")
    found = plan.forecast.model_dump()
    fits = {"ranks": found["ranks"], "nodes": found["nodes"]}
    for key, given in (("ranks", ranks), ("nodes", nodes)):
        if given not in (None, fits[key]):
            raise InputError(f"--{key} {given}: {file} is for {fits[key]}; plan for {given}, or leave it out")
    return found
