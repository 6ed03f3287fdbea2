"""The grid: from `--set key=value,value` to a run folder for each combination."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpifl.errors import InputError
from mpifl.job import Job, differing_keys, read_job
from mpifl.report.runs import Summary, read_run
from mpifl.run import HARMLESS, why_lost

OPENING, CLOSING = "[{(", "]})"


@dataclass(frozen=True)
class Task:
    """One run of a grid."""

    number: int
    name: str
    run: Path
    settings: tuple[str, ...]
    """Keys and values as `mpifl train --set` takes them."""
    job: Job

    @property
    def log(self) -> Path:
        """Where what it prints goes."""
        return self.run / "log.txt"

    def summary(self) -> Summary | None:
        """Return what the run has come to; None if it has done no round."""
        try:
            return read_run(self.run)
        except InputError:
            return None

    @property
    def state(self) -> str:
        """What is to be done with it: it is `done`, `lost` (too few silos answered), `cut`, or `new`."""
        found = self.summary()
        if found is not None and found.finished and (found.rounds >= self.job.rounds or self._at_target(found)):
            return "done"
        if why_lost(self.run) is not None:
            return "lost"
        return "cut" if (self.run / "job.toml").exists() else "new"

    def _at_target(self, found: Summary) -> bool:
        evaluate = self.job.evaluate
        target = evaluate.target_accuracy if evaluate.stop_at_target else None
        return target is not None and found.reached(target) is not None


def grid(job: Path, given: Sequence[str], out: Path) -> list[Task]:
    """Return a task for every combination of the values of all keys, the last key changing fastest.

    Args:
        job: The job file.
        given: Keys and their values, such as `local.lr=0.03,0.1`; commas within brackets or quotes belong to a value.
        out: The folder of the runs; each is named by the keys that have several values.

    Raises:
        InputError: a key, a value or a job is wrong, or a run folder holds a run of another job.
    """
    axes = [_axis(setting) for setting in given]
    keys = [key for key, _ in axes]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise InputError(f"--set {twice}: given twice; give all its values at once, --set {twice}=A,B")
    varied = [key for key, values in axes if len(values) > 1]
    tasks: list[Task] = []
    for number, values in enumerate(itertools.product(*(values for _, values in axes))):
        settings = tuple(f"{key}={value}" for key, value in zip(keys, values, strict=True))
        name = _name([s for s in settings if s.partition("=")[0] in varied], job.stem)
        tasks.append(Task(number, name, out / name, settings, read_job(job, settings)))
    _check(tasks)
    return tasks


def _axis(setting: str) -> tuple[str, list[str]]:
    key, equals, text = setting.partition("=")
    values = [value.strip() for value in split(text)]
    if not equals or not key.strip() or "" in values:
        raise InputError(f"--set {setting}: give it as key=value,value, for instance --set local.lr=0.03,0.1")
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise InputError(f"--set {setting}: {twice} stands there twice")
    return key.strip(), values


def split(text: str) -> list[str]:
    """Split at the commas that stand in no bracket and no quotes: `[1,2],[3]` are two values."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in OPENING + CLOSING:
            depth += 1 if character in OPENING else -1
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _name(settings: Sequence[str], otherwise: str) -> str:
    """Return a folder's name that no shell and no file system minds."""
    return re.sub(r"[^\w.,=+-]+", "_", ",".join(settings).replace('"', "").replace("'", "")) or otherwise


def _check(tasks: Sequence[Task]) -> None:
    """See that every task has a folder and a job of its own, and that no folder holds another job's run."""
    by_name: dict[str, Task] = {}
    for task in tasks:
        if not task.job.tracking.jsonl:
            raise InputError("[tracking] jsonl = false: a sweep compares runs by their metrics.jsonl; leave it true")
        other = by_name.setdefault(task.name, task)
        if other is not task:
            raise InputError(
                f"--set: {' '.join(other.settings)} and {' '.join(task.settings)} share the name {task.name}"
            )
        if not (task.run / "job.toml").exists():
            continue
        if different := differing_keys(read_job(task.run / "job.toml"), task.job, HARMLESS):
            raise InputError(
                f"{task.run}: is a run of another job, it differs in {', '.join(different)}; name another folder "
                "by --out"
            )
