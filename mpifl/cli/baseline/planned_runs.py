"""The trainings of a baseline: the job itself, each silo alone, and all pooled, each a run of its own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from mpifl.cli.baseline.joined_shards import is_of, join_shards, remove_rows
from mpifl.cli.sweep import GridRun, check_no_run
from mpifl.common import InputError, Names, ShardError, cannot_be_written, write_atomic
from mpifl.data.shards import FederationSpec, ShardEntry, open_shard, read_any
from mpifl.learning import models
from mpifl.report.judging import check_classes, check_fit, learned_from, shards_at, why_none
from mpifl.report.observers import at_end, never_moved
from mpifl.report.runs import chance, read_run, rows_left_out
from mpifl.run.folder import read_metrics
from mpifl.run.job import Job, check_job, read_job

OF_SEVERAL = ("cohort", "aggregation", "attack", "compression")
"""Tables of a job that say nothing of a silo that trains alone."""
BY_TEST_ROWS = (
    "The trainings were ended, or their models chosen, by scores on these same test rows, which flatters "
    "each of them; use [evaluate] split = 'valid'."
)


@dataclass(frozen=True)
class BaselinePlan:
    """What is trained and scored.

    Attributes:
        folder: Its shard folder.
        spec: What that holds.
        federated: The run of the job itself.
        alone: By a silo's number: its run alone. These are the silos with test rows.
        pooled: The run on all training rows that can be read here.
        entries: By the name of a run alone or pooled: the shards that it is of.
        left_out: By a silo's name: why it is scored nowhere.
        late: Whether the silos came later, and the federated model has not learned from them.
    """

    job: Job
    folder: Path
    spec: FederationSpec
    federated: GridRun
    alone: dict[int, GridRun] = field(default_factory=dict)
    pooled: GridRun | None = None
    entries: dict[str, list[ShardEntry]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    late: bool = False

    @property
    def runs(self) -> list[GridRun]:
        """All runs, the job's own first."""
        return [self.federated, *self.alone.values(), *([self.pooled] if self.pooled else [])]

    @functools.cached_property
    def names(self) -> Names:
        """The silos' names."""
        return Names([entry.name for entry in self.spec.silos])


def plan_of(path: Path, settings: Sequence[str], out: Path) -> BaselinePlan:
    """Return the trainings of a job's baseline.

    Args:
        path: The job file.
        settings: Keys and values, as `mpifl train --set` takes them.
        out: The folder of the runs.

    Raises:
        InputError: there can be no baseline of such a job or of such shards.
    """
    _check_seed(settings)
    check_no_run(out)
    job = read_job(path, settings)
    folder, spec = Path(job.shards), read_any(Path(job.shards))
    if job.split is not None or not isinstance(spec, FederationSpec):
        what = "parties have columns of the same rows, and none could train alone"
        raise InputError(f"{path}: {what}; use shards whose silos have rows of their own")
    _check(path, job)
    _check_models(path, job, spec)
    federated = GridRun(0, "federated", out / "federated", tuple(settings), job)
    plan = BaselinePlan(job, folder, spec, federated)
    readable = _plan_alone(plan, out, folder / "federation.json", "alone")
    if job.local.epochs_by_silo is None and len(readable) > 1:
        return replace(plan, pooled=_run(plan, out, "pooled", readable))
    return plan


def plan_of_late(path: Path, settings: Sequence[str], out: Path, late: Path) -> BaselinePlan:
    """Return the trainings of silos that came later, each alone, beside a federated run that is done.

    Args:
        path: The job file.
        settings: Keys and values, as `mpifl train --set` takes them.
        out: The folder of the runs, with the federated one in `federated`.
        late: A shard folder of the silos, or one shard beside what describes it.

    Raises:
        InputError: there is no such run, or its model cannot judge these shards.
    """
    _check_seed(settings)
    check_no_run(out)
    job, run = read_job(path, settings), out / "federated"
    _check(path, job)
    federated = GridRun(0, "federated", run, tuple(settings), job)
    if federated.state != "done":
        raise InputError(f"{run}: is not a finished run; put the run folder of the federated model there")
    (_, taken), shards = learned_from(run, job.plugins.values()), shards_at(late)
    check_fit(run, late, shards.spec, taken)
    check_classes(run, late, shards.spec, taken)
    _check_models(path, job, taken)
    entries = [entry for entry in shards.entries.values() if entry.silo is not None]
    spec = shards.spec.model_copy(update={"silos": entries})
    plan = BaselinePlan(job, shards.folder, spec, federated, late=True)
    _plan_alone(plan, out, late, "late")
    return plan


