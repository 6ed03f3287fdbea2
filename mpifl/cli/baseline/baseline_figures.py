"""The figures of a baseline: each model on the same test rows of each silo, and what chance makes of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from mpifl.cli.baseline.judged_models import JudgedSilo
from mpifl.cli.baseline.planned_runs import (
    BaselinePlan,
    ended_by_patience,
    remarks_on,
    unlearnt_by_patience,
)
from mpifl.cli.sweep import GridRun
from mpifl.common import InputError, rng
from mpifl.data.shards import groups_of, open_shard
from mpifl.learning.metrics import MetricInfo
from mpifl.report.judging import (
    FEW,
    Exchanged,
    Trained,
    by_draws,
    drawn,
    exchanged,
    exchanged_in_mean,
    fewest,
    figures_of_rows,
    spread,
)
from mpifl.report.runs import Difference, chance
from mpifl.run.folder import number, read_metrics
from mpifl.silo.parameters import FlatModel

WIDENED = "widened to 0 where that test sees no difference"
EXACT = f"paired: exact McNemar test, and Tango's interval, {WIDENED}"
BOOTSTRAP = "paired bootstrap over the rows, 2,000 draws"
BY_GROUPS = "paired bootstrap over the groups of rows, 2,000 draws"
EXCHANGED = (
    f"; as a silo has fewer than {FEW} {{what}}, p is of the test of exchanges, and the interval is {WIDENED}"
)


@dataclass(frozen=True)
class Scored:
    """What the models score on some test rows.

    Attributes:
        name: The silo, or all rows.
        rows: How many rows.
        counted: How many of them count.
        alone: By the silo's own model.
        federated: By the federated model.
        pooled: By the model of all rows, if there is one.
        difference: Federated less alone; None where it is undefined.
        p: The p of that, corrected by Holm for the number of silos.
        events: How many rows have the rarer of two answers; None where there are no such two.
        undefined: The draws of the bootstrap in which a model has no figure.
        few: "4 of 8 groups", or rows, where it takes 8 to see a difference and there are 4; else "".
        alike: Whether all rows have one class.
        guessing: The share of right answers of always the most frequent class, where rows have one.
        over_pooled: Federated held against pooled in the same way, which stands there as `alone`.
    """

    name: str
    rows: int
    counted: int
    alone: float
    federated: float
    pooled: float | None
    difference: Difference | None
    p: float | None = None
    events: int | None = None
    undefined: int = 0
    few: str = ""
    alike: bool = False
    guessing: float | None = None
    over_pooled: Scored | None = None

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
        mean: Whether the figures of all rows are means of the silos', and not of all rows together.
        seed: The one seed of the trainings; None where another one trains the same models.
        rounds: How many rounds were trained: by a silo's name alone, of `whole` federated, of `pooled`.
        cut_short: Which silos' trainings alone ended early by patience, in words; "" if none did.
    """

    metric: MetricInfo
    test: str
    silos: Sequence[Scored]
    whole: Scored
    left_out: dict[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    mean: bool = False
    seed: int | None = None
    rounds: Mapping[str, str] = field(default_factory=dict)
    cut_short: str = ""


def compare_models(plan: BaselinePlan) -> Baseline:
    """Score all models of a baseline whose trainings are done.

    Raises:
        InputError: a model or a shard cannot be read.
    """
    if why := unlearnt_by_patience(plan, plan.federated):
        raise InputError(f"{plan.federated.run}: {why}")
    pooled, left_out = plan.pooled, dict(plan.left_out)
    shared = [_model(plan, plan.federated)]
    if pooled is not None and pooled.state == "done":
        shared.append(_model(plan, pooled))
    judged = []
    for silo, task in plan.alone.items():
        name = plan.names[silo]
        if why := _unscored(plan, task):
            left_out[name] = why
            continue
        split = open_shard(plan.folder, plan.spec.silos[silo], plan.spec)["test"]
        federated, *more = shared
        models = [figures_of_rows(*one, split) for one in (federated, _model(plan, task), *more)]
        groups = groups_of(plan.folder, plan.spec.silos[silo]).get("test")
        judged.append(JudgedSilo(silo, name, models, groups))
    if not judged:
        raise InputError("; ".join(f"silo {name}: {why}" for name, why in left_out.items()))
    mean = any(one.both_right is None for one in judged)
    grouped = any(one.groups is not None and len(np.unique(one.groups)) < one.rows for one in judged)
    test = BY_GROUPS if grouped else BOOTSTRAP if mean else EXACT
    score = _of_rights if test == EXACT else partial(_of_draws, seed=plan.job.seed, mean=mean)
    silos, whole = score(judged)
    if len(shared) > 1:
        pairs = [replace(one, models=[one.models[0], one.models[2]]) for one in judged]
        beside, of_all = score(pairs)
        silos = [replace(of, over_pooled=other) for of, other in zip(silos, beside, strict=True)]
        whole = replace(whole, over_pooled=of_all)
    if test != EXACT and any(one.many < FEW for one in judged):
        test += EXCHANGED.format(what="groups" if grouped else "rows")
    seed = None if shared[0][0].algorithm.seedless else plan.job.seed
    told = plan.federated.metric, test, silos, whole, left_out, remarks_on(plan)
    tasks = {whole.name: plan.federated} | ({"pooled": pooled} if pooled else {})
    tasks |= {plan.names[silo]: task for silo, task in plan.alone.items()}
    rounds = {name: _rounds(of) for name, of in tasks.items()}
    return Baseline(*told, mean=mean, seed=seed, rounds=rounds, cut_short=ended_by_patience(plan))


def _unscored(plan: BaselinePlan, task: GridRun) -> str:
    """Say why a silo's training alone gives no model to compare with; "" if it does."""
    if task.state != "done":
        return f"its training alone did not come to its end; {task.log} says why"
    return unlearnt_by_patience(plan, task)


def _rounds(task: GridRun) -> str:
    """Write how many rounds a run has trained, and which one its model is of where that is not the last."""
    last = next(iter(read_metrics(task.run)[-1:]), {})
    kept = number(last, "model_round")
    return f"{last.get('round', '–')}" + (f", model of {kept:,.0f}" if kept is not None else "")


def _model(plan: BaselinePlan, task: GridRun) -> tuple[Trained, FlatModel]:
    trained = Trained(task.run, task.job, plan.folder, plan.spec)
    return trained, trained.model()


def _of_rights(judged: Sequence[JudgedSilo]) -> tuple[list[Scored], Scored]:
    """Return the rows of the table where each answer is right or wrong."""
    pairs = [one.both_right or (0, 0) for one in judged]
    found = [chance.by_right_answers(*pair, one.rows) for pair, one in zip(pairs, judged, strict=True)]
    better, worse = (sum(pair[nth] for pair in pairs) for nth in (0, 1))
    whole = chance.by_right_answers(better, worse, sum(one.rows for one in judged))
    return _silos(judged, found), _whole(judged, whole)


def _of_draws(judged: Sequence[JudgedSilo], seed: int, mean: bool) -> tuple[list[Scored], Scored]:
    """Return the rows of the table for any other metric."""
    found: list[Difference | None] = []
    kept, apart, undefined = list[JudgedSilo](), list[np.ndarray](), list[int]()
    known = {one.number: one for one in judged if all(map(math.isfinite, one.values[:2]))}
    ways = _exchanges([*known.values()], seed)
    for one in judged:
        if one.number not in known:  # as AUROC is undefined of one class
            found.append(None)
            undefined.append(0)
            continue
        (federated, alone, *_), figures = one.values, drawn(one.pair, seed, one.number, one.units)
        by, differences = federated - alone, figures[:, 0] - figures[:, 1]
        undefined.append(int((~np.isfinite(differences)).sum()))
        differences = spread(by, differences, one.many)
        found.append(by_draws(by, differences, ways[one.number].p(by) if ways else None))
        if found[-1] is not None:
            kept.append(one)
            apart.append(differences)
    silos = [replace(one, undefined=of) for one, of in zip(_silos(judged, found), undefined, strict=True)]
    if not kept:
        return silos, _whole([], None, mean=mean)
    weights, each = [one.counted for one in kept], [one.values for one in kept]
    by = float(np.average([values[0] - values[1] for values in each], weights=weights))
    p = None
    if ways:
        stream = rng.numpy_stream(seed, "exchanges of rows", *(one.number for one in kept))
        p = exchanged_in_mean([ways[one.number] for one in kept], weights, stream).p(by)
    whole = by_draws(by, np.average(apart, axis=0, weights=weights), p)
    return silos, _whole(kept, whole, mean=mean)


def _exchanges(judged: Sequence[JudgedSilo], seed: int) -> dict[int, Exchanged]:
    """Exchange the models' answers by silo, if one has few rows or groups; so one test is of all silos."""
    if all(one.many >= FEW for one in judged):
        return {}
    streams = [rng.numpy_stream(seed, "exchanges of a silo's rows", one.number) for one in judged]
    return {
        one.number: exchanged(one.pair[0], one.pair[1], one.units, stream)
        for one, stream in zip(judged, streams, strict=True)
    }


def _silos(judged: Sequence[JudgedSilo], found: Sequence[Difference | None]) -> list[Scored]:
    corrected = iter(tests := chance.holm([one for one in found if one is not None]))
    need = fewest(max(len(tests), 1))
    return [
        replace(
            _scored(
                of.name, (of.rows, of.counted), of.values, *((None, None) if one is None else next(corrected))
            ),
            events=_rarer([of]),
            guessing=_guessing([of]),
            alike=of.alike,
            few="" if one is None or of.many >= need else f"{of.many:,} of {need} {of.kind}",
        )
        for of, one in zip(judged, found, strict=True)
    ]


def _rarer(judged: Sequence[JudgedSilo]) -> int | None:
    """Return how many rows have the rarer of two answers; None where rows have no single one of two."""
    each = [one.models[0].labels for one in judged if one.models[0].task.choices == 2]
    if len(each) < len(judged) or None in each or not each:
        return None
    labels = sum((Counter(of) for of in each), Counter[int]())
    return sum(labels.values()) - max(labels.values())


def _whole(judged: Sequence[JudgedSilo], found: Difference | None, *, mean: bool = False) -> Scored:
    """Return the row for all rows: each model's figures in the mean by the rows that count, which `mean` says
    is not the figure of all rows together."""
    weights, means = [one.counted for one in judged], [math.nan, math.nan]
    if judged:
        means = np.average([one.values for one in judged], axis=0, weights=weights).tolist()
    name, rows = "mean of silos by rows" if mean else "all rows", sum(one.rows for one in judged)
    made = _scored(name, (rows, sum(weights)), means, found, None if found is None else found.p)
    many, kinds = sum(one.many for one in judged), {one.kind for one in judged}
    few = "" if found is None or many >= fewest(1) else f"{many:,} of {fewest(1)} {min(kinds)}"
    return replace(made, events=_rarer(judged), guessing=_guessing(judged), few=few)


def _guessing(judged: Sequence[JudgedSilo]) -> float | None:
    """Return the share of the most frequent class; None where rows have no single class."""
    labels = Counter[int]()
    for one in judged:
        labels.update(one.models[0].labels or {})
    rows = sum(one.rows for one in judged)
    return max(labels.values()) / rows if rows and labels.total() == rows else None


def _scored(
    name: str, rows: tuple[int, int], values: Sequence[float], found: Difference | None, p: float | None
) -> Scored:
    federated, alone, *more = values
    return Scored(name, *rows, alone, federated, more[0] if more else None, difference=found, p=p)
