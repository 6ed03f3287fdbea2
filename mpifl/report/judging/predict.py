"""What the model of a run says of every example of some shards."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpifl.common import InputError, suggested
from mpifl.data import Array, rows
from mpifl.data.batches import Batches
from mpifl.data.shards import (
    SPLITS,
    FederationSpec,
    Provenance,
    ShardEntry,
    Split,
    by_path,
    encoding_of,
    open_shard,
    provenance_of,
    texts_of,
)
from mpifl.learning.tasks import Task
from mpifl.report.judging.answers import answered, as_table, check_flat, unpadded
from mpifl.report.judging.given_shards import PredictedShards, check_fit, shards_at, spec_of
from mpifl.report.judging.mask_files import MaskFiles
from mpifl.report.judging.prediction_tables import Append, Columns, check_ending, written
from mpifl.report.judging.row_order import RowOrder, SplitRows, in_order
from mpifl.report.judging.trained import Which, module_of, read_job_of, told_model
from mpifl.run.job import Job
from mpifl.silo import as_fits
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import EvaluationBatch


def predict_run(
    run: Path,
    data: Path,
    out: Path,
    trusted: Collection[str] = (),
    last: Which = False,
    split: str | None = None,
    force: bool = False,
    masks: MaskFiles | None = None,
    threshold: float | None = None,
) -> None:
    """Write a table with a row for each example of some shards: what the model of a run says of it.

    Args:
        data: A shard folder, or one shard beside the `federation.json` or the entry that describes it.
        out: The file, `.parquet`, `.csv` or `.npz`.
        trusted: The plug-ins that the run's job may import.
        last: Take the model of the last round, or a silo's own.
        split: Predict this split alone; by default all of them.
        force: Take shards that another spec has cut.
        masks: Takes the predicted masks of images.
        threshold: The probability above which it answers yes; by default that of its job.

    Raises:
        InputError: there is no such model, the examples have another shape than it takes or were cut by
            another spec, a shard cannot be read, or the file not written.
    """
    check_asked(out, split)
    job, shards = read_job_of(run, trusted, threshold=threshold), shards_at(data)
    spec = spec_of(run, job) or shards.spec
    check_fit(run, data, shards.spec, spec, force)
    task = job.build_algorithm().for_federation(spec).task
    model = FlatModel(module_of(run, job, spec, last))
    told_model(run, job, last)
    rows_of, begun = _rows_of(shards, split), 0
    if masks is not None:
        masks.expect(rows_of.about(np.arange(len(rows_of.order))))
        masks.take_values(spec.source)
        _tell_sizes(shards.spec)
    with table_of(out, data, split) as append, in_order(rows_of, out, append) as take:
        for columns, x in _predicted(model, task, shards, split, job.evaluate.batch_size):
            take(as_table(out, columns, task))
            if masks is not None:
                about, true = rows_of.about(np.arange(begun, begun := begun + rows(x))), columns.get("y")
                masks.write(about, _answers(columns, task), x, true if isinstance(true, np.ndarray) else None)


def _tell_sizes(spec: FederationSpec) -> None:
    """Say that images were resized for their shards, which do not know in which sizes they were given."""
    match encoding_of(spec.source):
        case {"kind": "images", "resize": True, "size": [int(height), int(width)]}:
            to_do = "--images FOLDER in place of --data writes each in the size of its image"
            print(f"note: masks of shards have the size of the training, {width}x{height}; {to_do}")


@contextlib.contextmanager
def table_of(out: Path, data: Path, split: str | None) -> Iterator[Append]:
    """Lend what appends predictions to a file; say at the end how many there are.

    Args:
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
        raise InputError(f"--split {split}: is not one of {', '.join(SPLITS)}{suggested(split, SPLITS)}")


@torch.no_grad()
def predict_pieces(
    run: Path,
    job: Job,
    spec: FederationSpec,
    pieces: Iterable[tuple[Array, Provenance]],
    out: Path,
    data: Path,
    last: Which = False,
    masks: MaskFiles | None = None,
) -> None:
    """Write a table with a row for each of some examples without targets, in their order.

    Arguments are those of `predict_run`, and these:

    Args:
        job: The run's job.
        spec: What it was trained on.
        pieces: Features [m, *shape] as shards store them, perhaps by name, and where they were given.
        data: Where the examples are from, for the error.

    Raises:
        InputError: there is no such model, there are no examples, or the file cannot be written.
    """
    task = job.build_algorithm().for_federation(spec).task
    model = FlatModel(module_of(run, job, spec, last))
    told_model(run, job, last)
    module, size = model.module.eval(), job.evaluate.batch_size
    with table_of(out, data, None) as append:
        for x, given in pieces:
            _check_shape(run, data, x, spec)
            many, row = len(next(iter(by_path("x", x).values()))), 0
            examples = Split(x, np.zeros(many, np.int64))
            batches = Batches(examples, spec.features, model.device)
            for batch, _ in batches.in_order(_fitting(model, task, batches, size)) if many else ():
                found = task.predict(task.outputs(module, batch))
                here = given.take(np.arange(row, row + len(found)))
                about: Columns = {} if here.rows is None else {"row": here.rows}
                about = {**about, **({} if here.ids is None else {"id": texts_of(here.ids)})}
                columns = unpadded(answered(found, None, task, spec), examples[row : row + len(found)])
                append({**about, **columns})
                if masks is not None:
                    masks.write(about, _answers(columns, task), batch)
                row += len(found)


def _check_shape(run: Path, data: Path, x: Array, spec: FederationSpec) -> None:
    """Refuse examples of another shape than the model takes."""
    for path, one in by_path("x", spec.features).items():
        found, wanted = list(by_path("x", x)[path].shape[1:]), list(one.shape)
        if not one.ragged and found != wanted:
            what = f"features of shape {found}, the model of {run} takes {wanted}"
            raise InputError(f"{data}: {what}; convert them to that shape")


def _answers(columns: Columns, task: Task) -> np.ndarray:
    """Return what a model answers at each place; an empty array where it answers numbers or classes."""
    return np.asarray(columns.get(task.answers, np.zeros((0, 0))))


@torch.no_grad()
def _predicted(
    model: FlatModel, task: Task, shards: PredictedShards, wanted: str | None, size: EvaluationBatch
) -> Iterator[tuple[Columns, Any]]:
    """Yield the predictions of all shards, so many rows at a time, and the model's inputs."""
    module = model.module.eval()
    for entry in shards.entries.values():
        shard = open_shard(shards.folder, entry, shards.spec)
        for split in _splits_of(entry, wanted):
            examples = shard[split]
            batches, row = Batches(examples, shards.spec.features, model.device), 0
            for x, y in batches.in_order(_fitting(model, task, batches, size)):
                found, many = task.predict(task.outputs(module, x)), rows(y)
                columns = answered(found, y, task, shards.spec)
                yield unpadded(columns, examples[row : row + many]), x
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
