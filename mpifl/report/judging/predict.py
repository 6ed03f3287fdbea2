"""What the model of a run says of every example of some shards."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.common import InputError, Names, suggested
from mpifl.data import Ragged, Targets, each, rows
from mpifl.data.batches import Batches
from mpifl.data.shards import (
    SPLITS,
    AnySpec,
    FederationSpec,
    ShardEntry,
    Split,
    by_path,
    open_shard,
    provenance_of,
    read_federation,
    read_spec,
)
from mpifl.learning.tasks import Task
from mpifl.report.judging.prediction_tables import FLAT, Append, Columns, check_ending, written
from mpifl.report.judging.row_order import RowOrder, SplitRows, in_order
from mpifl.report.judging.trained import module_of, read_job_of
from mpifl.report.runs import read_shards
from mpifl.run.folder import describe, read_environment, same_data
from mpifl.run.job import Job
from mpifl.silo import as_fits
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import EvaluationBatch

FITTED = "cut the table by the spec of the training as `data-prep fit` states it"
"""What helps where a table's columns became other features than those of the training."""


@dataclass(frozen=True)
class PredictedShards:
    """The shards that are to be predicted.

    Attributes:
        folder: Where they lie.
        spec: What they have in common.
        entries: Each by the silo's name.
    """

    folder: Path
    spec: FederationSpec
    entries: dict[str, ShardEntry]


def predict_run(
    run: Path,
    data: Path,
    out: Path,
    trusted: Collection[str] = (),
    best: bool = False,
    split: str | None = None,
) -> None:
    """Write a table with a row for each example of some shards: what the model of a run says of it.

    Args:
        run: The run folder.
        data: A shard folder, or one shard beside the `federation.json` or the entry that describes it.
        out: The file, `.parquet`, `.csv` or `.npz`.
        trusted: The plug-ins that the run's job may import.
        best: Take the model of the best round.
        split: Predict this split alone; by default all of them.

    Raises:
        InputError: there is no such model, the examples have another shape than it takes, a shard cannot be
            read, or the file not written.
    """
    check_asked(out, split)
    job, shards = read_job_of(run, trusted), _shards_at(data)
    spec = _spec_of(run, job, shards.spec)
    found, wanted = (each(lambda one: list(one.shape), one.features) for one in (shards.spec, spec))
    if not _fit(shards.spec, spec):
        cut = "" if spec.feature_names is None else f"; {FITTED}"
        raise InputError(f"{data}: features of shape {found}, the model of {run} takes {wanted}{cut}")
    check_names(data, shards.spec.feature_names, spec.feature_names)
    task = job.build_algorithm().for_federation(spec).task
    model = FlatModel(module_of(run, job, spec, best))
    with table_of(out, data, split) as append, in_order(_rows_of(shards, split), out, append) as take:
        for columns in _predicted(model, task, shards, split, job.evaluate.batch_size):
            check_flat(out, columns)
            take(columns)


@contextlib.contextmanager
def table_of(out: Path, data: Path, split: str | None) -> Iterator[Append]:
    """Lend what appends predictions to a file; say at the end how many there are.

    Args:
        out: The file.
        data: What is predicted, for the error.
        split: The split that alone is wanted.

    Raises:
        InputError: the file cannot be written, or there are none.
    """
    rows = 0

    def take(columns: Columns) -> None:
        nonlocal rows
        check_flat(out, columns)
        append(columns)
        rows += len(next(iter(columns.values())))

    with written(out) as append:
        yield take
        if not rows:
            of, own = f" of a split {split!r}" if split else "", data / "test.h5"
            to_do = (
                f"; the server's are predicted by --data {own}" if split == "test" and own.is_file() else ""
            )
            raise InputError(f"{data}: has no examples{of}{to_do}")
    print(f"predictions: {out}, {rows:,} rows")


def check_asked(out: Path, split: str | None) -> None:
    """See that a table can be written to a file of this name, and that there is such a split.

    Raises:
        InputError: it cannot, or is none.
    """
    check_ending(out)
    if split is not None and split not in SPLITS:
        raise InputError(f"--split {split}: is none of {', '.join(SPLITS)}{suggested(split, SPLITS)}")


def _fit(given: FederationSpec, taken: FederationSpec) -> bool:
    """Whether examples have the shape that a model takes; ragged ones may be shorter."""
    found, wanted = (by_path("x", spec.features) for spec in (given, taken))
    return found.keys() == wanted.keys() and all(
        found[path].ragged == one.ragged
        and found[path].shape[one.ragged :] == one.shape[one.ragged :]
        and (not one.ragged or found[path].shape[0] <= one.shape[0])
        for path, one in wanted.items()
    )


def check_names(data: Path, given: Sequence[str] | None, taken: Sequence[str] | None) -> None:
    """Refuse a table's columns that are called otherwise than those that a model has learned from.

    Raises:
        InputError: one is.
    """
    for column, (found, learned) in enumerate(zip(given or (), taken or (), strict=False)):
        if found != learned:
            raise InputError(f"{data}: column {column} is '{found}', the model learned '{learned}'; {FITTED}")


def _shards_at(data: Path) -> PredictedShards:
    """Return the shards of a folder, or the one that is named."""
    if not data.is_file():
        spec = read_federation(data)
        return PredictedShards(data, spec, _by_name(spec.silos))
    for beside in (data.with_name("federation.json"), data.with_suffix(".json")):
        if beside.is_file():
            spec = read_spec(beside)
            entries = {**_by_name(spec.silos), **{e.name: e for e in (spec.test, spec.public) if e}}
            if named := {name: entry for name, entry in entries.items() if entry.file == data.name}:
                return PredictedShards(data.parent, spec, named)
    what = f"neither federation.json nor {data.with_suffix('.json').name} beside it says what it holds"
    raise InputError(f"{data}: {what}; name a shard folder, as `data-prep partition` makes of any data")


