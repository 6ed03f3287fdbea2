"""Survival curves and the log-rank test are those of the pooled rows, the same bytes over all cuts, and of no
few rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from reference.test_refusals import Alone
from scipy import stats
from typer.testing import CliRunner

from mpifl.cli import app
from mpifl.common import InputError
from mpifl.data import Targets
from mpifl.data.shards import read_federation
from mpifl.data.shards.shards import Features, FederationSpec
from mpifl.learning.tasks.survival import Survival
from mpifl.report.terminal import show_coefficients, show_stats, show_survival
from mpifl.report.terminal.survival_table import said_of
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.analysis.site_terms import check_terms
from mpifl.wings.analysis.survival.log_rank import log_rank
from mpifl.wings.analysis.survival.row_groups import RowGroups
from mpifl.wings.analysis.survival.survival_curves import ToldCurve, spans_of
from mpifl.wings.analysis.survival.time_grid import TimeGrid, step_counts
from scripts.write_shard import write_shard

N, NAMES = 240, ("age", "sex=f", "sex=m", "treated")
JOBS = [{"name": "kaplanmeier", "algorithm": {"name": "kaplanmeier"}}]
"""For the test that each algorithm has an oracle."""
CUTS = {"one": [], "four": [40, 41 + 30, 180], "seven": [20, 50, 81, 110, 150, 200]}
"""Where the rows of each folder are cut; those of `seven` are shuffled before."""
NOISED = ("--epsilon", "1", "--delta", "1e-5", "--bounds")
Rows = tuple[np.ndarray, np.ndarray]


def rows_of() -> Rows:
    """Whole days with ties, of two sexes; the standardised one is a category, too. 3 rows are treated."""
    draw = np.random.default_rng(3)
    x = np.zeros((N, 4), np.float32)
    x[:, 0], male, x[:, 3] = draw.normal(60, 9, N), draw.integers(0, 2, N), np.arange(N) % 100 == 7
    x[:, 1], x[:, 2] = 1 - male, (male - male.mean()) / male.std()
    days = np.ceil(draw.exponential(90 * np.exp(-0.6 * male)))
    return x, np.column_stack([days, draw.random(N) < 0.6]).astype(np.float32)


def write(
    folder: Path, x: np.ndarray, y: np.ndarray, places: list[int], called: str = "silo {}", source: Any = None
) -> Path:
    folder.mkdir(parents=True)
    of: dict[str, Any] = {"features": Features(shape=(x.shape[1],), dtype="float32"), "classes": None}
    of["targets"] = Targets(shape=(2,), dtype="float32", names=("days", "died"))
    entries = [
        write_shard(folder / f"{k}.h5", {"train": silo}, silo=k, name=called.format(k), **of)
        for k, silo in enumerate(zip(np.split(x, places), np.split(y, places), strict=True))
    ]
    told: dict[str, Any] = {"name": "rows", "seed": 0, "scheme": {"name": "cut"}, "source": source or {}}
    FederationSpec(format_version=2, silos=entries, feature_names=NAMES, **of, **told).write(folder)
    return folder


def curves_of(shards: Path, run: Path, tables: Any = None, **keys: Any) -> dict[str, Any]:
    """Make the curves in this process."""
    job: dict[str, Any] = {"name": "kaplanmeier", "shards": str(shards), "rounds": 1, "device": "cpu"}
    job |= {"model": {"name": "logreg"}, "task": {"name": "survival"}, "tracking": {"console": False}}
    job |= {"algorithm": {"name": "kaplanmeier", **keys}, **(tables or {})}
    train(job, run, (), False, Alone(), wings_of=wings_of)
    show_survival(run)
    found: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text())["survival"]
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, (x, y) = tmp_path_factory.mktemp("kaplanmeier"), rows_of()
    for cut, places in CUTS.items():
        order = np.random.default_rng(1).permutation(N) if cut == "seven" else np.arange(N)
        write(base / cut, x[order], y[order], places)
    return base


def by_hand(times: np.ndarray, events: np.ndarray) -> dict[float, tuple[float, float, float]]:
    """Return survival and the ends of its interval at each time with an event, in plain numpy."""
    found, survival, variance = {}, 1.0, 0.0
    for time in np.unique(times[events > 0]):
        at_risk, died = int((times >= time).sum()), int(((times == time) & (events > 0)).sum())
        survival *= 1 - died / at_risk
        if died == at_risk:
            found[float(time)] = 0.0, None, None
            break
        variance += died / (at_risk * (at_risk - died))
        shift = 1.959963984540054 * np.sqrt(variance) / np.log(survival)
        found[float(time)] = survival, survival ** np.exp(-shift), survival ** np.exp(shift)
    return found


def counted(times: np.ndarray, events: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return events and censored rows of each group on each whole time."""
    found = np.zeros((int(groups.max()) + 1, 2, int(times.max()) + 1))
    np.add.at(found, (groups, (events == 0).astype(int), times.astype(int)), 1)
    return found


