"""What a user may do next with runs, as commands; words in capitals are explained beside them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from mpifl.common import InputError
from mpifl.common.machine import runnable
from mpifl.common.pages import Fold, HowTo, Said
from mpifl.data.shards import AnySpec, FederationSpec, by_path, read_any
from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs.kept_job import BYTES, metric_of, read_tables, trains_alone
from mpifl.report.runs.ranking_figure import SERVER
from mpifl.report.runs.run_summary import Record, Summary
from mpifl.report.runs.seeds import of_several_shards
from mpifl.report.runs.standings import Standing, rivals
from mpifl.report.runs.units import listed, size
from mpifl.run.folder import number, read_environment, read_metrics
from mpifl.run.job import OF_SUMS

Step = tuple[str, str]
"""A command, and what it does."""
MORE_SEEDS, MOST_AGAIN = 3, 3
"""Seeds that are advised beyond those that there are, and settings that get them."""
OF_SPLIT = (
    "Each silo keeps a part of a split network, so all silos take part in each command. The commands are for "
    "one user who has all shards. Where each site has its own shard, all sites start the same command "
    "together under mpirun, each in its own folder, as for the training."
)
OF_HOLDER = (
    "To answer, let the silo with the labels train a model on its own columns alone, with the same training "
    "and test rows. The difference is what the columns of the others add."
)
OF_OWNER = (
    "The owner of a silo can score this run's model on its own test rows, with a copy of the run folder. "
    "SHARD is the folder with its shard, silo_N.h5 and silo_N.json, or the file silo_N.h5 of a shard folder:"
)
IMPORTS = (
    "Whether it helped is told by a model that the silo trains alone. Import the rows once more, as silo 0 "
    "of a new folder OWN. KIND, ROWS, SHARE and SEED are those of the import for the training: what the rows "
    "are, such as csv; their file or folder; --test; --seed. NAME is the silo's name in the training, by "
    "which the test rows stay the same. Give that import's further options, too:"
)
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
        yield runnable(_command("report", str(run))), f"its page, {run / 'report.html'}"
    for command, what in _with_model(run, job, records):
        yield runnable(command), what
    if records:
        beside = sorted(found.parent for found in run.absolute().parent.glob("*/metrics.jsonl"))
        others = [found.name for found in beside if found.name != run.absolute().name]
        other = shlex.quote(str(run.parent / others[-1])) if others else "OTHER-RUN"
        yield f"{runnable(_command('compare', str(run)))} {other}", "puts it beside another"


def next_section(summary: Summary, every: float | None = None, *, more: bool = True) -> Fold | None:
    """Return the commands that take the model of a run, or continue it, as a part of its page.

    None of a run that still goes on, as by `every`, or whose ranks at sites are not one user's. None of exact
    sums. A run that diverged gets what trains it again.

    Args:
        more: Whether more rounds may gain something.
    """
    run, job = summary.run, summary.job
    sums = job.get("algorithm", {}).get("name") in OF_SUMS
    if every or sums or any("sites" in one for one in summary.records):
        return None
    if summary.diverged:
        lr = number(job.get("local", {}), "lr")
        lower = "This trains with a tenth of the learning rate:", again(run, "local.lr", (lr or 0) / 10)
        return Fold("What to do next", [HowTo([lower])], opened=True) if lr else None
    steps = [*_with_model(run, job, summary.records)] if summary.finished else []
    rows = [(f"This {what}:", command) for command, what in steps]
    if not summary.stopped and "privacy" not in job and (more or not summary.finished):
        longer = ["--set", f"rounds={2 * summary.rounds}"] if summary.finished else []
        words = (
            "This trains the model for as many rounds again:" if longer else "This continues the training:"
        )
        asked = [str(run / "job.toml"), *longer, "--resume", "--out", str(run), *_ranks(run)]
        rows.append((words, _command("train", *asked)))
    split = [Said(OF_SPLIT)] if "split" in job else []
    return Fold("What to do next", [HowTo(rows), *split], opened=True) if rows else None


def how_to_tell(summary: Summary) -> list[tuple[str, str]]:
    """Return the steps that show whether a run helped a silo: what to do, and the command; none of exact
    sums, and of silos that train alone."""
    algorithm, run = summary.job.get("algorithm", {}), shlex.quote(str(summary.run))
    if algorithm.get("name") in OF_SUMS or trains_alone(summary.job):
        return []
    if "split" in summary.job:
        return [(OF_HOLDER, "")]
    if hidden := [f"[{name}]" for name in ("privacy", "security") if name in summary.job]:
        imports = "data-prep import KIND --data ROWS --spec federation.json --silo 0 --name NAME"
        return [
            (OF_OWNER, f"mpifl evaluate {run} --data SHARD"),
            (IMPORTS, f"{imports} --test SHARE --seed SEED --out OWN"),
            ("Make OWN a shard folder:", "data-prep assemble OWN"),
            (f"Copy the job file, then delete {' and '.join(hidden)} in the copy:",
             f"cp {run}/job.toml alone.toml"),
            ("Train a model alone:", "mpifl train alone.toml --set shards=OWN --out alone"),
            ("Score it on the same test rows:", "mpifl evaluate alone --data OWN"),
        ]  # fmt: skip
    if summary.own_models or "personal" in algorithm:
        both = f"mpifl report {run} --alone {run}-alone"
        return [
            ("Copy the job file:", f"cp {run}/job.toml alone.toml"),
            ("In alone.toml, let [algorithm] be name = 'ditto', lambda = 0.", ""),
            ("Train each silo alone:", f"mpifl train alone.toml --out {run}-alone"),
            ("Write this page anew, with both:", both),
        ]
    baseline = f"mpifl baseline {run}/job.toml --out {run}-baseline"
    return [("To answer, train each silo alone, and one model on all rows:", baseline)]


def again(run: Path, key: str, value: float) -> str:
    """Return the command that trains a run's job with another value of a key, in a folder of its own."""
    text = f"{value:g}" if isinstance(value, float) else str(value)  # no digit of a seed is cut off
    folder = f"{run}-{key.rpartition('.')[2]}-{text}"
    return _command("train", str(run / "job.toml"), "--set", f"{key}={text}", "--out", folder)


