"""What a user may do next with a run that is finished, as commands that work as they stand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mpifl.common import InputError
from mpifl.common.machine import runnable
from mpifl.data.shards import AnySpec, FederationSpec, by_path, read_any
from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs.kept_job import metric_of
from mpifl.report.runs.run_summary import Record
from mpifl.run.folder import read_environment, read_metrics

if TYPE_CHECKING:  # what reads runs needs no model
    from mpifl.run.job import Job

Step = tuple[str, str]
"""A command, and what it does."""


def show_next(console: Console, run: Path, job: Job) -> None:
    """Print what may be done next with a finished run, a command a line."""
    steps = list(next_steps(run, job))
    width = max((len(command) for command, _ in steps), default=0)
    fits = width + max((len(what) for _, what in steps), default=0) + 6 <= console.width
    if steps:
        console.print("next:")
    for command, what in steps:
        console.print(f"  {command:<{width if fits else 0}}  # {what}", soft_wrap=True)


def next_steps(run: Path, job: Job) -> Iterator[Step]:
    """Yield the commands that a finished run of this job allows."""
    records, environment = read_metrics(run), read_environment(run)
    if records:
        yield _command("report", str(run)), f"its page, {run / 'report.html'}"
    if "personal" not in job.algorithm:  # else silos own a part of the model, and none answers for all
        ranks, trusted = len(environment.get("ranks", {})), dict.fromkeys(job.plugins.values())
        more = [word for name in trusted for word in ("--trust", name)]
        more += ["--ranks", str(ranks)] if job.split is not None and ranks > 1 else []
        started = Path(environment.get("directory", "."))  # where the job's relative paths begin
        shards = str(job.shards) if started == Path.cwd() else str(started / job.shards)
        spec = _spec(Path(shards))
        where = ["--silos"] if job.split is None and not _tested(records, metric_of(environment)) else []
        what = "scores it at each silo" if where else "scores it on the test set"
        where += ["--split", "train"] if where and not _held_out(spec) else []
        yield _command("evaluate", str(run), *where, *more), what
        asked = ["--data", shards, "--out", f"predictions.{'csv' if _is_flat(spec) else 'npz'}"]
        yield _command("predict", str(run), *asked, *more), "writes what it says of every example"
    if records:
        beside = sorted(found.parent for found in run.absolute().parent.glob("*/metrics.jsonl"))
        others = [found.name for found in beside if found.name != run.absolute().name]
        other = shlex.quote(str(run.parent / others[-1])) if others else "OTHER-RUN"
        yield f"{_command('compare', str(run))} {other}", "puts it beside another"


def _tested(records: Sequence[Record], metric: MetricInfo) -> bool:
    """Whether the model was scored on a test set; of a run without metrics nobody knows."""
    return not records or any(metric.test in {**r, **(r.get("final") or {})} for r in records)


def _spec(shards: Path) -> AnySpec | None:
    try:
        return read_any(shards)
    except InputError:  # they lie elsewhere by now
        return None


def _held_out(spec: AnySpec | None) -> bool:
    """Whether a silo holds out examples; where nobody knows, it does."""
    if not isinstance(spec, FederationSpec):
        return True
    return any(entry.examples.get(split) for entry in spec.silos for split in ("test", "valid"))


def _is_flat(spec: AnySpec | None) -> bool:
    """Whether a table of rows takes what a model answers: not where each row has several places."""
    if spec is None:
        return True
    aims = [one for one in by_path("y", spec.targets).values() if one is not None]
    return not any(one.ragged or (one.shape if spec.classes else one.shape[1:]) for one in aims)


def _command(*words: str) -> str:
    return runnable(shlex.join(["mpifl", *words]))
