"""The job file: TOML read into strict, frozen models; errors name the key and give advice."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from mpifl.algorithms import ALGORITHMS, ELSEWHERE, OPTIMIZERS, Algorithm, ServerOptimizer
from mpifl.common import InputError, Table, read_toml
from mpifl.learning.metrics import ACCURACY, MetricInfo, names_in
from mpifl.learning.tasks import TASKS, Task
from mpifl.run.job.fits import IN_EFFECT
from mpifl.run.job.job_checks import check_fits
from mpifl.run.job.naming import make_named
from mpifl.run.job.outline import Outline, flat
from mpifl.run.job.tables import RULE_NAMES, CohortTable, Evaluate
from mpifl.run.job.uncalled_methods import called_otherwise, uncalled
from mpifl.run.job.validation import validated
from mpifl.silo import UNSPLIT
from mpifl.silo.steps import LOCAL, LocalTraining

_SHARED = ("local", "server_optimizer", "task", "split", "clock", "single_scores")
"""Tables of a job that are fields of every algorithm."""
_PLUGGABLE = ("task", "algorithm", "server_optimizer")
"""Tables whose `name` may be the user's own code, imported when the job is read."""
_ELSEWHERE = ELSEWHERE | {
    f"{fed}{name}{mean}": f"'fedavg' with [aggregation] rule = '{name}' is what you mean; "
    for name in RULE_NAMES
    for fed in ("", "fed")
    for mean in ("", "mean", "avg")
}
"""Advice for names of algorithms from elsewhere. Rules are algorithms there, such as FedMedian."""

_NO_PARTS = (
    "[local] straggler_chance: one epoch or step has no parts; use more epochs, or steps in their place"
)
_ALL_CHOSEN = (
    "[cohort] select = 'power-of-choice': by fraction = 1 all silos take part, and none is chosen; "
    "use a smaller fraction"
)
_ONE_RATE = "a round has one step, whose rate is lr; give steps and schedule_rounds to span several rounds"
_NOTHING_KEPT = (
    "[attack] keep_optimizer_state = true: by [local] silos keep none; use it there, or leave it out"
)
_TWICE = (
    "drawn by their examples and weighted by them, silos count about as the square of these; "
    "use weights = 'uniform' to have them count once, as in FedProx"
)


class Job(Outline):
    """A whole job file."""

    @property
    def plugins(self) -> dict[str, str]:
        """The names of the user's own code in the job, by table or `table.key`."""
        named = {"model": self.model.name, **self._halves}
        named |= {key: str(getattr(self, key).get("name")) for key in _PLUGGABLE}
        named |= {f"task.{key}": name for key, name in names_in(self.task).items()}
        return {key: name for key, name in named.items() if ":" in name}

    @property
    def _halves(self) -> dict[str, str]:
        """The names of the models in `[split]`, top and bottoms, by their keys."""
        split = self.split or UNSPLIT
        tables = {f"bottoms.{silo}": table for silo, table in split.bottoms.items()}
        tables |= {} if split.top == "none" else {"top": split.top}
        return {f"split.{key}": str(table.get("name")) for key, table in tables.items()}

    def build_algorithm(self) -> Algorithm:
        """Return the algorithm with its hyperparameters, its server optimizer and the task.

        Raises:
            InputError: there is no such algorithm, server optimizer or task, or it has no such key.
        """
        return _build_algorithm(self, "the job")

    def build_task(self) -> Task:
        """Return the task.

        Raises:
            InputError: there is no such task, or it has no such key.
        """
        return _build_task(self, "the job")

    @property
    def secure(self) -> bool:
        """Whether sums are masked; then data that would reveal masked values stays at the sites."""
        return self.security is not None and self.security.masks

    def idle(self, algorithm: Algorithm) -> list[str]:
        """Return warnings: keys without effect with this algorithm, and combinations that nobody may mean."""
        local, cohort, said = self.local, self.cohort, []
        said += [f"[algorithm] name = '{self.algorithm['name']}': {one}" for one in uncalled(type(algorithm))]
        if ignored := self._given_in_vain(algorithm):
            name, keys = self.algorithm["name"], ", ".join(ignored)
            said.append(f"[algorithm] name = '{name}': does not use {keys}")
        whole = max(local.epochs_by_silo or [local.epochs or local.steps or 1])
        if local.straggler_chance and whole == 1 and "local.straggler_chance" not in algorithm.ignores:
            said.append(_NO_PARTS)
        twice = cohort.drawn_by == cohort.weights == "examples" and cohort.fraction < 1
        if twice and "cohort.weights" not in algorithm.ignores:
            said.append(f"[cohort] select = '{cohort.select}': {_TWICE}")
        if cohort.select == "power-of-choice" and cohort.fraction == 1:
            said.append(_ALL_CHOSEN)
        if local.one_step and local.schedule != "constant" and not local.warmup:
            said.append(f"[local] schedule = '{local.schedule}': {_ONE_RATE}")
        if self.attack.keep_optimizer_state and not local.keep_optimizer_state:
            said.append(_NOTHING_KEPT)
        return said + (self.security.idle if self.security is not None else [])

    def _given_in_vain(self, algorithm: Algorithm) -> list[str]:
        tables = {"local": LocalTraining(), "cohort": CohortTable(), "evaluate": Evaluate()}
        given = flat({name: getattr(self, name).model_dump() for name in tables})
        usual = flat({name: table.model_dump() for name, table in tables.items()})
        in_sum = {f"local.{key}" for key in LOCAL.idle("sum")}
        ignored = in_sum if IN_EFFECT["sum"](self) else algorithm.ignores
        return sorted(key for key in ignored if given.get(key) not in (None, usual.get(key)))


