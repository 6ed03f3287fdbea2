"""The run folder: which run holds it, the resolved job, and what may change when a run is resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from mpifl.common import InputError, code_of, lock, remove_left_behind, write_atomic
from mpifl.data.shards import AnySpec
from mpifl.run.folder import checkpoint
from mpifl.run.folder.data_digest import describe, same_data
from mpifl.run.folder.environment import read_environment
from mpifl.run.job import HARMLESS, Job, differing_keys, read_kept

FORCEABLE = (
    "name",
    "shards",
    "device",
    "threads",
    "local",
    "silo",
    "cohort",
    "clock.deadline",
    "aggregation",
    "server_optimizer.lr",
)
"""Keys that may change with --force: the training differs from there on, but kept states stay valid."""
COUNTED = {"local", "silo", "cohort", "aggregation"}
"""Those of these keys that set the steps of DP-SGD: after a change, earlier steps would count wrongly."""
DIGESTS = {"sha256": "shards of sha256", "public": "public examples of sha256", "test": "test set of sha256"}
"""The digests of `describe`, and the words by which the user learns of a change."""
_OWN = (
    r"(job\.toml|(environment|checkpoint)\.json|metrics\.jsonl|\w+\.safetensors|report\.html|mlflow_run_id)"
)
"""The names of files that a run writes."""


@dataclass(frozen=True)
class Claim:
    """A run folder that is held for a training: notes for the user, and forced changes of the training."""

    notes: list[str]
    changes: list[str]


@contextmanager
def claim(folder: Path, job: Job, spec: AnySpec, resume: bool, force: bool) -> Iterator[Claim]:
    """Hold the run folder as long as the context lasts, and write the resolved job into it.

    Raises:
        InputError: see `check_run` and `claim_run`; or another job holds the folder.
    """
    with lock.hold(folder) as unlocked:
        changes = check_run(folder, job, resume, force, spec)  # again: another job may have used it since
        notes = [unlocked] if unlocked else []
        if resume and latest_checkpoint(folder) is None:
            what = "checkpoint" if (folder / "job.toml").exists() else "run"
            notes.append(f"no {what} in {folder}: starting from round 1")
        claim_run(folder, job)
        yield Claim(notes + [f"{folder}: continues with {change}" for change in changes], changes)


def check_run(
    folder: Path, job: Job, resume: bool, force: bool = False, spec: AnySpec | None = None
) -> list[str]:
    """Check that the run folder is free, or holds a run of this job that may be resumed; write nothing.

    Returns:
        The changes that `force` makes to the run, such as `local.lr 0.1 -> 0.05`.

    Raises:
        InputError: the folder holds a run and `resume` is false, or a run of another job or on other shards.
    """
    path = folder / "job.toml"
    if not path.exists():
        return []
    if not resume:
        to_do = "continue with it by --resume, or name another folder by --out"
        raise InputError(f"{folder}: holds a run already; {to_do}")
    if spec:
        _check_form(folder, spec)  # no other key mends it, and no --force
    changes = _check_same_job(folder, read_kept(path, job.plugins.values()), job, force)
    return changes + _check_code(folder, job, force) + (_check_data(folder, spec, force) if spec else [])


def _check_same_job(folder: Path, old: Job, new: Job, force: bool) -> list[str]:
    """Return the changed keys if a run may be resumed with this job, by `force` if need be; else raise."""
    different, allowed = differing_keys(old, new, HARMLESS), set(FORCEABLE)
    if new.privacy is not None and new.privacy.level == "example":
        allowed -= COUNTED
        if new.privacy.epsilon is not None and new.rounds != old.rounds:
            what = f"the noise of its rounds follows from rounds = {old.rounds}, by [privacy] epsilon"
            raise InputError(f"{folder}: {what}; continue with these, or start again with another --out")
    hard = [key for key in different if not {key, key.partition(".")[0]} & allowed]
    if different and (hard or not force):
        keys, insist = ", ".join(hard if force else different), "" if hard else ", or add --force"
        raise InputError(
            f"{folder}: is a run of another job, it differs in {keys}; resume with "
            f"the job it was started with, or start again with another --out{insist}"
        )
    return [f"{key} {_value(old, key)} -> {_value(new, key)}" for key in different]


def _check_code(folder: Path, job: Job, force: bool) -> list[str]:
    """Return the changed modules of the user's own if a run may be resumed with these by `force`; else
    raise."""
    changed = changed_code(folder, job)
    if changed and (job.privacy is not None or not force):
        what = f"the code of {' and '.join(changed)} is not that which it was started with"
        to_do = "put that back, start again with another --out, or add --force"
        if job.privacy is not None:
            what += ", and by [privacy] what the sites have counted is of that code"
            to_do = "put that back, or start again with another --out"
        raise InputError(f"{folder}: {what}; {to_do}")
    return [
        f"code of {name} of sha256 {_briefly(old)} -> {_briefly(new)}" for name, (old, new) in changed.items()
    ]


def changed_code(folder: Path, job: Job) -> dict[str, tuple[str, str]]:
    """Return the modules of the user's own that have changed since the run in a folder was started: the
    sha256 then and now."""
    old, new = read_environment(folder).get("code", {}), code_of(job.plugins.values())
    return {name: (old[name], now) for name, now in new.items() if old.get(name, now) != now}


def _check_form(folder: Path, spec: AnySpec) -> None:
    """Refuse shards of another number of silos, or of other examples, than the run was started on."""
    new = describe(spec)["form"]
    old = read_environment(folder).get("data", {}).get("form", new)
    if old == new:
        return
    (before, _, examples), (now, _, others) = old.partition(" of "), new.partition(" of ")
    to_do = "give the run's own shards folder, or start again with another --out"
    if examples != others:
        raise InputError(f"{folder}: was started on {old}, the shards are {new}; {to_do}")
    model = folder / "model.safetensors"
    begin = f", from its model by [model] weights = '{model}'" if model.exists() else ""
    raise InputError(f"{folder}: was started on {before}, and the shards are {now}; {to_do}{begin}")


def _check_data(folder: Path, spec: AnySpec, force: bool) -> list[str]:
    """Return the changed data if a run may be resumed on these shards, by `force` if need be; else raise."""
    old, new = read_environment(folder).get("data", {}), describe(spec)
    if same_data(old, new):
        return []
    if not force:
        to_do = "give the run's own shards folder, start again with another --out, or add --force"
        raise InputError(f"{folder}: the shards are not those that it was started on; {to_do}")
    changed = [name for name in DIGESTS if old.get(name, new[name]) != new[name]]
    return [f"{DIGESTS[name]} {_briefly(old[name])} -> {_briefly(new[name])}" for name in changed]


def _briefly(digest: object) -> str:
    return str(digest)[:12] or "none"


def _value(job: Job, key: str) -> str:
    """Return the value of `table.key` as a job file writes it."""
    value: Any = job.model_dump(mode="json")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "none" if value is None else json.dumps(value)


def claim_run(folder: Path, job: Job) -> None:
    """Make the run folder and write the resolved job into it.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoints = (checkpoint.round_folder(folder, round) for round in checkpoint.rounds(folder))
        for place in (folder, folder / "personal", *checkpoints):
            remove_left_behind(place, _OWN)
        resolved = tomli_w.dumps(job.model_dump(mode="json", exclude_none=True))
        write_atomic(folder / "job.toml", resolved.encode())
    except OSError as error:
        raise lock.cannot_be_written(folder, error) from None


def latest_checkpoint(folder: Path) -> int | None:
    """Return the round of the latest checkpoint folder, complete or not; None without any."""
    return next(iter(checkpoint.rounds(folder)), None)
