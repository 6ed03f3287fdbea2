"""A trial of metrics of the user's own before round 1: on the model as it begins, and on a few rows."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from mpifl.common import InputError, Names, one_line
from mpifl.data.batches import Batches
from mpifl.data.shards import FederationSpec, open_shard
from mpifl.learning.metrics import Metric, computed, pack_states, update_metrics
from mpifl.learning.tasks import Task
from mpifl.run.job import Job
from mpifl.training.beforehand.lent_models import models_of

ROWS = 4
"""Rows that are scored."""


def check_first_score(job: Job, spec: FederationSpec, here: Collection[int]) -> None:
    """Score a few rows of a silo by each metric of the user's own, as `[task] metrics` or a task of their own
    names them.

    Args:
        job: The job; nothing is tried of metrics of the package.
        spec: The shards.
        here: The silos whose shards can be read here; without any nothing is tried.

    Raises:
        InputError: a metric failed; the line names its file and line.
    """
    if not here or not any(key == "task" or key.startswith("task.metrics") for key in job.plugins):
        return
    algorithm, silo = job.build_algorithm().for_federation(spec), min(here)
    entry, task = spec.silos[silo], algorithm.task
    shard = open_shard(Path(job.shards), entry, spec, checksum=False)
    held = (split for split in ("test", "valid", "train") if entry.examples.get(split))
    if (split := next(held, None)) is None:
        return
    rows = shard[split][:ROWS]
    models = models_of(job, spec, algorithm, torch.device("cpu"), is_reporter=False)
    model = models[algorithm.architecture_of(silo)]
    with torch.no_grad():
        x, y = next(Batches(rows, spec.features, model.device).in_order(ROWS))
        outputs = task.outputs(model.module.eval(), x)
    called = Names([one.name for one in spec.silos])[silo]
    for name, metric in task.metrics().items():
        own = not type(metric).__module__.startswith("mpifl.")
        if own and (fault := _fault(metric, task, outputs, y)):
            where = f"[task] metrics: '{name}' ({type(metric).__name__})"
            raise InputError(f"{where} failed on {len(rows)} rows of silo {called}: {fault}")


def _fault(metric: Metric, task: Task, outputs: Any, y: Any) -> str:
    """Say what is wrong with a metric, and where; "" if nothing is."""
    try:
        update_metrics([metric], task, outputs, y)
        pack_states({"": metric})
        computed(metric)
    except Exception as error:  # the user's code may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = one_line(str(error).strip().splitlines()[0] if str(error).strip() else "")
        said = f"{type(error).__name__}: {what}" if what else type(error).__name__
        return f"{said} ({last.filename}, line {last.lineno})"
    return ""
