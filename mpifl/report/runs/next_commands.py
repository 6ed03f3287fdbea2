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
from mpifl.run.folder import read_environment, read_metrics, why_lost

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


def again(said: str, run: Path, job: Mapping[str, Any], key: str, value: float | str) -> tuple[str, str]:
    """Return what to do, and the command that trains a run's job with another value of a key.

    It takes a folder of its own. Where that holds such a run already, the command shows that run.
    """
    text = f"{value:g}" if isinstance(value, float) else str(value)  # no digit of a seed is cut off
    folder = Path(f"{run}-{key.rpartition('.')[2]}-{text}")
    if read_metrics(folder) or why_lost(folder):
        return f"{said}; {folder} holds that run already:", command_of("report", str(folder))
    return f"{said}:", trained("train", run, job, f"{key}={text}", out=free(folder))


def trained(by: str, run: Path, job: Mapping[str, Any], *settings: str, out: Path) -> str:
    """Return the command that trains a run's job anew, on as many ranks.

    Args:
        by: The command: train, sweep or baseline.
        settings: Keys and values, as `--set` takes them.
        out: The folder of the new run.
    """
    shards = shards_of(run, job)
    given = [*settings, *([f"shards={shards}"] if shards != str(job.get("shards", "")) else [])]
    asked = [word for one in given for word in ("--set", one)]
    return command_of(by, str(run / "job.toml"), *asked, "--out", str(out), *ranks_of(run))


def continued(run: Path, job: Mapping[str, Any], *settings: str) -> str:
    """Return the command that continues a run. It takes the job's own path of shards, so it runs where that
    leads there."""
    here = shards_of(run, job) == str(job.get("shards", ""))
    place = run if here else run.absolute()
    asked = [str(place / "job.toml"), *(word for one in settings for word in ("--set", one))]
    said = command_of("train", *asked, "--resume", "--out", str(place), *ranks_of(run))
    return said if here else f"(cd {shlex.quote(str(_started(run)))} && {said})"


def free(folder: Path) -> Path:
    """Return a folder that is not there, named as this one."""
    taken = {one.name for one in folder.parent.glob("*")}  # one number more than these is free
    names = [folder.name, *(f"{folder.name}-{nth}" for nth in range(2, len(taken) + 3))]
    return folder.with_name(next(one for one in names if one not in taken))


def member(run: Path) -> str:
    """Return what a run belongs to, "baseline" or "sweep", which refuses other jobs; "" of others."""
    name, folder = run.absolute().name, run.absolute().parent
    if re.fullmatch(r"federated|pooled|(alone|late)_\d+", name) and (
        (folder / "baseline.json").is_file() or any((folder / "jobs").glob("*_[0-9]*.toml"))
    ):
        return "baseline"
    return "sweep" if "=" in name else ""


def lent(run: Path) -> bool:
    """Return whether a run's shards were lent to it by a baseline, and are gone."""
    return member(run) == "baseline" and run.absolute().name != "federated"


def shards_of(run: Path, job: Mapping[str, Any]) -> str:
    """Return a run's shard folder as it is named here: in the job's words, where these lead there."""
    said, started = str(job.get("shards", "")), _started(run)
    there = started / said
    if started == Path.cwd() or (not there.exists() and Path(said).exists()):
        return said
    same = Path(said).exists() and Path(said).samefile(there)
    return said if same else str(there)


def spec_of(run: Path, job: Mapping[str, Any]) -> AnySpec | None:
    """Return what a run's shards hold, None where they cannot be read from here."""
    return _spec(Path(shards_of(run, job))) if "shards" in job else None


def _started(run: Path) -> Path:
    """Return where a job's relative paths begin."""
    return Path(read_environment(run).get("directory", "."))


def with_model(run: Path, job: Mapping[str, Any], records: Sequence[Record]) -> Iterator[Step]:
    """Yield the commands that take the model of a finished run."""
    if "shards" not in job or "personal" in job.get("algorithm", {}):
        return  # silos own a part of the model, and none answers for all
    environment, split = read_environment(run), "split" in job
    tables = [one for one in job.values() if isinstance(one, Mapping)]  # a job's own name is no code
    trusted = dict.fromkeys(CODE.findall(json.dumps(tables, default=str, ensure_ascii=False)))
    more = [word for name in trusted for word in ("--trust", name)]
    more += ranks_of(run) if split else []
    shards = shards_of(run, job)
    spec = _spec(Path(shards))
    where = [] if split or _tested(records, metric_of(environment)) else ["--silos"]
    what = f"scores the model {'at each silo' if where else 'on the test set'}"
    where += ["--split", "train"] if where and not _held_out(spec) else []
    yield command_of("evaluate", str(run), *where, *more), what
    asked = ["--data", shards, "--out", f"predictions.{'csv' if _is_flat(spec) else 'npz'}"]
    yield command_of("predict", str(run), *asked, *more), "writes what the model says of each silo's examples"


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
