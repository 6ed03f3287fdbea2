"""The figures of a baseline: each model on the same test rows of each silo, and what chance makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpifl.cli.baseline.planned_runs import BaselinePlan
from mpifl.cli.sweep import GridRun
from mpifl.common import rng
from mpifl.data.shards import open_shard
from mpifl.learning.metrics import MetricInfo
from mpifl.report.judging import (
    FEW,
    RowFigures,
    Trained,
    by_draws,
    by_exchanges,
    by_right_answers,
    can_tell,
    drawn,
    figures_of_rows,
)
from mpifl.report.runs import Difference, chance
from mpifl.silo.parameters import FlatModel

EXACT = "exact McNemar test, and Tango's interval"
BOOTSTRAP = "paired bootstrap over the rows, 2,000 draws"
EXCHANGED = f"{BOOTSTRAP}; p of fewer than {FEW} rows: exact test of exchanges"
BY_TEST_ROWS = (
    "The trainings were ended, or their models chosen, by scores on these same test rows, which flatters "
    "each of them; use [evaluate] split = 'valid'."
)
OF_GROUPS = "Intervals and p take rows as independent. Rows of one group are not, so both may be too small."


@dataclass(frozen=True)
class Scored:
    """What the models score on some test rows.

    Attributes:
        name: The silo, or all rows.
        rows: How many rows.
        counted: How many of them the metric counts.
        alone: By the silo's own model.
        federated: By the federated model.
        pooled: By the model of all rows, if there is one.
        difference: Federated less alone; None where it is undefined.
        p: The p of that, corrected by Holm for the number of silos.
        few: Whether no difference could be seen in so few rows.
    """

    name: str
    rows: int
    counted: int
    alone: float
    federated: float
    pooled: float | None
    difference: Difference | None
    p: float | None = None
    few: bool = False

    @property
    def seen(self) -> bool | None:
        """Whether the difference is more than chance makes of the rows; None where nobody can tell."""
        return None if self.p is None else self.p <= chance.LEVEL


@dataclass(frozen=True)
class Baseline:
    """The figures of a baseline.

    Attributes:
        metric: What is compared.
        test: The test of differences, in words.
        silos: A row for each silo.
        whole: All rows.
        left_out: By a silo's name: why it is not there.
        remarks: What is to be said against the figures.
    """

    metric: MetricInfo
    test: str
    silos: Sequence[Scored]
    whole: Scored
    left_out: dict[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class _Judged:
    """Models on the rows of one silo: federated, alone, and pooled if there is one."""

    number: int
    name: str
    models: Sequence[RowFigures]

    @property
    def rows(self) -> int:
        return self.models[0].rows

    @property
    def counted(self) -> int:
        return self.models[0].counted

    @property
    def values(self) -> list[float]:
        return [one.value() for one in self.models]

    @property
    def both_right(self) -> tuple[int, int] | None:
        """Rows that the federated model alone has right, and those that the other alone has right."""
        federated, alone = self.models[0].right, self.models[1].right
        if federated is None or alone is None:
            return None
        return int((federated & ~alone).sum()), int((alone & ~federated).sum())


def compare_models(plan: BaselinePlan) -> Baseline:
    """Score all models of a baseline whose trainings are done.

    Raises:
        InputError: a model or a shard cannot be read.
    """
    pooled, left_out = plan.pooled, dict(plan.left_out)
    shared = [_model(plan, plan.federated)]
    if pooled is not None and pooled.state == "done":
        shared.append(_model(plan, pooled))
    judged = []
    for number, task in plan.alone.items():
        name = plan.names[number]
        if task.state != "done":
            left_out[name] = f"its training alone did not come to its end; {task.log} says why"
            continue
        split = open_shard(plan.folder, plan.spec.silos[number], plan.spec)["test"]
        federated, *more = shared
        models = [figures_of_rows(*one, split) for one in (federated, _model(plan, task), *more)]
        judged.append(_Judged(number, name, models))
    info = plan.federated.metric
    exact = all(one.both_right is not None for one in judged)
    silos, whole = _of_rights(judged) if exact else _of_draws(judged, plan.job.seed)
    few = EXCHANGED if any(one.counted < FEW for one in judged) else BOOTSTRAP
    return Baseline(info, EXACT if exact else few, silos, whole, left_out, list(_remarks(plan, exact)))


def _remarks(plan: BaselinePlan, exact: bool) -> list[str]:
    found = []
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
    if any(entry.groups for entry in plan.spec.silos):
        found.append(OF_GROUPS)
    if not exact:
        found.append("All rows: the mean of the silos' figures by their rows that count.")
    return found


def _model(plan: BaselinePlan, task: GridRun) -> tuple[Trained, FlatModel]:
    trained = Trained(task.run, task.job, plan.folder, plan.spec)
    return trained, trained.model()


def _of_rights(judged: Sequence[_Judged]) -> tuple[list[Scored], Scored]:
    """Return the rows of the table where each answer is right or wrong."""
    pairs = [one.both_right or (0, 0) for one in judged]
    found = [by_right_answers(*pair, one.rows) for one, pair in zip(judged, pairs, strict=True)]
    rows = sum(one.rows for one in judged)
    whole = by_right_answers(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs), rows)
    return _silos(judged, found), _whole(judged, whole)


def _of_draws(judged: Sequence[_Judged], seed: int) -> tuple[list[Scored], Scored]:
    """Return the rows of the table for any other metric."""
    found: list[Difference | None] = []
    kept, apart = list[_Judged](), list[np.ndarray]()
    for one in judged:
        (federated, alone, *_), figures = one.values, drawn(one.models[:2], seed, one.number)
        differences = figures[:, 0] - figures[:, 1]
        found.append(by_draws(federated - alone, differences, _exact([one], [1], seed)))
        if found[-1] is not None:
            kept.append(one)
            apart.append(differences)
    if not kept:
        return _silos(judged, found), _whole([], None)
    weights, each = [one.counted for one in kept], [one.values for one in kept]
    by = float(np.average([values[0] - values[1] for values in each], weights=weights))
    whole = by_draws(by, np.average(apart, axis=0, weights=weights), _exact(kept, weights, seed))
    return _silos(judged, found), _whole(kept, whole)


def _exact(judged: Sequence[_Judged], weights: Sequence[float], seed: int) -> float | None:
    """Return the exact p of few rows; None of more, and where a figure is undefined."""
    known = all(math.isfinite(value) for one in judged for value in one.values)
    if not known or sum(one.counted for one in judged) >= FEW:
        return None
    stream = rng.numpy_stream(seed, "exchanges of rows", *(one.number for one in judged))
    return by_exchanges([one.models[:2] for one in judged], weights, stream)


def _silos(judged: Sequence[_Judged], found: Sequence[Difference | None]) -> list[Scored]:
    corrected = iter(chance.holm([one.p for one in found if one is not None]))
    tests = sum(one is not None for one in found)
    return [
        _scored(
            of.name, (of.rows, of.counted), of.values, one, None if one is None else next(corrected), tests
        )
        for of, one in zip(judged, found, strict=True)
    ]


def _whole(judged: Sequence[_Judged], found: Difference | None) -> Scored:
    """Return the row for all rows: each model's figures in the mean by the rows that count."""
    weights, means = [one.counted for one in judged], [math.nan, math.nan]
    if judged:
        means = np.average([one.values for one in judged], axis=0, weights=weights).tolist()
    rows = sum(one.rows for one in judged)
    return _scored("all rows", (rows, sum(weights)), means, found, None if found is None else found.p, 1)


def _scored(
    name: str,
    rows: tuple[int, int],
    values: Sequence[float],
    found: Difference | None,
    p: float | None,
    tests: int,
) -> Scored:
    federated, alone, *more = values
    pooled = more[0] if more else None
    few = found is not None and not can_tell(rows[1], tests)
    return Scored(name, *rows, alone, federated, pooled, difference=found, p=p, few=few)
