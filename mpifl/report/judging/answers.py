"""Answers of a model as columns of a table, named after classes, labels or values."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.data import Ragged, Targets
from mpifl.data.shards import AnySpec, Split, by_path
from mpifl.learning.metrics import computed
from mpifl.learning.tasks import Task
from mpifl.report.judging.prediction_tables import FLAT, Columns


def answered(found: Tensor, y: Any, task: Task, spec: AnySpec) -> dict[str, np.ndarray]:
    """Return targets and predictions as columns, named after classes, labels or values, else numbered.

    A single target is `y`; what has more dimensions stays as it is. Without targets `y` is None.
    """
    if found.dim() > 2 or (isinstance(spec.targets, Targets) and spec.targets.ragged):
        return {**_named(y), task.answers: found.float().cpu().numpy()}
    names = (spec.targets.names if isinstance(spec.targets, Targets) else None) or ()
    columns, single = found.reshape(len(found), -1), isinstance(y, Tensor) and y.dim() > 1
    targets = _columns(y.flatten(1), "y", names) if single else _named(y)
    classes = list(spec.class_names or map(str, range(spec.classes or 0)))
    yes = spec.classes == 2 and columns.shape[1] == 1 and task.answers == "p"
    told = targets | _columns(columns, task.answers, classes[1:] if yes else names or classes)
    if getattr(task, "threshold", None) is None:
        return told
    return told | _columns((columns > task.cut_off).to(torch.int8), "answer", classes[1:] if yes else names)


def scored(columns: Columns, task: Task) -> Columns:
    """Return the score of each row by the metrics that are means over rows, float64 [m], NaN where it does
    not count, in place of columns with answers at places; other columns as they are."""
    metrics = {name: one for name, one in task.metrics().items() if getattr(one, "by_example", False)}
    p, y = columns.get(task.answers), columns.get("y")
    if not (metrics and isinstance(p, np.ndarray) and isinstance(y, np.ndarray)):
        return columns
    found = {name: np.zeros(len(y)) for name in metrics}
    for row in range(len(y)):
        answer, target = (torch.from_numpy(one[row : row + 1]) for one in (p, y))
        for name, empty in metrics.items():
            (metric := copy.deepcopy(empty)).update(answer, target.long())
            found[name][row] = computed(metric)
    return found


def unpadded(columns: dict[str, Any], examples: Split) -> Columns:
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
    """Return targets as they are: `y`, or `y_NAME` where they have names; nothing without any."""
    if y is None:
        return {}
    if isinstance(y, Tensor):
        return {"y": y.cpu().numpy()}
    return {f"y_{name}": one.cpu().numpy() for name, one in y.items()}


def _columns(values: Tensor, kind: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the columns of a matrix by their names where these are as many and all different."""
    count = values.shape[1]
    called = names if len(set(names)) == count == len(names) else [str(i) for i in range(count)]
    kept = (values.float() if values.is_floating_point() else values).cpu().numpy()
    return {f"{kind}_{name}": kept[:, i] for i, name in enumerate(called)}


def as_table(out: Path, columns: Columns, task: Task) -> Columns:
    """Return columns as a file of this name takes them: a table has scores in place of masks.

    Raises:
        InputError: it takes no such columns.
    """
    found = scored(columns, task) if out.suffix in FLAT else columns
    check_flat(out, found)
    return found


def check_flat(out: Path, columns: Columns) -> None:
    """See that each value of a row is one number or text, if the file is to be a table of such."""
    for name, column in columns.items() if out.suffix in FLAT else ():
        if column.ndim > 1:
            what = f"'{name}' has shape {list(column.shape[1:])} in each row, which no table takes"
            raise InputError(f"--out {out}: {what}; use a name that ends in .npz")
