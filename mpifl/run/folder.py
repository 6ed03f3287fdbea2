"""The run folder: whose it is, the resolved job, the environment, the metrics."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tomli_w
from pydantic_core import from_json

from mpifl import __version__
from mpifl.common import (
    LARGEST_FILE,
    InputError,
    Unwritable,
    lock,
    read_whole,
    remove_left_behind,
    write_atomic,
)
from mpifl.data import FederationSpec, by_path
from mpifl.run import checkpoint
from mpifl.run.job import Job, differing_keys, read_kept

HARMLESS = ("rounds", "checkpoint", "tracking", "evaluate", "aggregation.spill")
"""Keys of a job that may change when a run is resumed."""
FORCEABLE = ("name", "shards", "device", "threads", "local", "cohort", "aggregation", "server_optimizer.lr")
"""Keys that may change if the user insists: another training from there on,
but nothing kept loses its meaning."""
DIGESTS = {"sha256": "shards of sha256", "public": "public examples of sha256", "test": "test set of sha256"}
"""Of what `describe` says: what each is the digest of, as a change of it is told."""
_KINDS = {"versions": dict, "ranks": dict, "data": dict, "metric": dict, "silos": list, "changes": list}
_KINDS |= {"directory": str}
"""Of what in `environment.json` is read again."""
_OWN = (
    r"(job\.toml|(environment|checkpoint)\.json|metrics\.jsonl|\w+\.safetensors|report\.html|mlflow_run_id)"
)
"""Names of files that a run writes."""
LARGEST = 1e100
"""What figures of a round are below; there are sums of them."""
_PACKAGES = ("torch", "numpy", "h5py", "mpi4py", "pydantic", "safetensors")


@dataclass(frozen=True)
class Claim:
    """A run folder taken for a training: what the user should be told of it, and how the training changed."""

    notes: list[str]
    changes: list[str]


@contextmanager
def claim(folder: Path, job: Job, spec: FederationSpec, resume: bool, force: bool) -> Iterator[Claim]:
    """Take the run folder for as long as the context lasts, and write the resolved job into it.

    Raises:
        InputError: see `check_run` and `claim_run`; or another job holds it.
    """
    with lock.hold(folder) as unlocked:
        changes = check_run(folder, job, resume, force, spec)  # once more: it may have changed hands since
        notes = [unlocked] if unlocked else []
        if resume and latest_checkpoint(folder) is None:
            what = "checkpoint" if (folder / "job.toml").exists() else "run"
            notes.append(f"no {what} in {folder}: starting anew")
        claim_run(folder, job)
        yield Claim(notes + [f"{folder}: goes on with {change}" for change in changes], changes)


def check_run(
    folder: Path, job: Job, resume: bool, force: bool = False, spec: FederationSpec | None = None
) -> list[str]:
    """See that the run folder is free, or holds a run of this job that may go on; write nothing.

    Returns:
        What changes about the run because the user insists (`force`), `local.lr 0.1 -> 0.05`.

    Raises:
        InputError: it holds a run and `resume` was not asked, or a run of another job or on other shards.
    """
    path = folder / "job.toml"
    if not path.exists():
        return []
    if not resume:
        raise InputError(
            f"{folder}: holds a run already; go on with it by --resume, or name another folder by --out"
        )
    old = read_kept(path, job.plugins.values())
    different = differing_keys(old, job, HARMLESS)
    hard = [key for key in different if not {key, key.partition(".")[0]} & set(FORCEABLE)]
    if different and (hard or not force):
        insist = "" if hard else ", or insist by --force"
        raise InputError(
            f"{folder}: is a run of another job, "
            f"it differs in {', '.join(hard if force else different)}; resume with "
            f"the job it was started with, or start anew with another --out{insist}"
        )
    changes = [f"{key} {_value(old, key)} -> {_value(job, key)}" for key in different]
    return changes + (_check_data(folder, spec, force) if spec else [])


def _check_data(folder: Path, spec: FederationSpec, force: bool) -> list[str]:
    """See that a run goes on with the shards that it was started with, wherever they lie now."""
    old, new = read_environment(folder).get("data", {}), describe(spec)
    if same_data(old, new):
        return []
    if old.get("form", new["form"]) != new["form"]:
        raise InputError(
            f"{folder}: was started on {old.get('form')}, the shards are {new['form']}; "
            "name its own by 'shards', or "
            "start anew with another --out"
        )
    if not force:
        raise InputError(
            f"{folder}: the shards are not those that it was started on; "
            "name its own by 'shards', start anew with "
            "another --out, or insist by --force"
        )
    changed = [name for name in DIGESTS if old.get(name, new[name]) != new[name]]
    return [
        f"{DIGESTS[name]} {str(old[name])[:12] or 'none'} -> {new[name][:12] or 'none'}" for name in changed
    ]


def same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two descriptions (see `describe`) are of the same shards,
    by what both tell: older ones tell less."""
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def describe(spec: FederationSpec) -> dict[str, str]:
    """Return what a model and the silos' states must fit,
    and digests of all that is trained on and judged by."""
    inputs, count = by_path("x", spec.features).values(), len(spec.silos)
    told = [*(one.model_dump_json() for one in inputs), *(entry.sha256 for entry in spec.silos)]
    examples = " and ".join(f"{'x'.join(map(str, one.shape))} {one.dtype}" for one in inputs)
    aim = f" in {spec.classes} classes" if spec.classes else ""
    aim += f", {spec.aim}" if spec.targets else ""
    form = f"{count} silo{'s' * (count > 1)} of {examples}{aim}"
    shared = {
        name: entry.sha256 if entry else "" for name, entry in (("public", spec.public), ("test", spec.test))
    }
    return {"form": form, "sha256": hashlib.sha256("".join(told).encode()).hexdigest(), **shared}


