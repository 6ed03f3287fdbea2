"""Commands that take the model of a run, or train its job again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mpifl.common import InputError
from mpifl.common.machine import runnable
from mpifl.data.shards import AnySpec, FederationSpec, by_path, read_any
from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs.kept_job import metric_of, read_tables
from mpifl.report.runs.run_summary import Record
from mpifl.run.folder import read_environment, read_metrics

Step = tuple[str, str]
"""A command, and what it does."""
CODE = re.compile(r'"([\w.]+:[^\W\d]\w*)"')
"""How a job, as JSON, names code of the user's own."""


def show_next(console: Console, run: Path) -> None:
    """Print what may be done next with a finished run, a command a line."""
    steps = list(next_steps(run))
    width = max((len(command) for command, _ in steps), default=0)
    fits = width + max((len(what) for _, what in steps), default=0) + 6 <= console.width
    if steps:
        console.print("next:")
    for command, what in steps:
        console.print(f"  {command:<{width if fits else 0}}  # {what}", soft_wrap=True)


def next_steps(run: Path) -> Iterator[Step]:
    """Yield the commands that a finished run allows."""
    records, job = read_metrics(run), read_tables(run / "job.toml")[0]
    if records:
        yield runnable(command_of("report", str(run))), f"its page, {run / 'report.html'}"
    for asked, what in with_model(run, job, records):
        yield runnable(asked), what
    if records:
        beside = sorted(found.parent for found in run.absolute().parent.glob("*/metrics.jsonl"))
        others = [found.name for found in beside if found.name != run.absolute().name]
        other = shlex.quote(str(run.parent / others[-1])) if others else "OTHER-RUN"
        yield f"{runnable(command_of('compare', str(run)))} {other}", "puts it beside another"


def again(run: Path, key: str, value: float | str) -> str:
    """Return the command that trains a run's job with another value of a key, in a folder of its own."""
    text = f"{value:g}" if isinstance(value, float) else str(value)  # no digit of a seed is cut off
    folder = f"{run}-{key.rpartition('.')[2]}-{text}"
    return command_of("train", str(run / "job.toml"), "--set", f"{key}={text}", "--out", folder)


def with_model(run: Path, job: Mapping[str, Any], records: Sequence[Record]) -> Iterator[Step]:
    """Yield the commands that take the model of a finished run."""
    if "shards" not in job or "personal" in job.get("algorithm", {}):
        return  # silos own a part of the model, and none answers for all
    environment, split = read_environment(run), "split" in job
    tables = [one for one in job.values() if isinstance(one, Mapping)]  # a job's own name is no code
    trusted = dict.fromkeys(CODE.findall(json.dumps(tables, default=str, ensure_ascii=False)))
    more = [word for name in trusted for word in ("--trust", name)]
    more += ranks_of(run) if split else []
    started = Path(environment.get("directory", "."))  # where the job's relative paths begin
    shards = str(job["shards"] if started == Path.cwd() else started / job["shards"])
    spec = _spec(Path(shards))
    where = [] if split or _tested(records, metric_of(environment)) else ["--silos"]
    what = f"scores the model {'at each silo' if where else 'on the test set'}"
    where += ["--split", "train"] if where and not _held_out(spec) else []
    yield command_of("evaluate", str(run), *where, *more), what
    asked = ["--data", shards, "--out", f"predictions.{'csv' if _is_flat(spec) else 'npz'}"]
    yield command_of("predict", str(run), *asked, *more), "writes what the model says of every example"


def ranks_of(run: Path) -> list[str]:
    """Return the option that starts as many ranks as a run had."""
    ranks = len(read_environment(run).get("ranks", {}))
    return ["--ranks", str(ranks)] if ranks > 1 else []


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


def command_of(*words: str, program: str = "mpifl") -> str:
    """Return a command as a shell takes it."""
    return shlex.join([program, *words])