def _with_model(run: Path, job: Mapping[str, Any], records: Sequence[Record]) -> Iterator[Step]:
    """Yield the commands that take the model of a finished run."""
    if "shards" not in job or "personal" in job.get("algorithm", {}):
        return  # silos own a part of the model, and none answers for all
    environment, split = read_environment(run), "split" in job
    tables = [one for one in job.values() if isinstance(one, Mapping)]  # a job's own name is no code
    trusted = dict.fromkeys(CODE.findall(json.dumps(tables, default=str, ensure_ascii=False)))
    more = [word for name in trusted for word in ("--trust", name)]
    more += _ranks(run) if split else []
    started = Path(environment.get("directory", "."))  # where the job's relative paths begin
    shards = str(job["shards"] if started == Path.cwd() else started / job["shards"])
    spec = _spec(Path(shards))
    where = [] if split or _tested(records, metric_of(environment)) else ["--silos"]
    what = f"scores the model {'at each silo' if where else 'on the test set'}"
    where += ["--split", "train"] if where and not _held_out(spec) else []
    yield _command("evaluate", str(run), *where, *more), what
    asked = ["--data", shards, "--out", f"predictions.{'csv' if _is_flat(spec) else 'npz'}"]
    yield _command("predict", str(run), *asked, *more), "writes what the model says of every example"


def next_of_settings(found: Sequence[Standing]) -> list[Step]:
    """Return what to do after a comparison: what, and the command. The best comes first in `found`."""
    if len(found) < 2 or (found[0].judged and found[0].judged.apart):
        return []
    first, others = found[0], rivals(found)
    near = [first, *(one.standing for one in others if not one.seen)]
    take = f"Take {first.name}"
    if any(one.may_turn for one in others):
        take += " for rows like these. On other rows the order may be another one. More test rows would tell"
    if len(near) > 1 and len(first.ends) > 1 and all(len(one.ends) < 2 for one in near[1:]):
        few = listed([one.name for one in near[1:]])
        which = f"{take}. Too few seeds of {few} were run to tell by seeds whether {first.name} is better"
        which += ": run more of both, and compare all runs again:" if _more_seeds(near) else "."
    elif len(near) > 1:
        which = f"None of these is known to be best: {listed([one.name for one in near])}. "
        which += f"Take the simplest{_cheapest(near)}"
        of = f"the first {MOST_AGAIN}" if len(near) > MOST_AGAIN else "each"
        which += f", or run more seeds of {of}, and compare all runs again:" if _more_seeds(near) else "."
    else:
        which = f"{take}."
    steps, run = [(which, "\n".join(_more_seeds(near))), *_by_silos(found)], first.group.runs[0]
    if (run.run / "model.safetensors").exists():
        seed = f", with seed {run.job.get('seed')}, not chosen by its figure" if len(first.ends) > 1 else ""
        used = [*_with_model(run.run, run.job, run.records)]
        steps += [(f"The model of {first.name}{seed}:", command) for command, _ in used[-1:]]
    return steps


def _cheapest(near: Sequence[Standing]) -> str:
    """Say which of some settings sends least, where they differ in that."""
    sums = sorted((fmean(each), one.name) for one in near if (each := one.sums(None, *BYTES)))
    if not sums or sums[0][0] == sums[-1][0]:
        return ""
    return f", or {sums[0][1]}, which sends least ({size(sums[0][0])})"


def _more_seeds(near: Sequence[Standing]) -> list[str]:
    """Return commands that train settings with more seeds, and with those that others have; none where there
    is one setting, or seeds have shards of their own."""
    used = {seed for one in near for seed in one.seeds if isinstance(seed, int)}
    if len(near) < 2 or any(of_several_shards(one.group) for one in near) or not used:
        return []
    every = sorted(used | {max(used) + nth for nth in range(1, MORE_SEEDS + 1)})
    found, seen = list[str](), {str(one.run.parent) for each in near for one in each.group.runs}
    for one in islice(near, MOST_AGAIN):
        run, seeds = one.group.runs[0].run, ",".join(str(seed) for seed in every if seed not in one.seeds)
        found.append(_command("sweep", f"{run}/job.toml", "--set", f"seed={seeds}", "--out", f"{run}-seeds"))
        seen.add(f"{run}-seeds")
    return [*found, _command("compare", *sorted(seen))]


def _by_silos(found: Sequence[Standing]) -> list[Step]:
    """Say which setting has the best mean over silos, where another one is first on the server's test set."""
    judged, metric = found[0].judged, found[0].metric
    if judged is None or judged.rows != SERVER:
        return []
    means = {one.name: fmean(each) for one in found if (each := one.of_silos("mean"))}
    top, own = metric.best(means.values(), default=None), means.get(found[0].name)
    if top is None or own is None or metric.write(top) == metric.write(own):
        return []
    best = next(name for name, mean in means.items() if mean == top)
    said = f"The silos' own rows may have another order: the mean over silos is best with {best}, "
    said += f"{metric.write(top)}, and {metric.write(own)} with {found[0].name}."
    return [(f"{said} Choose by the rows that the model is for.", "")]


def _ranks(run: Path) -> list[str]:
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


def _command(*words: str) -> str:
    return shlex.join(["mpifl", *words])
