"""The run folder: the resolved job, the environment, the metrics, and whether it may be written to."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w

from mpifl import __version__, checkpoint
from mpifl.errors import InputError
from mpifl.files import write_aside
from mpifl.job import Job, differing_keys, read_job

HARMLESS = ("rounds", "checkpoint", "tracking", "evaluate")
"""Keys of a job that may change when a run is resumed."""
_PACKAGES = ("torch", "numpy", "h5py", "mpi4py", "pydantic", "safetensors")


def check_run(folder: Path, job: Job, resume: bool) -> None:
    """See that the run folder is free, or holds a run of this job that may go on; write nothing.

    Raises:
        InputError: it holds a run and `resume` was not asked, or a run of another job.
    """
    path = folder / "job.toml"
    if not path.exists():
        return
    if not resume:
        raise InputError(f"{folder}: holds a run already; go on with it by --resume, or name another folder by --out")
    different = differing_keys(read_job(path), job, HARMLESS)
    if different:
        raise InputError(
            f"{folder}: is a run of another job, it differs in {', '.join(different)}; resume with the job it was "
            "started with, or start anew with another --out"
        )


def claim_run(folder: Path, job: Job) -> None:
    """Make the run folder and write the resolved job into it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left_behind in folder.rglob(".*.partial"):  # by a run that was killed
            left_behind.unlink(missing_ok=True)
        write_aside(folder / "job.toml", tomli_w.dumps(job.model_dump(mode="json", exclude_none=True)).encode())
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); name a folder that can by --out") from None


def write_environment(folder: Path, **more: Any) -> None:
    """Write `environment.json`: versions and machines, and what else is given."""
    versions = {"mpifl": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    about = {"versions": versions, "platform": platform.platform(), "command": sys.argv, "started": time.time()}
    where = {"directory": str(Path.cwd())}  # that the job's relative paths start from
    write_aside(folder / "environment.json", json.dumps({**about, **where, **more}, indent=1).encode() + b"\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the rounds in `metrics.jsonl`; a torn last line is left out."""
    path = folder / "metrics.jsonl"
    records = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def trim_metrics(folder: Path, round: int) -> None:
    """Drop what `metrics.jsonl` says of rounds after `round`, which are about to be done again."""
    records = [record for record in read_metrics(folder) if record["round"] <= round]
    write_aside(folder / "metrics.jsonl", b"".join(encode_record(record) for record in records))


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return one line of `metrics.jsonl`; a figure that is not finite (a diverged loss) is null there."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite, allow_nan=False).encode() + b"\n"


def latest_checkpoint(folder: Path) -> int | None:
    """Return the round of the latest checkpoint folder, whole or not."""
    return next(iter(checkpoint.rounds(folder)), None)
