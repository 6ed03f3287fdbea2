"""Checks of a training before any rank starts, without MPI.

`whole` has them all, for `mpifl check`, `mpifl submit` and `mpifl train --ranks`. A training in one process
tells the same lines itself, so its checks are quick and need no torch: they compare a job's tables with their
pydantic models and with the job's schema. If something looks wrong, the whole job is checked.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpifl.cli.job_tools.shipped import jobs_folder
from mpifl.cli.plan import budgets, check_site_of
from mpifl.common import InputError, Names, ShardError, Table, lock
from mpifl.data.shards import AnySpec, FederationSpec, VerticalSpec, group_note, notes_of, read_any
from mpifl.run.job import HARMLESS, Outline, differing_keys, read_outline

if TYPE_CHECKING:
    from mpifl.run.job import Job

_NAMING = ("model", "task", "algorithm", "server_optimizer")
"""Tables whose other keys depend on their name."""
_TYPES: dict[str, Any] = {
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "string": str,
    "array": list,
    "object": dict,
    "null": type(None),
}
_OWN = re.compile(r"^([A-Za-z_]\w*)[\w.]*:\w+$")
Schema = Mapping[str, Any]


def check_beforehand(job: Path, overrides: Sequence[str], run: Path, resume: bool, force: bool) -> None:
    """Check quickly, for a training in this process, that it would not be refused at its start.

    Args:
        job: The job file.
        overrides: Keys of the job to change, such as `local.lr=0.05`.
        run: The run folder.
        resume: Whether an existing run continues.
        force: Whether it may continue with a changed job.

    Raises:
        InputError: the job would be refused, with the same line as from the ranks.
    """
    outline = read_outline(job, overrides)
    if not (_is_suspect(outline) or _differs(outline, run, resume)):
        lock.check(run)
        spec = read_any(Path(outline.shards))
        weights = outline.model.weights
        if not _misfits(outline, spec) and (weights is None or Path(weights).is_file()):
            return
    check_whole(job, overrides, run, resume, force)


def check_whole(
    job: Path, overrides: Sequence[str], run: Path, resume: bool, force: bool, elsewhere: bool = False
) -> Checked:
    """Check all that can be told without ranks, with torch and all code that a job names.

    Args:
        job, overrides, run, resume, force: As for `check_beforehand`.
        elsewhere: Whether silos' files lie on the ranks' machines only.

    Returns:
        The job, its federation, and what the user is to know.

    Raises:
        InputError: the job would be refused; the first of its problems.
    """
    checked = whole(job, overrides, run, resume, force, elsewhere)
    if checked.problems:
        raise InputError(checked.problems[0])
    return checked


@dataclass
class Checked:
    """What the checks of a job found.

    Attributes:
        problems: A line for each reason why the training would be refused.
        notes: A line for each thing that the user is to know.
        at_start: A line for each thing that the training tells, too, before its first round.
    """

    job: Job
    spec: AnySpec
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    at_start: list[str] = field(default_factory=list)


def whole(
    job: Path,
    overrides: Sequence[str],
    run: Path,
    resume: bool,
    force: bool,
    elsewhere: bool,
    *,
    tries: bool = False,
) -> Checked:
    """Return what all checks without ranks find. If it `tries`, the user's own code runs on a few rows.

    Raises:
        InputError: the job or the shards' `federation.json` cannot be read, or do not fit each other.
    """
    read_outline(job, overrides)  # so that a wrong key is told before torch is imported
    from mpifl.run.folder import check_run
    from mpifl.run.job import read_job, uncalled
    from mpifl.training.beforehand import validate_job
    from mpifl.wings import OVER_SITES, wings_of

    at_sites = os.path.lexists(run / OVER_SITES)  # a coordinator has the shards of no silo
    resolved, source = read_job(job, overrides), str(job)
    algorithm = type(resolved.build_algorithm())
    spec, own = validate_job(resolved, source, wings_of), uncalled(algorithm)
    found = Checked(resolved, spec, notes=[f"{source}: {one}" for one in own])
    found.notes += [*_unscored(spec, fitted=algorithm.seedless), *notes_of(spec.source, "groups")]
    here: set[int] = {*range(len(spec.silos))}
    looks: list[Callable[[], object]] = [
        lambda: _look_for_files(found, here, elsewhere, at_sites),
        lambda: lock.check(run),
        lambda: check_run(run, resolved, resume, force, spec),
        lambda: None if at_sites else check_site_of(resolved, here),
        lambda: None if _is_refused(found) else _plan(found, source),
        lambda: found.notes.extend([*_of_groups(resolved, spec), *_of_shards(resolved, spec, here)]),
        lambda: found.notes.extend([] if at_sites or _is_refused(found) else budgets(resolved, spec, here)),
        lambda: _try(found, here) if tries and not elsewhere and not at_sites else None,
    ]
    for look in looks:
        try:
            look()
        except InputError as error:
            found.problems.append(str(error))
    return found


def _plan(found: Checked, source: str) -> None:
    """Let wings plan the training, and note what it will tell at its start."""
    from mpifl.training.beforehand import plan_wings, told_at_start
    from mpifl.wings import wings_of

    plan_wings(found.job, found.spec, source, wings_of(found.job))
    found.at_start += told_at_start(found.job, found.spec, source, wings_of)


def _is_refused(found: Checked) -> bool:
    """Tell whether a private job is refused already: then no noise is sought for it, which takes seconds."""
    return found.job.privacy is not None and bool(found.problems)


def _unscored(spec: AnySpec, *, fitted: bool) -> list[str]:
    """Say that neither the server nor a silo holds rows out, and what would do, unless all are fitted."""
    entries = [*spec.silos, *filter(None, [spec.test])] if isinstance(spec, FederationSpec) else []
    held = any(entry.examples.get(split) for entry in entries for split in ("test", "valid"))
    to_do = "all of them are fitted" if fitted else "make shards with --test 0.2"
    return [f"nothing will be scored: no rows are held out; {to_do}"] if entries and not held else []


def summary_of(found: Checked) -> str:
    """Return what would be trained: algorithm, model, silos and rounds."""
    job, silos = found.job, len(found.spec.silos)
    counts = f"{silos} silo{'s' * (silos > 1)}, {job.rounds} round{'s' * (job.rounds > 1)}"
    return f"{job.algorithm['name']}, {job.model.name}, {counts}"


def _look_for_files(found: Checked, here: set[int], elsewhere: bool, at_sites: bool) -> None:
    """Look for the shards' files, and keep in `here` the silos whose files lie on this machine. Where silos
    are `at_sites`, only the server's own files must be here."""
    from mpifl.training.beforehand import broken_files, notes_on_broken

    try:
        broken = broken_files(found.job, found.spec, elsewhere)
        here -= broken.keys()
        if not elsewhere and not at_sites:
            names = Names([entry.name for entry in found.spec.silos])
            found.notes += notes_on_broken(found.job, broken, names)
    except InputError as error:
        advised = "is missing" in str(error) and not at_sites
        absent = "; if the ranks' machines have it, give --shards-elsewhere" * advised
        raise InputError(f"{error}{absent}") from None