def test_all_cuts_give_the_same_bytes(base: Path) -> None:
    written = []
    for cut in (*CUTS, "whole"):
        run = base / f"run-{cut}"
        curves_of(
            base / {"whole": "four"}.get(cut, cut),
            run,
            by="sex",
            tables={"security": {"masks": False}} if cut == "whole" else None,
        )
        written.append([(run / f"survival.{kind}").read_bytes() for kind in ("html", "csv", "tex")])
    assert written[1:] == written[:1] * 3


def test_curves_are_those_of_the_pooled_rows(base: Path) -> None:
    """With `least = 1` no times are joined: the curve is Kaplan and Meier's to the last digits."""
    x, y = rows_of()
    found = curves_of(base / "four", base / "exact", by="sex", least=1)
    for one, male in zip(found["groups"], (False, True), strict=True):
        times, events = y[(x[:, 2] > 0) == male].astype(np.float64).T
        wanted = by_hand(times, events)
        told = {
            row["time"]: (row["survival"], row["low"], row["high"]) for row in one["curve"] if row["events"]
        }
        assert told.keys() == wanted.keys()
        for time, figures in wanted.items():
            np.testing.assert_allclose(np.array(told[time], float), np.array(figures, float), rtol=1e-10)
        median = next(time for time, figures in wanted.items() if figures[0] <= 0.5)
        assert (one["median_from"], one["median"]) == (median, median)
    test = found["log_rank"]
    statistic = mantel(y[:, 0], y[:, 1], x[:, 2] > 0)
    assert (test["statistic"], test["degrees"]) == (pytest.approx(statistic, rel=1e-12), 1)
    assert test["p"] == pytest.approx(stats.chi2.sf(statistic, 1), rel=1e-10)
    assert curves_of(base / "seven", base / "few", by="sex")["log_rank"] == test


def mantel(times: np.ndarray, events: np.ndarray, group: np.ndarray) -> float:
    """Return the log-rank statistic of two groups, time by time."""
    apart = spread = 0.0
    for time in np.unique(times[events > 0]):
        at_risk = times >= time
        died = (times == time) & (events > 0)
        n, d, one = at_risk.sum(), died.sum(), (at_risk & group).sum()
        apart += (died & group).sum() - d * one / n
        spread += d * (one / n) * (1 - one / n) * (n - d) / max(n - 1, 1)
    return float(apart**2 / spread)


@settings(max_examples=80, deadline=None)
@given(st.floats(2.0**-120, 2.0**127, width=32))
def test_the_step_is_the_least_with_16384_steps_or_fewer(longest: float) -> None:
    times = torch.tensor([longest, longest / 3, 0.0])
    grid = TimeGrid.reaching(step_counts(times))
    digits = f"{grid.step:e}"
    assert digits[0] in "125"
    assert float(f"{digits[0]}e{digits.split('e')[1]}") == grid.step
    below = grid.step / {"1": 2, "2": 2, "5": 2.5}[digits[0]]
    assert longest / below > 16_384
    assert grid.cells(times)[0] <= 16_384
    for step in (0.1, 1.0, 2.0):  # the last cell reaches its end, as float32 has it
        end = torch.tensor([step * 16_384])
        assert TimeGrid.reaching(step_counts(end)) == TimeGrid(step)


