"""Cox's model is that of the rows of all silos, and without strata the same bytes over all cuts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from reference.test_kaplanmeier import CUTS, NAMES, N, rows_of, write
from reference.test_refusals import Alone

from mpifl.cli.plan.played_rounds import play
from mpifl.common import InputError
from mpifl.report.terminal import show_coefficients
from mpifl.run.job import read_job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.analysis.survival.partial_likelihood import partial_sums

JOBS = [{"name": "cox", "algorithm": {"name": "cox"}}]
"""For the test that each algorithm has an oracle."""
KEPT = [0, 2, 3]
"""The columns that do not follow from those before them."""


def job_of(shards: Path, **keys: Any) -> dict[str, Any]:
    tables = {
        key: keys.pop(key) for key in ("rounds", "cohort", "task", "algorithm", "tracking") if key in keys
    }
    job: dict[str, Any] = {"name": "cox", "shards": str(shards), "rounds": 8, "device": "cpu"}
    job |= {"model": {"name": "logreg"}, "task": {"name": "survival"}, "evaluate": {"every": 1000}}
    return {**job, "algorithm": {"name": "cox", **keys}, "tracking": {"console": False}, **tables}


def fitted(shards: Path, run: Path, **keys: Any) -> dict[str, Any]:
    """Fit in this process, and return the last round's record."""
    train(job_of(shards, **keys), run, (), False, Alone(), wings_of=wings_of)
    found: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, (x, y) = tmp_path_factory.mktemp("cox"), rows_of()
    for cut, places in CUTS.items():
        order = np.random.default_rng(1).permutation(N) if cut == "seven" else np.arange(N)
        write(base / cut, x[order], y[order], places)
    return base


