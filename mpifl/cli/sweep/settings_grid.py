"""The grid: from `--set key=value,value` to a run folder for each combination."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mpifl.common import InputError
from mpifl.data.shards import AnySpec, read_any
from mpifl.learning.metrics import MetricInfo
from mpifl.report.observers import Progress
from mpifl.report.runs import Summary, changed_by_force, read_run
from mpifl.run.folder import changed_code, describe, read_environment, same_data, why_lost
from mpifl.run.job import HARMLESS, Job, differing_keys, read_job, read_kept
from mpifl.training.beforehand import validate_job
from mpifl.wings import wings_of

OPENING, CLOSING = "[{(", "]})"
ALGORITHM, QUOTES = "algorithm.", "'\""
LONGEST_NAME = 255
"""The most bytes in a folder's name that file systems accept."""


@dataclass(frozen=True)
class GridRun:
    """One run of a grid."""

    number: int
    name: str
    run: Path
    settings: tuple[str, ...]
    """Keys and values for `mpifl train --set`."""
    job: Job
    file: Path | None = None
    """Its own job file, if it is not that of all."""
    ranks: int | None = None
    """Its own number of MPI ranks, if it is not that of all."""

    @cached_property
    def metric(self) -> MetricInfo:
        """The main metric of its job."""
        return self.job.build_task().main_metric

    @property
    def by_valid(self) -> bool:
        """Whether its rounds are scored on validation rows."""
        return self.job.evaluate.split is not None

    @property
    def log(self) -> Path:
        """The file for its output."""
        return self.run / "log.txt"

    def summary(self) -> Summary | None:
        """Return the run's summary; None if no round is done."""
        try:
            return read_run(self.run)
        except InputError:
            return None

    @property
    def state(self) -> str:
        """The state of the run: `done`, `lost` (too few silos answered), `cut`, or `new`."""
        found = self.summary()
        if found and found.finished:
            progress = Progress(found.rounds, found.records[-1])
            if progress.finished(self.job, self.metric):
                return "done"
        if why_lost(self.run) is not None:
            return "lost"
        return "cut" if (self.run / "job.toml").exists() else "new"

    def of_another(self, spec: AnySpec | None) -> str | None:
        """Return why the run in its folder belongs to another task; None if it does not, or there is no run.

        Args:
            spec: The federation of its shards, if they are `readable`.
        """
        if not (self.run / "job.toml").exists():
            return None
        kept = read_kept(self.run / "job.toml", self.job.plugins.values())
        if different := differing_keys(kept, self.job, HARMLESS):
            return f"is a run of another job, it differs in {', '.join(different)}"
        environment = read_environment(self.run)
        if forced := changed_by_force(environment):
            return f"was changed on the way by --force: {'; '.join(forced)}"
        if changed := changed_code(self.run, self.job):
            return f"was started with another code of {' and '.join(changed)} than is there now"
        if spec and not same_data(environment.get("data", {}), describe(spec)):
            return f"was started on other shards than those at {self.job.shards} now"
        found = self.summary()
        if found is not None and found.rounds > self.job.rounds:
            return f"has done {found.rounds} rounds, more than the {self.job.rounds} that are asked for"
        return None


def grid(job: Path, given: Sequence[str], out: Path, settings: Sequence[str] = ()) -> list[GridRun]:
    """Return a task for every combination of the values of all keys; the last key changes fastest.

    Args:
        job: The job file.
        given: Keys and their values, such as `local.lr=0.03,0.1`; commas inside brackets or quotes belong to
            a value.
        out: The folder of the runs; the keys with several values name each run.
        settings: Values that go together, such as `algorithm.name=fedavg server_optimizer.name=adam`; each of
            these is combined with all values of `given`.

    Raises:
        InputError: a key, a value or a job is wrong, `out` is a run folder, or a run folder in it holds a run
            of another job or on other shards.
    """
    check_no_run(out)
    axes, together = [_axis(setting) for setting in given], [_together(text) for text in settings]
    keys = [*(key for key, _ in axes), *{_key(word) for words in together for word in words}]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise InputError(f"--set {twice}: given twice; give all its values at once, --set {twice}=A,B")
    choices: list[list[tuple[str, ...]]] = [[(f"{key}={value}",) for value in values] for key, values in axes]
    choices = [together, *choices] if together else choices
    varied = {_key(word) for of in choices if len(of) > 1 for words in of for word in words}
    tasks: list[GridRun] = []
    refused: list[tuple[tuple[str, ...], InputError]] = []
    for number, chosen in enumerate(itertools.product(*choices)):
        words = tuple(itertools.chain(*chosen))
        name = _name([word for word in words if _key(word) in varied], job.stem)
        try:
            tasks.append(GridRun(number, name, out / name, words, read_job(job, words)))
        except InputError as error:
            refused.append((words, error))
    if refused:
        said = str(refused[0][1])
        hint = _tables(job, axes) if "has no key" in said else ""
        raise InputError(f"{said}{hint or _would_do(tasks, [words for words, _ in refused])}")
    _check_apart(tasks)
    _check_folders(tasks)
    return tasks


def _would_do(tasks: Sequence[GridRun], refused: Sequence[tuple[str, ...]]) -> str:
    """Say which settings would do, and what the refused ones have in common that these lack; "" where none
    would."""
    if not tasks:
        return ""
    others = f"{len(tasks)} of {len(tasks) + len(refused)} settings would do"
    common = [word for word in refused[0] if all(word in words for words in refused)]
    alone = [word for word in common if not any(word in task.settings for task in tasks)]
    if alone:
        return f"; {others}, those without {' '.join(alone)}"
    return f"; {others}, as {' '.join(tasks[0].settings)}"


