"""Regressions, Cox's model and survival curves over random silos are those of the pooled rows, to 1e-10."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, reject, settings, strategies as st
from reference import test_cox, test_glm
from reference.summed_silos import Rows, cut, told_after
from reference.test_kaplanmeier import by_hand, mantel
from scipy import stats

from mpifl.common import InputError
from mpifl.wings.analysis import Cox, KaplanMeier, Newton

NEAR = 1e-10
SEEDS, FEW = (
    st.integers(0, 2**20),
    settings(max_examples=60 if os.environ.get("MPIFL_SLOW") else 8, deadline=None),
)


class Table(NamedTuple):
    """Coefficients without those left out, their errors and p, and the log-likelihood."""

    estimates: np.ndarray
    errors: np.ndarray
    p: np.ndarray
    likelihood: float

    @classmethod
    def of(cls, told: dict[str, Any]) -> Table:
        rows = [row for row in told["coefficients"] if "estimate" in row]
        found = (np.array([row[key] for row in rows]) for key in ("estimate", "error", "p"))
        return cls(*found, told["log_likelihood"])

    def apart(self, other: Table) -> float:
        """Return how far two tables part: estimates in units of their errors or of themselves, whichever is
        more, and the others relatively."""
        estimates = np.abs(self.estimates - other.estimates)
        shares = [
            estimates / np.maximum(np.abs(other.estimates), other.errors),
            np.abs(self.errors / other.errors - 1),
            np.abs(self.p - other.p),
            [abs(self.likelihood - other.likelihood) / max(abs(other.likelihood), 1)],
        ]
        return float(np.concatenate(shares).max())


def library(name: str) -> Any:
    """Return a library of the extra 'oracles'; None where it is not installed."""
    try:
        return pytest.importorskip(name)
    except pytest.skip.Exception:
        return None


def glm_apart(seed: int, task: str, offset: bool, weights: bool) -> dict[str, float]:
    """Return how far a regression over random silos parts from plain numpy's and statsmodels'."""
    draw = np.random.default_rng(seed)
    x, y = test_glm.rows_of(task, seed, int(draw.integers(100, 250)))
    x[:, 0] = x[:, 0].round(int(draw.integers(-1, 3)))  # ties
    keys = {**({"offset": "log_years"} if offset else {}), **({"weights": "share"} if weights else {})}
    found = Table.of(told_after(Newton, cut((x, y), draw, 12), test_glm.NAMES, task, 15, **keys))
    beta, errors, likelihood = test_glm.by_newton(task, (x, y), offset, weights)
    free = len(x) - len(beta)
    tail = stats.t(free) if task == "regression" else stats.norm()
    hand = Table(beta, errors, 2 * tail.sf(np.abs(beta / errors)), likelihood)
    apart = {"numpy": found.apart(hand)}
    if sm := library("statsmodels.api"):
        apart["statsmodels"] = found.apart(by_statsmodels(sm, (x, y), task, offset, weights))
    return apart


def by_statsmodels(sm: Any, rows: Rows, task: str, offset: bool, weights: bool) -> Table:
    x, y = rows[0].astype(float), rows[1].astype(float)
    beside = [*([] if offset else [test_glm.OFFSET]), *([] if weights else [test_glm.WEIGHT])]
    columns = x[:, [0, 2, 3, *beside]]
    centre = columns.mean(0)
    a = np.column_stack([np.ones(len(x)), columns - centre])
    off = x[:, test_glm.OFFSET] * offset
    w = x[:, test_glm.WEIGHT] if weights else np.ones(len(x))
    if task == "regression":
        fitted = sm.WLS(y - off, a, w).fit()
    else:
        family = sm.families.Poisson() if task == "counts" else sm.families.Binomial()
        fitted = sm.GLM(y, a, family, offset=off, var_weights=w).fit(
            tol=0, tol_criterion="params", maxiter=30
        )
    back = np.eye(len(fitted.params))
    back[0, 1:] = -centre
    beta, errors = back @ fitted.params, np.sqrt(np.diag(back @ fitted.cov_params() @ back.T))
    tail = stats.t(fitted.df_resid) if task == "regression" else stats.norm()
    return Table(beta, errors, 2 * tail.sf(np.abs(beta / errors)), fitted.llf)


@FEW
@given(SEEDS, st.sampled_from(test_glm.TASKS), st.booleans(), st.booleans())
def test_a_regression_is_that_of_the_pooled_rows(seed: int, task: str, offset: bool, weights: bool) -> None:
    try:
        apart = glm_apart(seed, task, offset, weights)
    except InputError as refused:  # of counts, rarely
        if "steps are too long; use [algorithm] ridge or damping" not in str(refused):
            raise
        reject()
    assert max(apart.values()) < NEAR, apart


def lived(draw: np.random.Generator, n: int) -> Rows:
    """Ages, doses and a category of two, with times that tie more or less."""
    x = np.column_stack([draw.normal(60, 9, n).round(), draw.normal(size=n), draw.integers(0, 2, n)])
    days = draw.exponential(np.exp(-0.03 * (x[:, 0] - 60) + 0.5 * x[:, 2])) * 10 ** draw.uniform(0.3, 3)
    y = np.column_stack([np.ceil(days), draw.random(n) < draw.uniform(0.3, 1)])
    y[:4, 1] = 1
    return x.astype(np.float32), y.astype(np.float32)


def cox_apart(seed: int, strata: str, ties: str) -> dict[str, float]:
    """Return how far Cox's model over random silos parts from plain numpy's and statsmodels'."""
    draw = np.random.default_rng(seed)
    silos = cut(lived(draw, int(draw.integers(60, 160))), draw, 8)
    x, y = (np.concatenate(column) for column in zip(*silos, strict=True))
    told = told_after(Cox, silos, ("age", "dose", "arm"), "survival", 12, strata=strata, ties=ties)
    of = np.repeat(np.arange(len(silos)), [len(part) for part, _ in silos]) * (strata == "silo")
    beta, errors, likelihood = test_cox.by_newton(x, y, ties == "efron", of)
    found = Table.of(told)
    apart = {"numpy": found.apart(Table(beta, errors, 2 * stats.norm.sf(abs(beta / errors)), likelihood))}
    if sm := library("statsmodels.api"):
        model = sm.PHReg(y[:, 0].astype(float), x.astype(float), y[:, 1], strata=of, ties=ties)
        fitted = model.fit(tol=1e-14, maxiter=100)
        apart["statsmodels"] = found.apart(Table(fitted.params, fitted.bse, fitted.pvalues, fitted.llf))
    return apart