ROWS = st.lists(st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 2)), min_size=2, max_size=60)


@pytest.mark.filterwarnings("ignore:Starting with pandas:DeprecationWarning")  # of lifelines
@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_curves_and_tests_are_those_of_lifelines(rows: list[tuple[int, bool, int]]) -> None:
    lifelines = pytest.importorskip("lifelines", reason="of the extra 'oracles'")
    from lifelines.statistics import multivariate_logrank_test

    times, events, groups = (np.array(column) for column in zip(*rows, strict=True))
    counts = counted(times, events.astype(int), groups)
    pooled = counts.sum(0).astype(int).tolist()
    whole = ToldCurve.of(*pooled, 1) or ToldCurve([], [])
    curve = whole.rows(TimeGrid(1.0))
    fitted = lifelines.KaplanMeierFitter().fit(times, events)
    for row in curve:
        assert row["survival"] == pytest.approx(float(fitted.predict(row["time"])), abs=1e-12)
    median = whole.medians(TimeGrid(1.0))["median"]
    if not any(abs(row["survival"] - 0.5) < 1e-9 for row in curve):  # lifelines rounds otherwise
        assert (np.inf if median is None else median) == fitted.median_survival_time_
    test = log_rank(counts)
    there = sorted({*groups.tolist()})
    all_at_risk = (
        all((times[groups == one].max() >= times[events].min()) for one in there) if events.any() else False
    )
    if test is not None and all_at_risk and test.statistic > 1e-9:
        wanted = multivariate_logrank_test(times, groups, events)
        assert test.statistic == pytest.approx(wanted.test_statistic, rel=1e-8)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40), st.integers(1, 9))
def test_spans_have_no_few_rows_and_all_rows(counts: list[tuple[int, int]], least: int) -> None:
    events, censored = ([*column] for column in zip(*counts, strict=True))
    spans = spans_of(events, censored, least)
    totals = sum(events), sum(censored)
    if spans is None:
        assert any(0 < total < least for total in totals)
        return
    assert not any(0 < count < least for one in spans for count in (one.events, one.censored))
    assert (sum(one.events for one in spans), sum(one.censored for one in spans)) == totals
    for one in spans:
        assert one.at_risk == sum(events[one.first :]) + sum(censored[one.first :]) or one.first == 0
        assert events[one.last] or not one.events
    assert all(one.at_risk >= one.events + one.censored for one in spans)
    curve = ToldCurve.of(events, censored, least)
    assert curve is not None
    assert curve.spans == spans
    survival = [row["survival"] for row in curve.rows(TimeGrid(1.0))]
    assert survival == sorted(survival, reverse=True)


def test_joined_times_have_the_exact_curve_where_they_end(base: Path) -> None:
    """Few rows at risk and many censored: an actuarial estimate would part by a tenth at the last time."""
    _, y = rows_of()
    (one,) = curves_of(base / "four", base / "joined")["groups"]
    wanted = by_hand(*y.astype(np.float64).T)
    assert 10 < len(one["curve"]) < len(wanted) / 2
    assert sum(row["from"] < row["time"] for row in one["curve"]) > 10
    for row in one["curve"]:
        assert row["events"] >= 5
        figures = [row[key] for key in ("survival", "low", "high")]
        assert figures == pytest.approx(wanted[row["time"]], rel=1e-12)
    for begin, end, nth in (("median_from", "median", 0), ("median_low", "", 1), ("", "median_high", 2)):
        right = next(at for at, figures in wanted.items() if figures[nth] <= 0.5)
        span = next(row for row in one["curve"] if row["from"] <= right <= row["time"])
        assert (one.get(begin, span["from"]), one.get(end, span["time"])) == (span["from"], span["time"])
    lines = [*csv.DictReader((base / "joined" / "survival.csv").open())]
    assert [float(line["survival"]) for line in lines] == [row["survival"] for row in one["curve"]]