def _plan_alone(plan: BaselinePlan, out: Path, where: Path, name: str) -> list[ShardEntry]:
    """Plan a run alone for each silo with test rows; return the silos whose shards can be read here. Raise
    InputError if there is none."""
    readable = []
    for number, entry in enumerate(plan.spec.silos):
        try:
            open_shard(plan.folder, entry, plan.spec)
        except ShardError as error:
            plan.left_out[plan.names[number]] = str(error)
            continue
        readable.append(entry)
        if not entry.examples.get("test"):
            plan.left_out[plan.names[number]] = "holds out no test rows"
            continue
        plan.alone[number] = _run(plan, out, f"{name}_{entry.silo:04d}", [entry])
    if not plan.alone:
        what = f"{where}: no silo whose shard can be read here holds out test rows"
        raise InputError(f"{what}; partition with --test 0.2")
    return readable


def _check_seed(settings: Sequence[str]) -> None:
    """Refuse several seeds, which a sweep takes."""
    for setting in settings:
        key, _, value = setting.partition("=")
        if key.strip() == "seed" and "," in value:
            first = value.strip("[] ").split(",")[0]
            to_do = f"run it once for each, as --set seed={first} with an --out of its own"
            raise InputError(f"--set {setting}: a baseline is of one seed; {to_do}")


def _check(path: Path, job: Job) -> None:
    """Refuse a job whose silos' models or figures cannot be told apart."""
    if job.secure or job.privacy is not None:
        key = "[privacy]" if job.privacy is not None else "[security] masks"
        kind, _, why = why_none(job.model_dump(mode="json", exclude_none=True)).partition(": ")
        what = f"{key}: a baseline tells figures of single silos, and here these are withheld ({why})"
        if kind != "withheld":
            what = f"{key}: each training of a baseline would spend the silos' budgets"
        raise InputError(f"{path}: {what}; leave the table out where all data are yours")
    if not job.tracking.jsonl:
        what = "[tracking] jsonl = false: a baseline sees by metrics.jsonl which runs are done"
        raise InputError(f"{path}: {what}; leave it true")


def _check_models(path: Path, job: Job, spec: FederationSpec) -> None:
    """Refuse an algorithm by which each silo has a model of its own."""
    algorithm, task = job.build_algorithm().for_federation(spec), job.build_task().for_federation(spec)
    own = algorithm.own_models
    if not own:
        width = task.width(spec)
        module = models.build(
            job.model.name, job.model.arguments, spec.features, width, seed=job.seed, task=task
        )
        own = bool(algorithm.personal_names(module))
    if own:
        what = f"[algorithm] name = '{job.algorithm['name']}': silos have models of their own"
        raise InputError(f"{path}: {what}; use an algorithm that trains one model, such as fedavg")


def _run(plan: BaselinePlan, out: Path, name: str, entries: list[ShardEntry]) -> GridRun:
    """Return the run of a job on one silo that has the rows of some shards."""
    number, shards = len(plan.entries) + 1, out / "shards" / name
    table: dict[str, Any] = plan.job.model_dump(mode="json", exclude_none=True)
    for key in OF_SEVERAL:
        table.pop(key, None)
    table["shards"] = str(shards)
    if by_silo := table["local"].pop("epochs_by_silo", None):
        table["local"]["epochs"] = by_silo[(entries[0].silo or 0) % len(by_silo)]
    file = out / "jobs" / f"{name}.toml"
    job = check_job(table, str(file))
    plan.entries[name] = entries
    silo = plan.names[plan.spec.silos.index(entries[0])]
    title = f"silo {silo} alone" if len(entries) == 1 else "pooled"
    return GridRun(number, title, out / name, (), job, file, ranks=1)


def prepare(plan: BaselinePlan, resume: bool) -> None:
    """Write the job files, and see that no run is of others.

    Raises:
        InputError: a folder has runs, and `resume` is not asked for; or they are of another job or other
            shards; or it cannot be written.
    """
    for task in plan.runs:
        begun = (task.run / "job.toml").exists()
        if begun and not (resume or plan.late):
            what = f"{task.run}: holds a run already"
            raise InputError(f"{what}; continue by --resume, or name another folder by --out")
        shards = Path(task.job.shards)
        entries = plan.entries.get(task.run.name)
        described = (shards / "federation.json").is_file()
        if begun and entries and described and not is_of(shards, entries):
            what = f"{task.run}: was trained on other shards than those that can be read at {plan.folder} now"
            raise InputError(f"{what}; remove it, or name another folder by --out")
        own = None if plan.late else plan.spec
        spec = own if entries is None else read_any(shards) if described else None
        if why := task.of_another(spec):
            raise InputError(f"{task.run}: {why}; name another folder by --out")
        if task.file is not None:
            content = tomli_w.dumps(task.job.model_dump(mode="json", exclude_none=True)).encode()
            try:
                task.file.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(task.file, content)
            except OSError as error:
                raise cannot_be_written(task.file.parent, error) from None