@FEW
@given(SEEDS, st.sampled_from(["silo", "none"]), st.sampled_from(["efron", "breslow"]))
def test_coxs_model_is_that_of_the_pooled_rows(seed: int, strata: str, ties: str) -> None:
    apart = cox_apart(seed, strata, ties)
    assert max(apart.values()) < NEAR, apart


def curves_apart(seed: int, arms: int, least: int) -> dict[str, float]:
    """Return how far curves, intervals and the log-rank test over random silos part from plain numpy's and
    lifelines'. Rows that are alike are a weight to lifelines."""
    draw = np.random.default_rng(seed)
    _, y = lived(draw, int(draw.integers(30, 250)))
    y[:, 0] = np.minimum(y[:, 0], 16_000)  # later times would be rounded
    arm = draw.integers(0, arms, len(y))
    x = np.eye(3, dtype=np.float32)[arm]
    names, keys = [f"arm={name}" for name in "abc"], {"by": "arm", "least": least}
    told = told_after(KaplanMeier, cut((x, y), draw, 12), names, "survival", 1, **keys)["survival"]
    times, events, lifelines = y[:, 0].astype(float), y[:, 1] > 0, library("lifelines")
    apart = dict.fromkeys(["numpy", *(["lifelines"] if lifelines else [])], 0.0)
    for one in told["groups"]:
        if one["withheld"]:
            continue
        inside = arm == "abc".index(one["name"][-1])
        rows = {row["time"]: row for row in one["curve"] if row["events"]}
        hand = by_hand(times[inside], events[inside])
        assert rows.keys() == hand.keys() if least == 1 else rows.keys() <= hand.keys()
        wanted = {"numpy": hand}
        if lifelines:
            wanted["lifelines"] = by_lifelines(lifelines, times[inside], events[inside], [*rows])
        for whose, curve in wanted.items():
            figures = [[rows[at][key] for key in ("survival", "low", "high")] for at in rows]
            right = np.array([curve[at] for at in rows], float).reshape(-1, 3)
            difference = np.abs(np.array(figures, float).reshape(-1, 3) - right)
            apart[whose] = max(apart[whose], float(np.nanmax(difference, initial=0.0)))
    statistics = {}
    if len({*arm.tolist()}) == 2 and "log_rank" in told:
        statistics["numpy"] = mantel(times, events, arm > 0)
    if lifelines and "log_rank" in told and all_at_risk(times, events, arm):
        test = lifelines.statistics.multivariate_logrank_test(times, arm, events)
        statistics["lifelines"] = test.test_statistic
    for whose, right in statistics.items():
        difference = abs(told["log_rank"]["statistic"] - right) / max(right, 1.0)
        apart[whose] = max(apart[whose], difference)
    return apart


def by_lifelines(lifelines: Any, times: Any, events: Any, at: list[float]) -> dict[float, Any]:
    pairs, weights = np.unique(np.column_stack([times, events]), axis=0, return_counts=True)
    fitted = lifelines.KaplanMeierFitter().fit(*pairs.T, weights=weights)
    survival, ends = fitted.survival_function_.iloc[:, 0], fitted.confidence_interval_
    return {time: (survival[time], *(ends.loc[time] if survival[time] else (np.nan,) * 2)) for time in at}


def all_at_risk(times: np.ndarray, events: np.ndarray, arm: np.ndarray) -> bool:
    """Return whether each group has a row at risk at an event: lifelines leaves none out."""
    first = times[events].min()
    return all(times[arm == one].max() >= first for one in {*arm.tolist()})


@pytest.mark.filterwarnings("ignore:Starting with pandas:DeprecationWarning")  # of lifelines
@FEW
@given(SEEDS, st.integers(1, 3), st.sampled_from([1, 5]))
def test_curves_are_those_of_the_pooled_rows(seed: int, arms: int, least: int) -> None:
    apart = curves_apart(seed, arms, least)
    assert max(apart.values()) < NEAR, apart