def _of_groups(job: Job, spec: AnySpec) -> list[str]:
    """Return a line on groups of examples, if noise is to protect single examples."""
    from mpifl.run.job import is_silo_level

    private = job.privacy is not None and not is_silo_level(job)
    return [f"[privacy] {note}"] if private and (note := group_note(Path(job.shards), spec)) else []


def _try(found: Checked, here: Collection[int]) -> None:
    """Try an algorithm and metrics of the user's own on a few rows of a silo that lies here."""
    from mpifl.training.beforehand import check_first_ask, check_first_score

    with suppress(ShardError):
        if isinstance(found.spec, FederationSpec):
            check_first_ask(found.job, found.spec, here)
            check_first_score(found.job, found.spec, here)


def _of_shards(job: Job, spec: AnySpec, here: Collection[int]) -> list[str]:
    """Return lines on an outcome that may be inverted at a site. If all shards lie here, on columns in
    another unit, codes for a missing value, odd numbers, and on ids that are trained on and held out."""
    from data_prep.dataset import codes_told, ids_told, inverted_told, odd_told, units_told

    if not isinstance(spec, FederationSpec):
        return []
    told, folder = inverted_told(spec), Path(job.shards)
    looks = (units_told, codes_told, odd_told, ids_told) if len(here) == len(spec.silos) else ()
    with suppress(ShardError):  # which is told where files are looked for
        told += [line for look in looks for line in look(folder, spec)]
    return told