def check_no_run(out: Path) -> None:
    """Check that a folder for runs is none of a run.

    Raises:
        InputError: it is.
    """
    if found := next((name for name in ("metrics.jsonl", "environment.json") if (out / name).exists()), None):
        what = f"{out}: holds a run already ({found}), and runs are to lie in folders below it"
        raise InputError(f"{what}; name another folder by --out")


def validate_all(tasks: Sequence[GridRun], job: Path) -> None:
    """Check that every task that is not done could start; each model on each shard folder is checked once.

    Raises:
        InputError: a task could not start.
    """
    seen: set[str] = set()
    for task in tasks:
        parts = task.job.model_dump_json(include={"model", "algorithm", "shards", "tracking", "split"})
        if parts not in seen and task.state != "done":
            seen.add(parts)
            source = " ".join([str(job), *(f"--set {setting}" for setting in task.settings)])
            validate_job(task.job, source, wings_of)


def _axis(setting: str) -> tuple[str, list[str]]:
    key, equals, text = setting.partition("=")
    values = [value.strip() for value in split(text)]
    if not equals or not key.strip() or "" in values:
        raise InputError(f"--set {setting}: give it as key=value,value, for instance --set local.lr=0.03,0.1")
    if twice := next((value for value in values if values.count(value) > 1), None):
        raise InputError(f"--set {setting}: {twice} is given twice")
    return key.strip(), values


def _together(text: str) -> tuple[str, ...]:
    """Return the words of `--setting`, each `key=value`."""
    words = tuple(word for word in split(text, " ") if word)
    single = all(_key(word) and len(split(word)) == 1 and word.partition("=")[2] for word in words)
    if not words or not single or len({*map(_key, words)}) < len(words):
        example = "--setting 'algorithm.name=fedavg server_optimizer.name=adam'"
        raise InputError(f"--setting '{text}': give each key once, with one value, for instance {example}")
    return words


def _key(word: str) -> str:
    return word.partition("=")[0]


def split(text: str, at: str = ",") -> list[str]:
    """Split at commas outside brackets and quotes: `[1,2],[3]` are two values. `at` is another character."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in OPENING + CLOSING:
            depth += 1 if character in OPENING else -1
        if character == at and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _name(settings: Sequence[str], otherwise: str) -> str:
    """Return a folder's name without characters that trouble shells or file systems."""
    return re.sub(r"[^\w.,=+-]+", "_", ",".join(settings).replace('"', "").replace("'", "")) or otherwise


def _check_apart(tasks: Sequence[GridRun]) -> None:
    """Check that every task has its own folder and its own job."""
    by_name: dict[str, GridRun] = {}
    by_job: dict[str, GridRun] = {}
    for task in tasks:
        if not task.job.tracking.jsonl:
            why = "a sweep compares runs by their metrics.jsonl; leave it true"
            raise InputError(f"[tracking] jsonl = false: {why}")
        if len(os.fsencode(task.name)) > LONGEST_NAME:
            what = f"would be the name of a folder, and is longer than {LONGEST_NAME} bytes"
            to_do = "vary fewer keys at once, or put long values into a job file each"
            raise InputError(f"--set: {task.name[:60]}... {what}; {to_do}")
        if (other := by_name.setdefault(task.name, task)) is not task:
            raise InputError(f"--set: {_both(other, task)} share the name {task.name}")
        if (other := by_job.setdefault(task.job.model_dump_json(), task)) is not task:
            raise InputError(f"--set: {_both(other, task)} are the same job; leave one out")


def _tables(job: Path, axes: Sequence[tuple[str, list[str]]]) -> str:
    """Return what to give in place of `algorithm.name` and keys that not all of the algorithms take: a table
    for each, with the keys that it takes; "" where there is no such key."""
    given = {key.removeprefix(ALGORITHM): values for key, values in axes if key.startswith(ALGORITHM)}
    if len(names := given.pop("name", [])) < 2 or not given:
        return ""
    each = []
    for name in (one.strip(QUOTES) for one in names):
        words = [f",{key}={values[0]}" for key, values in given.items() if _takes(job, name, key, values[0])]
        each.append(f'{{name="{name}"{"".join(words)}}}')
    return f"; use --set 'algorithm={','.join(each)}'"


def _takes(job: Path, name: str, key: str, value: str) -> bool:
    """Return whether an algorithm has a key."""
    try:
        read_job(job, [f'algorithm={{name="{name}",{key}={value}}}'])
    except InputError as error:
        return "has no key" not in str(error)
    return True


def _both(one: GridRun, other: GridRun) -> str:
    return f"{' '.join(one.settings)} and {' '.join(other.settings)}"


def _check_folders(tasks: Sequence[GridRun]) -> None:
    """Check that no folder holds a run of another job, or of the same job on other shards."""
    shards = {task.job.shards: readable(task.job.shards) for task in tasks}
    for task in tasks:
        if why := task.of_another(shards[task.job.shards]):
            raise InputError(f"{task.run}: {why}; name another folder by --out")


def readable(shards: str) -> AnySpec | None:
    """Return the federation of shards; None if they cannot be read, which is reported when a task trains on
    them."""
    try:
        return read_any(Path(shards))
    except InputError:
        return None