def terms(
    x: np.ndarray, y: np.ndarray, beta: np.ndarray, efron: bool
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return likelihood, score and information of a stratum, event by event, from the definition."""
    likelihood, score, information = 0.0, np.zeros(len(beta)), np.zeros((len(beta), len(beta)))
    risk = np.exp(x @ beta)
    for time in np.unique(y[y[:, 1] > 0, 0]):
        tied = (y[:, 0] == time) & (y[:, 1] > 0)
        for nth, row in enumerate(np.flatnonzero(tied)):
            share = nth / tied.sum() if efron else 0.0
            weight = risk * ((y[:, 0] >= time) - share * tied)
            mean = weight @ x / weight.sum()
            likelihood += x[row] @ beta - np.log(weight.sum())
            score += x[row] - mean
            information += (x * weight[:, None]).T @ x / weight.sum() - np.outer(mean, mean)
    return likelihood, score, information


def by_newton(
    x: np.ndarray, y: np.ndarray, efron: bool, strata: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return coefficients, standard errors and the likelihood of the pooled rows."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    x, beta = x - x.mean(0), np.zeros(x.shape[1])
    for _ in range(12):
        parts = [terms(x[strata == one], y[strata == one], beta, efron) for one in np.unique(strata)]
        likelihood, score, information = (sum(of) for of in zip(*parts, strict=True))
        step = np.linalg.solve(information, score)
        beta = beta + step
    return beta, np.sqrt(np.diag(np.linalg.inv(information))), likelihood


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("strata", ["silo", "none"])
def test_coefficients_are_those_of_the_pooled_rows(base: Path, strata: str, ties: str) -> None:
    found = fitted(base / "four", base / f"{strata}-{ties}", strata=strata, ties=ties)
    of = np.repeat(range(4), np.diff([0, *CUTS["four"], N])) if strata == "silo" else np.zeros(N)
    x, y = rows_of()
    beta, errors, likelihood = by_newton(x[:, KEPT], y, ties == "efron", of)
    told = [row for row in found["coefficients"] if "estimate" in row]
    np.testing.assert_allclose([row["estimate"] for row in told], beta, rtol=1e-10)
    np.testing.assert_allclose([row["error"] for row in told], errors, rtol=1e-10)
    np.testing.assert_allclose([row["hazard_ratio"] for row in told], np.exp(beta), rtol=1e-10)
    assert found["log_likelihood"] == pytest.approx(likelihood, rel=1e-12)
    assert [row["name"] for row in found["coefficients"] if "left_out" in row] == ["sex=f"]
    assert found["events"] == int(y[:, 1].sum())
    for name, (mean, deviation) in found["columns"].items():  # for new rows in another unit
        own = x[:, NAMES.index(name)]
        assert mean == pytest.approx(own.mean(), rel=1e-6)
        assert deviation == pytest.approx(own.std(), rel=0.5)


def test_all_cuts_give_the_same_bytes_without_strata(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, models = [], set()
    for cut in CUTS:
        found = fitted(base / cut, base / f"cut-{cut}", strata="none", rounds=3)
        told.append({key: found[key] for key in ("decrement", "log_likelihood", "aic", "coefficients")})
        models.add((base / f"cut-{cut}" / "model.safetensors").read_bytes())
    assert told[1:] == told[:1] * 2
    assert len(models) == 1
    monkeypatch.chdir(base)
    for strata in ("none", "silo"):
        run = base / "cut-four"
        if strata == "silo":
            fitted(base / "four", run := tmp_path / "strata", strata=strata, rounds=3)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        planned = [(one.sent, one.received) for one in play(read_job(run / "job.toml")).rounds]
        assert planned == [(one["bytes_sent"], one["bytes_received"]) for one in lines]


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("strata", ["silo", "none"])
def test_the_table_is_that_of_statsmodels(base: Path, tmp_path: Path, strata: str, ties: str) -> None:
    sm = pytest.importorskip("statsmodels.api", reason="of the extra 'oracles'")
    x, y = rows_of()
    of = np.repeat(range(4), np.diff([0, *CUTS["four"], N])) if strata == "silo" else None
    model = sm.PHReg(y[:, 0].astype(float), x[:, KEPT].astype(float), y[:, 1], strata=of, ties=ties)
    wanted = model.fit(tol=1e-14, maxiter=100)
    found = fitted(base / "four", tmp_path / "run", strata=strata, ties=ties)
    told = [row for row in found["coefficients"] if "estimate" in row]
    low, high = np.asarray(wanted.conf_int()).T
    for key, right in {"estimate": wanted.params, "error": wanted.bse, "low": low, "high": high}.items():
        np.testing.assert_allclose([row[key] for row in told], right, rtol=1e-10, err_msg=key)
    np.testing.assert_allclose([row["p"] for row in told], wanted.pvalues, rtol=1e-8)
    assert found["log_likelihood"] == pytest.approx(wanted.llf, rel=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.floats(-3, 3)), min_size=1, max_size=30),
    st.floats(-2, 2),
    st.booleans(),
)
def test_sums_of_a_stratum_are_those_of_the_definition(
    rows: list[tuple[int, bool, float]], beta: float, efron: bool
) -> None:
    times, events, first = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    events[0] = 1
    x, y, at = np.column_stack([first, times % 3]), np.column_stack([times, events]), np.array([beta, 0.3])
    found = partial_sums(*map(torch.from_numpy, (x, y, at)), efron=efron)
    likelihood, score, information = terms(x, y, at, efron)
    assert found.likelihood == pytest.approx(likelihood, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(found.score, score, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.information, information, rtol=1e-8, atol=1e-9)


def test_a_column_that_only_tells_silos_apart_is_left_out(tmp_path: Path, capsys: Any) -> None:
    """A stratum cannot tell what it does; without strata it can."""
    x, y = rows_of()
    x[:, 3] = np.arange(N) >= 100
    shards = write(tmp_path / "shards", x, y, [100])
    found = fitted(shards, tmp_path / "run")
    assert [row["name"] for row in found["coefficients"] if "left_out" in row] == ["sex=f", "treated"]
    pooled = fitted(shards, tmp_path / "pooled", strata="none")
    assert [row["name"] for row in pooled["coefficients"] if "left_out" in row] == ["sex=f"]
    show_coefficients(tmp_path / "run")
    assert f"{N} rows, {int(y[:, 1].sum())} events" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"step": 7.0}, "[algorithm] step = 7: silos as strata keep their times as they are"),
        ({"strata": "none"}, "strata = 'none': needs times = true in this site's"),
        ({"cohort": {"quorum": 0.5}}, "[cohort] quorum = 0.5: cox takes exact sums over all silos"),
        ({"cohort": {"fraction": 0.5}}, "[cohort] fraction = 0.5: cox takes exact sums over all silos"),
        ({"algorithm": {"name": "newton"}}, "survival has [algorithm] name = 'cox'"),
        ({"task": {"name": "regression"}}, "[algorithm] name = 'cox': "),
        (
            {"task": {"name": "survival", "loss": "torch.nn.functional:l1_loss"}},
            "[task] loss = 'torch.nn.functional:l1_loss': 'cox' takes the likelihood of its family; leave",
        ),
    ],
)
def test_what_does_not_go_is_one_line(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Any, line: str
) -> None:
    (tmp_path / "site").mkdir(mode=0o700)
    (tmp_path / "site" / "stats.toml").write_text("least = 10\n")
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    with pytest.raises(Exception) as refused:
        fitted(base / "four", tmp_path / "run", **keys)
    assert line in str(refused.value)


@pytest.mark.parametrize("strata", ["silo", "none"])
def test_what_separates_events_has_no_estimate(tmp_path: Path, strata: str) -> None:
    x, y = rows_of()
    y[:, 0], y[:, 1] = np.arange(N), 1
    x[:, 0] = -y[:, 0]
    with pytest.raises(
        Exception, match=r"columns tell every outcome|has no finite estimate|too large|steps are too long"
    ):
        fitted(write(tmp_path / "shards", x, y, [100]), tmp_path / "run", strata=strata, rounds=40)


@pytest.mark.parametrize("strata", ["silo", "none"])
def test_a_column_that_separates_is_named_before_it_settles(tmp_path: Path, strata: str, capsys: Any) -> None:
    """More rounds would lead nowhere, and no number of rounds is advised."""
    x, y = rows_of()
    x[:, 3] = (y[:, 1] == 0) & (np.random.default_rng(1).random(N) < 0.5)
    shards = write(tmp_path / "shards", x, y, [100])
    found = fitted(shards, tmp_path / "run", strata=strata, rounds=10, tracking={})
    told = "column 'treated' separates the outcomes: its coefficient and its error grow with each step"
    shown = " ".join("".join(capsys.readouterr()).split())
    assert (found["separating"], told in shown) == ("treated", True)
    with pytest.raises(InputError, match=f"nothing is written: {told}; leave it out, or use"):
        show_coefficients(tmp_path / "run", tmp_path / "table.csv")
    assert not (tmp_path / "table.csv").exists()
    few = fitted(shards, tmp_path / "few", strata=strata, rounds=3)
    assert "separating" not in few
    with pytest.raises(InputError, match=r"have not settled .* train for more rounds"):
        show_coefficients(tmp_path / "few")
    ridge = fitted(shards, tmp_path / "ridge", strata=strata, rounds=10, ridge=1.0)
    assert (ridge["decrement"] < 1e-8, ridge.get("separating")) == (True, None)


@pytest.mark.parametrize("strata", ["silo", "none"])
def test_a_silo_without_events_adds_what_it_knows(tmp_path: Path, strata: str) -> None:
    """With silos as strata it is compared with nobody; without, its rows are at risk."""
    x, y = rows_of()
    y[100:130, 1] = 0
    found = fitted(
        write(tmp_path / "shards", x, y, [100, 130]), tmp_path / "run", strata=strata, by_silo=True
    )
    of = np.repeat(range(3), np.diff([0, 100, 130, N])) if strata == "silo" else np.zeros(N)
    beta, _, _ = by_newton(x[:, KEPT], y, True, of)
    told = [row["estimate"] for row in found["coefficients"] if "estimate" in row]
    np.testing.assert_allclose(told, beta, rtol=1e-10)
    assert found["own_fits"]["reasons"]["silo 1"] == "it has no event"
    y[:, 1] = 0
    with pytest.raises(Exception, match="all rows are censored: no event is 1, so no coefficient is finite"):
        fitted(write(tmp_path / "none", x, y, [100]), tmp_path / "out", strata=strata)


def test_a_fit_of_standardised_columns_says_each_ones_unit(tmp_path: Path) -> None:
    x, y = rows_of()
    units = {name: {"mean": 0.0, "deviation": 2.0 + nth} for nth, name in enumerate(("age", "treated"))}
    source = {"encoding": {"kind": "table", "digest": "", "spec": {"features": units}}}
    found = fitted(write(tmp_path / "shards", x, y, [100], source=source), tmp_path / "run", rounds=2)
    told = {row["name"]: row["deviation"] for row in found["coefficients"] if "deviation" in row}
    assert told == {"age": 2.0, "treated": 3.0}