def _is_suspect(outline: Outline) -> bool:
    """Return whether a job does not fit the schema of jobs, or names code or packages that are not found."""
    schema = json.loads((jobs_folder() / "job.schema.json").read_text("utf-8"))
    told = outline.model_dump(mode="json", exclude_none=True)
    for table in _NAMING:
        told[table] = {**schema["properties"][table].get("default", {}), **told[table]}
    return not _fits(told, schema, schema["$defs"]) or any(not _found(name) for name in _needed(told))


def _fits(value: Any, schema: Schema, defs: Schema) -> bool:
    """Return whether a value fits a schema, for the parts of JSON schema that the schema of jobs uses."""
    if "$ref" in schema:
        return _fits(value, defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema and not any(_fits(value, one, defs) for one in schema["anyOf"]):
        return False
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if isinstance(value, dict):
        return _fits_inside(value, schema, defs)
    if isinstance(value, list):
        return all(_fits(one, schema.get("items", {}), defs) for one in value)
    return _in_bounds(value, schema)


def _fits_inside(table: Table, schema: Schema, defs: Schema) -> bool:
    takes, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not {*schema.get("required", [])} <= {*table}:
        return False
    inner = {key: takes.get(key, more) for key in table}
    return all(one if isinstance(one, bool) else _fits(table[key], one, defs) for key, one in inner.items())


def _in_bounds(value: Any, schema: Schema) -> bool:
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if not isinstance(value, int | float):
        return True
    low, high = schema.get("minimum", -float("inf")), schema.get("maximum", float("inf"))
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    return low <= value <= high and (above is None or value > above) and (below is None or value < below)


def _needed(told: Any) -> Iterator[str]:
    """Yield the packages of the user's own code that a job names, and its trackers' packages."""
    if isinstance(told, str) and (own := _OWN.match(told)):
        yield own[1]
    for one in told.values() if isinstance(told, dict) else told if isinstance(told, list) else ():
        yield from _needed(one)
    if isinstance(told, dict):
        yield from (name for name in ("tensorboard", "mlflow") if told.get(name) is True)


def _found(package: str) -> bool:
    """Return whether a package could be imported from PYTHONPATH or this folder, without importing it."""
    return package in sys.modules or PathFinder.find_spec(package, ["", *sys.path]) is not None


def _differs(outline: Outline, run: Path, resume: bool) -> bool:
    """Return whether the run folder holds a run that may belong to another job."""
    path = run / "job.toml"
    if not path.exists():
        return False
    if not resume:
        return True
    kept = read_outline(path)
    filled = {table: {**getattr(kept, table), **getattr(outline, table)} for table in _NAMING[1:]}
    return bool(differing_keys(kept, outline.model_copy(update=filled), HARMLESS))


def _misfits(outline: Outline, spec: AnySpec) -> bool:
    """Return whether a job cannot fit the folder's silos."""
    splits = {split for entry in spec.silos for split, examples in entry.examples.items() if examples}
    try:
        outline.cohort.check(len(spec.silos))
        outline.evaluate.check(splits)
    except InputError:
        return True
    is_split = isinstance(spec, VerticalSpec)
    return {is_split} != {outline.split is not None, outline.algorithm.get("name") == "splitnn"}