def read_job(path: Path, overrides: Sequence[str] = ()) -> Job:
    """Read a job file and apply overrides such as `local.lr=0.05`; defaults are filled in.

    Raises:
        InputError: with one line that names the file, the key and the given value, and gives advice.
    """
    return check_job(read_toml(path, overrides), str(path))


def read_kept(path: Path, named: Collection[str] = ()) -> Job:
    """Read the job of a run folder, which may come from anybody; import only code that the user has named.

    Args:
        path: The `job.toml`.
        named: The plug-ins that may be imported. If the job names others, the tables of its algorithm stay
            without defaults.

    Raises:
        InputError: as `read_job`.
    """
    return check_job(read_toml(path), str(path), set(named))


def check_job(table: Table, source: str, named: Collection[str] | None = None) -> Job:
    """Return a job's tables as a Job with all defaults, including those of hyperparameters.

    Args:
        source: The source of the tables, for the error.
        named: The plug-ins that may be imported, see `read_kept`; by default all.
    """
    job: Job = validated(Job, table, source, "")
    models = {"model", *job._halves}
    if named is not None and not {name for key, name in job.plugins.items() if key not in models} <= {*named}:
        return job
    if named is None:
        job.cohort.check_selection(source)
    algorithm = _build_algorithm(job, source)
    try:
        _check_tables(job, algorithm)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return job.model_copy(update=_completed(job, algorithm))


def check_as_read(job: Job) -> None:
    """Check that a job's tables go together; for a job that was read, `check_job` has done so already.

    Raises:
        InputError: they do not.
    """
    _check_tables(job, _build_algorithm(job, "the job"))


def _check_tables(job: Job, algorithm: Algorithm) -> None:
    _check_clip(job, algorithm)
    _check_augment(job, algorithm)
    _check_target(job, algorithm.task.main_metric)
    check_fits(job, algorithm)


def _completed(job: Job, algorithm: Algorithm) -> dict[str, Table]:
    """Return the tables of task, algorithm and server optimizer, with all fields of the named classes."""
    own = algorithm.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={*_SHARED})
    task = algorithm.task.model_dump(mode="json", by_alias=True, exclude_none=True)
    optimizer = algorithm.server_optimizer.model_dump()
    return {
        "task": {"name": job.task.get("name", "classification"), **task},
        "algorithm": {"name": job.algorithm["name"], **own},
        "server_optimizer": {"name": job.server_optimizer.get("name", "sgd"), **optimizer},
    }


def _build_algorithm(job: Job, source: str) -> Algorithm:
    optimizer: ServerOptimizer = make_named(
        base=ServerOptimizer,
        registry=OPTIMIZERS,
        table=job.server_optimizer,
        source=source,
        key="server_optimizer",
        shared={},
        usual="sgd",
    )
    shared: dict[str, Any] = {"local": job.local, "server_optimizer": optimizer}
    shared |= {"task": _build_task(job, source), "split": job.split or UNSPLIT, "clock": job.clock}
    shared["single_scores"] = not job.secure and job.privacy is None
    algorithm: Algorithm = make_named(
        base=Algorithm,
        registry=ALGORITHMS,
        table=job.algorithm,
        source=source,
        key="algorithm",
        shared=shared,
        usual="",
        elsewhere=_ELSEWHERE,
    )
    try:
        _check_methods(algorithm)
    except InputError as error:
        raise InputError(f"{source}: [algorithm] name = '{job.algorithm['name']}': {error}") from None
    return algorithm


def _build_task(job: Job, source: str) -> Task:
    task: Task = make_named(
        base=Task,
        registry=TASKS,
        table=job.task,
        source=source,
        key="task",
        shared={},
        usual="classification",
    )
    return task


def _check_clip(job: Job, algorithm: Algorithm) -> None:
    if job.aggregation.clip is not None and (why := algorithm.why_not_clipped()):
        what = f"clip = {job.aggregation.clip}: updates of {job.algorithm['name']} must stay whole"
        raise InputError(f"[aggregation] {what}: {why}; leave clip out")


def _check_augment(job: Job, algorithm: Algorithm) -> None:
    """Refuse the keys of `[data]` that change examples if the algorithm cannot train on changed ones."""
    named = {} if job.data.augment is None else {"augment": f"'{job.data.augment}'"}
    for key, value in {**named, **job.data.warp}.items():
        if why := algorithm.why_not_augmented():
            what = f"{job.algorithm['name']} {why}"
            raise InputError(f"[data] {key} = {value}: {what}; leave {key} out")


def _check_target(job: Job, metric: MetricInfo) -> None:
    """Check that a target suits the main metric."""
    evaluate = job.evaluate
    if evaluate.target_accuracy is not None and metric.name != ACCURACY.name:
        what = f"target_accuracy: the main metric is {metric.name}; use target"
        raise InputError(f"[evaluate] {what}")
    if evaluate.target is not None and metric.share and not 0 < evaluate.target <= 1:
        what = f"target = {evaluate.target:g}: {metric.name} is a share above 0 and up to 1; 0.97 is 97%"
        raise InputError(f"[evaluate] {what}")


def _check_methods(algorithm: Algorithm) -> None:
    """Check that methods can be called as a training calls them, and that `train`, if there is one, has a
    silo."""
    if said := called_otherwise(type(algorithm)):
        raise InputError(f"{type(algorithm).__name__}: {said}")
    if inspect.isfunction(getattr(type(algorithm), "train", None)):
        algorithm.work("train")