def test_a_group_of_few_rows_is_withheld_and_so_is_the_test(base: Path) -> None:
    found = curves_of(base / "four", base / "treated", by="treated")
    assert found["groups"][1] == {"name": "treated = 1", "withheld": True}
    assert "log_rank" not in found


def test_silos_are_groups_and_steps_are_joined(base: Path) -> None:
    _, y = rows_of()
    found = curves_of(base / "four", base / "silos", by_silo=True, step=30.0, least=1)
    groups = np.repeat(range(4), np.diff([0, *CUTS["four"], N]))
    assert [one["rows"] for one in found["groups"]] == np.bincount(groups).tolist()
    months = np.ceil(y[:, 0].astype(np.float64) / 30)
    for nth, one in enumerate(found["groups"]):
        wanted = by_hand(30 * months[groups == nth], y[groups == nth, 1])
        told = {row["time"]: row["survival"] for row in one["curve"] if row["events"]}
        assert told == pytest.approx({time: figures[0] for time, figures in wanted.items()}, rel=1e-12)
    assert found["log_rank"]["degrees"] == 3


@pytest.mark.parametrize(
    ("keys", "tables", "line"),
    [
        ({}, {"rounds": 2}, "rounds = 2: kaplanmeier makes its table in one round"),
        ({}, {"task": {"name": "regression"}}, "takes times and events; use [task] name = 'survival'"),
        (
            {},
            {"task": {"name": "survival", "loss": "torch.nn.functional:l1_loss"}},
            "[task] loss = 'torch.nn.functional:l1_loss': 'kaplanmeier' trains and scores no model; leave it",
        ),
        ({"by": "height"}, {}, "[algorithm] by = 'height': no column is called so; use age, sex, treated"),
        ({"by": "age"}, {}, "column 'age': has other numbers than 0 and 1"),
        ({"by": "sex", "by_silo": True}, {}, "by_silo = true makes silos the groups; use one of them"),
        ({"by_silo": True}, {"security": {"masks": False}}, "[algorithm] by_silo = true: [security] shows"),
        ({"step": 0.001}, {}, "[algorithm] step = 0.001: a time is beyond 16,384 steps; use a larger step"),
        ({"step": 1e-300}, {}, "a time is beyond 16,384 steps; use a larger step"),
        ({"least": 9}, {}, "[algorithm] least = 9: is less than least = 10 of this site's"),
    ],
)
def test_what_is_not_told_is_one_line(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Any, tables: Any, line: str
) -> None:
    (tmp_path / "site").mkdir(mode=0o700)
    (tmp_path / "site" / "stats.toml").write_text("least = 10\n")
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    with pytest.raises(Exception) as refused:
        curves_of(base / "four", tmp_path / "run", tables, **{"least": 10, **keys})
    assert line in str(refused.value)
    if "by" in keys:
        assert not (tmp_path / "run").exists()
    (tmp_path / "site" / "stats.toml").write_text("leest = 10\n")
    with pytest.raises(
        Exception, match=r"stats.toml: has no key 'leest'; did you mean 'least'\? it takes least"
    ):
        check_terms(least=10)


@pytest.mark.parametrize(
    ("times", "line"),
    [
        ([1.0, 1 + 1e-9], "times 1 and 1.000000001 are one in float32"),
        ([0.0, 1e-300], "time 1e-300 is below 1.2e-38"),
    ],
)
def test_shards_of_another_writer_are_held_to_the_same_times(times: list[float], line: str) -> None:
    y = np.stack([times, np.ones(2)], 1)
    for targets in (y, {"time": y[:, 0], "event": y[:, 1]}):
        with pytest.raises(ValueError, match=line):
            Survival().check_targets("train", targets)