@contextlib.contextmanager
def lent_shards(plan: BaselinePlan, task: GridRun) -> Iterator[None]:
    """Have the shards of a run there while it trains; they are copies, which are removed when it is done."""
    entries = plan.entries.get(task.run.name)
    if entries is None:
        yield
        return
    shards = Path(task.job.shards)
    described = (shards / "federation.json").is_file() and is_of(shards, entries)
    if not described or not any(shards.glob("silo_*.h5")):
        join_shards(shards, plan.folder, plan.spec, entries)
    yield
    if task.state == "done":
        remove_rows(shards)


def ended_by_patience(plan: BaselinePlan) -> str:
    """Name the silos whose training alone ended before the last round by patience, and the federated training
    if it did; "" if none did."""
    job, ended = plan.job, list[str]()
    split = job.evaluate.split or ("test" if plan.spec.test is None else None)
    for silo, task in plan.alone.items():
        if (done := _ended_early(plan, task)) is not None:
            rows = plan.spec.silos[silo].examples.get(split or "")
            by = f", by {rows:,} {split} rows" if rows else ""
            ended.append(f"{plan.names[silo]} (round {done:,} of {job.rounds:,}{by})")
    done = _ended_early(plan, plan.federated)
    own = "" if done is None else f"the federated model, round {done:,} of {job.rounds:,}"
    if not ended:
        return f"Warning: patience ended {own}; try a larger evaluate.patience, with another --out." * bool(
            own
        )
    who = f"{len(ended)} of {len(plan.alone)} silos early:" if len(plan.alone) > 1 else "silo"
    early = " early" * (len(plan.alone) == 1)
    said = f"Warning: patience ended the training alone of {who} {', '.join(ended)}{early}"
    flatters = "which may flatter the federated model; try a larger evaluate.patience, with another --out"
    return f"{said}, {flatters}.{f' Patience also ended {own}.' * bool(own)}"


def unlearnt_by_patience(plan: BaselinePlan, task: GridRun) -> str:
    """Say that patience ended a training before its figure moved from that of guessing, so that a comparison
    with it says nothing; "" if not."""
    done = _ended_early(plan, task)
    if done is None or not never_moved(read_metrics(task.run), plan.federated.metric):
        return ""
    why = next((one for one in chance.unlearnt(read_run(task.run)) if one.startswith(chance.NO_BETTER)), "")
    to_do = "try a larger evaluate.patience, or none, with another --out"
    ended = f"patience ended the training in round {done:,} of {plan.job.rounds:,}, and its model is {why}"
    return f"{ended}, which is no ground for a comparison; {to_do}" * bool(why)


def _ended_early(plan: BaselinePlan, task: GridRun) -> int | None:
    """Return the round in which patience ended a training; None where it did not."""
    job, last = plan.job, next(iter(read_metrics(task.run)[-1:]), None) if task.state == "done" else None
    if last is None or (done := int(last["round"])) >= job.rounds:
        return None
    return (
        done if at_end(done, last, job.rounds, None, plan.federated.metric, job.evaluate.patience) else None
    )


def remarks_on(plan: BaselinePlan) -> list[str]:
    """Return what is to be said against the figures of a baseline whose trainings are done."""
    found = rows_left_out(plan.spec)
    if plan.late:
        found.append("The federated model has not learned from these silos, which came later.")
    elif plan.pooled is None:
        why = "silos train for different epochs" if plan.job.local.epochs_by_silo else "one silo can be read"
        found.append(f"Nothing is pooled: {why}.")
    elif plan.pooled.state != "done":
        found.append(f"Nothing is pooled: that training did not come to its end; {plan.pooled.log} says why.")
    elif missing := len(plan.spec.silos) - len(plan.entries[plan.pooled.run.name]):
        found.append(f"Pooled without {missing} of {len(plan.spec.silos)} silos, whose shards are not here.")
    evaluate = plan.job.evaluate
    by_silos = evaluate.split is None and plan.spec.test is None
    if by_silos and (evaluate.patience or evaluate.stop_at_target or evaluate.keeps_best):
        found.append(BY_TEST_ROWS)
    return found