def _value(job: Job, key: str) -> str:
    """Return the value of `table.key` as the job file would say it."""
    value: Any = job.model_dump(mode="json")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "none" if value is None else json.dumps(value)


def claim_run(folder: Path, job: Job) -> None:
    """Make the run folder and write the resolved job into it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoints = (checkpoint.round_folder(folder, round) for round in checkpoint.rounds(folder))
        for place in (folder, folder / "personal", *checkpoints):
            remove_left_behind(place, _OWN)
        write_atomic(
            folder / "job.toml", tomli_w.dumps(job.model_dump(mode="json", exclude_none=True)).encode()
        )
    except OSError as error:
        raise lock.cannot_be_written(folder, error) from None


def write_environment(folder: Path, changes: list[str] | None = None, **more: Any) -> None:
    """Write `environment.json`: versions and machines, all that was ever changed by force, and what else is
    given.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    versions = {"mpifl": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    about = {
        "versions": versions,
        "platform": platform.platform(),
        "command": sys.argv,
        "started": time.time(),
    }
    where = {"directory": str(Path.cwd())}  # that the job's relative paths start from
    if forced := [*read_environment(folder).get("changes", []), *(changes or [])]:
        more["changes"] = forced
    _write(folder / "environment.json", json.dumps({**about, **where, **more}, indent=1).encode() + b"\n")


def read_environment(folder: Path) -> dict[str, Any]:
    """Return what `environment.json` says as this program writes it;
    nothing where there is none that can be read."""
    try:
        about = from_json(read_whole(folder / "environment.json", LARGEST_FILE), allow_inf_nan=False)
    except (OSError, ValueError):
        return {}
    found = about.items() if isinstance(about, dict) else ()
    about = {key: value for key, value in found if isinstance(value, _KINDS.get(key, object))}
    if not all(isinstance(rank, dict) for rank in about.get("ranks", {}).values()):
        del about["ranks"]
    if "\0" in about.get("directory", ""):
        del about["directory"]
    return about


def note_lost(folder: Path, why: str) -> None:
    """Note in `environment.json` that too few silos answered in the end; a run that goes on drops it."""
    with suppress(OSError):  # it was said already
        write_atomic(
            folder / "environment.json",
            json.dumps(read_environment(folder) | {"lost": why}, indent=1).encode() + b"\n",
        )


def why_lost(folder: Path) -> str | None:
    """Return why a run ended as `note_lost` says; None if it did not, or went on."""
    why = read_environment(folder).get("lost")
    return None if why is None else str(why)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the rounds in `metrics.jsonl`, without lines that are torn or tell of no round.

    Raises:
        InputError: it cannot be read.
    """
    path = folder / "metrics.jsonl"
    try:
        lines = read_whole(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    records = []
    for line in lines:
        with suppress(ValueError):
            record = from_json(line, allow_inf_nan=False)
            if (
                isinstance(record, dict)
                and type(round := record.get("round")) is int
                and 0 <= round < LARGEST
            ):
                records.append(record)
    return records


def number(record: Mapping[str, Any], name: str) -> float | None:
    """Return a figure of a round; None where it is missing, no number or not finite (a diverged loss)."""
    value: Any = record.get(name)
    return float(value) if type(value) in (int, float) and abs(value) < LARGEST else None


def trim_metrics(folder: Path, round: int) -> None:
    """Drop what `metrics.jsonl` says of rounds after `round`, which are about to be done again, and torn
    lines.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    records = [record for record in read_metrics(folder) if record["round"] <= round]
    _write(folder / "metrics.jsonl", b"".join(encode_record(record) for record in records))


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomic(path, content)
    except OSError as error:
        raise Unwritable(path, error) from None


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return one line of `metrics.jsonl`; a figure that is not finite (a diverged loss) is null there."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite, allow_nan=False).encode() + b"\n"


def latest_checkpoint(folder: Path) -> int | None:
    """Return the round of the latest checkpoint folder, whole or not."""
    return next(iter(checkpoint.rounds(folder)), None)


def rss_mb() -> float:
    """Return the resident memory of this process in MB,
    or the highest it was where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