def test_a_silo_without_events_is_at_risk_with_the_others_by_the_least_step(tmp_path: Path) -> None:
    """Times to 1,200.8 are 12,008 tenths, so that odd tenths stay, too."""
    x, y = rows_of()
    y[100:130, 1], y[150] = 0, (12_008, 0)
    tenths = np.column_stack([y[:, 0] / 10, y[:, 1]])
    found = curves_of(write(tmp_path / "shards", x, tenths, [100, 130]), tmp_path / "run", least=1)
    assert found["step"] == 0.1
    assert "With --least 1 every time of an event is told" in said_of(found)[0]
    y = np.column_stack([y[:, 0].astype(float) / 10, y[:, 1]])
    wanted = by_hand(*y.astype(np.float64).T)
    told = {row["time"]: row["survival"] for row in found["groups"][0]["curve"] if row["events"]}
    assert told == pytest.approx({time: figures[0] for time, figures in wanted.items()}, rel=1e-12)


@pytest.mark.parametrize(
    ("place", "value", "line"),
    [
        ((3, 0), -1.0, "time = -1 in row 3 is negative"),
        ((3, 1), 2.0, "event = 2 in row 3 is neither 0 nor 1"),
    ],
)
def test_a_wrong_target_is_named(tmp_path: Path, place: Any, value: float, line: str) -> None:
    x, y = rows_of()
    y[place] = value
    with pytest.raises(Exception, match=line):
        curves_of(write(tmp_path / "shards", x, y, [100]), tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["survival", "--by", "nosuch"], "by = 'nosuch': no column is called so"),
        (["stats", *NOISED, "nosuch=1:2"], "bounds.nosuch: is no column; there are age"),
        (["stats", *NOISED, "age=100:18"], "age = [100, 18]: give a lower and a larger upper"),
    ],
)
def test_wrong_columns_are_refused_before_ranks_start(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], line: str
) -> None:
    monkeypatch.setattr("mpifl.wire.launching.launcher.launch", lambda *_: pytest.fail("ranks were started"))
    command, *options = words
    shards, out = str(base / "four"), str(tmp_path / "run")
    done = CliRunner().invoke(app, [command, shards, "--out", out, "--ranks", "3", *options])
    assert line in str(done.exception)


def test_pictures_have_no_column_to_divide_them(base: Path) -> None:
    spec = read_federation(base / "four")
    pictures = spec.model_copy(update={"features": Features(shape=(2, 2), dtype="float32")})
    with pytest.raises(InputError, match="these shards have no table of features; leave it out"):
        RowGroups.of(pictures, "age", by_silo=False)
    unnamed = spec.model_copy(update={"feature_names": None})
    assert RowGroups.of(unnamed, "x3", by_silo=False).names == ["x3 = 0", "x3 = 1"]


def test_a_run_without_a_model_or_without_curves_says_so(base: Path, tmp_path: Path) -> None:
    run, new = tmp_path / "run", tmp_path / "new.csv"
    curves_of(base / "four", run)
    new.write_text("age,sex,treated\n60,f,0\n")
    asked = ["predict", run, new, "--out", tmp_path / "p.csv"]
    judging = (
        asked,
        ["evaluate", run],
        ["evaluate", run, "--silos"],
        ["evaluate", run, "--data", base / "four"],
    )
    for words in judging:
        done = CliRunner().invoke(app, [*map(str, words)])
        line = f"{run}: has no model: 'kaplanmeier' makes curves of the rows; mpifl survival {run} shows them"
        assert str(done.exception) == line
    assert not (tmp_path / "p.csv").exists()
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n')
    with pytest.raises(InputError, match="has no survival curves"):
        show_survival(tmp_path)
    for show in (show_survival, show_stats, show_coefficients):
        with pytest.raises(InputError, match=r"nosuch: is not a folder; name the folder of a run"):
            show(tmp_path / "nosuch")