def _by_name(entries: Sequence[ShardEntry]) -> dict[str, ShardEntry]:
    names = Names([entry.name for entry in entries])
    return {names[i]: entry for i, entry in enumerate(entries)}


def _spec_of(run: Path, job: Job, other: FederationSpec) -> FederationSpec:
    """Return what the run was trained on; what is to be predicted where that cannot be read here."""
    environment = read_environment(run)
    with contextlib.suppress(InputError):
        _, spec = read_shards(job.shards, environment)
        if isinstance(spec, FederationSpec) and same_data(environment.get("data", {}), describe(spec)):
            return spec
    return other


@torch.no_grad()
def _predicted(
    model: FlatModel, task: Task, shards: PredictedShards, wanted: str | None, size: EvaluationBatch
) -> Iterator[Columns]:
    """Yield the predictions of all shards, so many rows at a time."""
    module = model.module.eval()
    for entry in shards.entries.values():
        shard = open_shard(shards.folder, entry, shards.spec)
        for split in _splits_of(entry, wanted):
            examples = shard[split]
            batches, row = Batches(examples, shards.spec.features, model.device), 0
            for x, y in batches.in_order(_fitting(model, task, batches, size)):
                found, many = task.predict(task.outputs(module, x)), rows(y)
                columns = answered(found, y, task, shards.spec)
                yield _unpadded(columns, examples[row : row + many])
                row += many


def _splits_of(entry: ShardEntry, wanted: str | None) -> list[str]:
    """Return the splits of a shard that are predicted, in their order."""
    return [split for split in SPLITS if wanted in (None, split) and entry.examples.get(split)]


def _rows_of(shards: PredictedShards, wanted: str | None) -> RowOrder:
    """Return whose the predictions of all shards are, in the order in which these come."""
    parts, by_sites = [], shards.spec.scheme.get("name") == "import"
    for number, (name, entry) in enumerate(shards.entries.items()):
        given = provenance_of(shards.folder, entry)
        for split in _splits_of(entry, wanted):
            numbering = number if by_sites else 0
            parts.append(SplitRows(name, split, numbering, entry.examples[split], given.get(split)))
    return RowOrder(parts)


def _fitting(model: FlatModel, task: Task, batches: Batches, size: EvaluationBatch) -> int:
    """Return how many examples memory takes at a time."""

    def first(size: int) -> int:
        x, _ = next(batches.in_order(size))
        task.predict(task.outputs(model.module, x))
        return size

    return as_fits(model, size, first) if size == "auto" else size


def answered(found: Tensor, y: Any, task: Task, spec: AnySpec) -> dict[str, np.ndarray]:
    """Return targets and predictions as columns, named after classes, labels or values, else numbered.

    A single target is `y`; what has more dimensions stays as it is.
    """
    if found.dim() > 2 or (isinstance(spec.targets, Targets) and spec.targets.ragged):
        return {**_named(y), task.answers: found.float().cpu().numpy()}
    names = (spec.targets.names if isinstance(spec.targets, Targets) else None) or ()
    columns, single = found.reshape(len(found), -1), isinstance(y, Tensor) and y.dim() > 1
    targets = _columns(y.flatten(1), "y", names) if single else _named(y)
    classes = list(spec.class_names or map(str, range(spec.classes or 0)))
    yes = spec.classes == 2 and columns.shape[1] == 1 and task.answers == "p"
    return targets | _columns(columns, task.answers, classes[1:] if yes else names or classes)


def _unpadded(columns: dict[str, Any], examples: Split) -> Columns:
    """Return columns with what belongs to rows of ragged arrays as ragged arrays: no row is padding.

    Targets are as they were stored. Answers at as many places as a ragged array has in this batch are those
    at its rows, [places, ..., classes].
    """
    y = {("y" if path == "y" else f"y_{path[2:]}"): one for path, one in by_path("y", examples.y).items()}
    ragged = {name: one for name, one in {**y, **by_path("x", examples.x)}.items() if isinstance(one, Ragged)}
    found = {}
    for name, column in columns.items():
        for of, one in ragged.items():
            at = 1 if name == of or column.ndim == 2 else 2
            longest = max(1, int(one.lengths.max()))
            if (name == of or name not in y) and column.ndim > at and column.shape[at] == longest:
                inside = np.arange(longest) < one.lengths[:, np.newaxis]
                rows = np.moveaxis(column, 1, -1) if at == 2 else column
                column = Ragged.flat(rows[inside], one.lengths)
                break
        found[name] = column
    return found


def _named(y: Any) -> dict[str, np.ndarray]:
    """Return targets as they are: `y`, or `y_NAME` where they have names."""
    if isinstance(y, Tensor):
        return {"y": y.cpu().numpy()}
    return {f"y_{name}": one.cpu().numpy() for name, one in y.items()}


def _columns(values: Tensor, kind: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the columns of a matrix by their names where these are as many and all different."""
    count = values.shape[1]
    called = names if len(set(names)) == count == len(names) else [str(i) for i in range(count)]
    kept = (values.float() if values.is_floating_point() else values).cpu().numpy()
    return {f"{kind}_{name}": kept[:, i] for i, name in enumerate(called)}


def check_flat(out: Path, columns: Columns) -> None:
    """See that each value of a row is one number or text, if the file is to be a table of such."""
    for name, column in columns.items() if out.suffix in FLAT else ():
        if column.ndim > 1:
            what = f"'{name}' has shape {list(column.shape[1:])} in each row, which no table takes"
            raise InputError(f"--out {out}: {what}; take a name that ends in .npz")
