"""The noised table: its figures without noise are numpy's, its noise has its law, and its charge is that of
dp-accounting."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings, strategies as st
from reference.test_refusals import Alone
from reference.test_tableone import N, made, rows_of, write
from scipy import stats

from mpifl.cli import look_commands
from mpifl.cli.job_tools import keys_of_noised, privacy_of
from mpifl.common import InputError, RoundLost
from mpifl.data.shards import read_any, record_of
from mpifl.report.pages import write_report
from mpifl.report.terminal import show_stats
from mpifl.run.job import Job
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.analysis import DPTable
from mpifl.wings.analysis.federation_columns import Unit
from mpifl.wings.dpsgd import plans
from mpifl.wings.privacy import (
    GRID,
    BinCounts,
    BoundedColumn,
    BoundedSum,
    Draws,
    LevelCounts,
    PowerSum,
    RowCount,
    epsilon_of,
    is_bounded,
    noise_of_sums,
)
from mpifl.wings.privacy.accountant import Steps

KEYS = {"bounds": {"age": [19_998, 20_003], "score": [-0.5, 1]}, "categories": ["cp", "outcome"], "bins": 5}
JOBS = [{"name": "dptable", "algorithm": {"name": "dptable"}}]
"""For the test that each algorithm has an oracle."""
QUIET = {"noise": 0.01, "delta": 1e-4}
"""Noise that is 0 in whole numbers, or nearly."""


def job_of(shards: Path, privacy: Any = None, tables: Any = None, **keys: Any) -> dict[str, Any]:
    job: dict[str, Any] = {"name": "dptable", "shards": str(shards), "rounds": 1, "device": "cpu"}
    job |= {"model": {"name": "logreg"}, "task": {"name": "binary"}, "tracking": {"console": False}}
    job |= {"algorithm": {"name": "dptable", **KEYS, **keys}, "privacy": {**QUIET, **(privacy or {})}}
    return {**job, **(tables or {})}


def figures_of(job: dict[str, Any], run: Path) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Make the table in this process; return value and noise by variable, level and figure."""
    train(job, run, (), False, Alone(), wings_of=wings_of)
    record = json.loads((run / "metrics.jsonl").read_text())
    return {
        (one["variable"], one["level"], one["figure"]): (one["value"], one["noise"])
        for one in record["noised"]["figures"]
    }


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a site with a fixed secret."""
    folder = tmp_path / "site"
    folder.mkdir(mode=0o700)
    (folder / "key").write_bytes(bytes(range(32)))
    monkeypatch.setenv("MPIFL_SITE", str(folder))
    return folder


def ledger(site: Path) -> list[dict[str, Any]]:
    path = site / "ledger.jsonl"
    return [*map(json.loads, path.read_text().splitlines())] if path.exists() else []


def test_figures_without_noise_are_those_of_the_pooled_rows(tmp_path: Path, site: Path) -> None:
    """With a missing and two infinite numbers, numbers out of bounds and a silo of one row; by masked sums,
    too. The standardised column has its bounds in its own unit."""
    x, y = rows_of()
    x[3, 0], x[4, 0], x[5, 0] = np.nan, np.inf, -np.inf
    units = {"rare": {"mean": 0.5, "deviation": 2.0}}
    source = {"encoding": record_of("table", spec={"features": units})}
    shards = write(tmp_path / "shards", x, y, [100, 102, 200], source=source)
    bounds = {**KEYS["bounds"], "rare": [0, 4]}  # type: ignore[dict-item]
    found = figures_of(job_of(shards, bounds=bounds), tmp_path / "run")
    spent = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())["epsilon"]
    summed = job_of(shards, None, {"security": {"masks": False}}, bounds=bounds)
    in_sum = figures_of(summed, tmp_path / "sum")
    assert json.loads((tmp_path / "sum" / "metrics.jsonl").read_text())["epsilon"] == spent
    for by in (found, in_sum):
        assert by["rows", "", "count"][0] == N
        assert [by["cp", level, "count"][0] for level in "abc"] == x[:, 3:6].sum(0).tolist()
        assert [by["outcome", level, "count"][0] for level in ("no", "yes")] == [N - y.sum(), y.sum()]
        for name, column in (("age", x[:, 0]), ("score", x[:, 2]), ("rare", 2 * x[:, 1] + 0.5)):
            clipped = np.clip(column[~np.isnan(column)].astype(float), *bounds[name])
            wanted = {"count": len(clipped), "sum": clipped.sum(), "mean": clipped.mean()}
            wanted |= {"variance": clipped.var(), "deviation": clipped.std()}
            for figure, value in wanted.items():
                told, noise = by[name, "", figure]
                assert abs(told - value) <= 5 * noise, figure
                assert figure in ("count", "sum") or noise < 0.2 * clipped.std()
            counts = [value for (of, level, _), (value, _) in by.items() if of == name and level]
            assert counts == np.histogram(clipped, 5, bounds[name])[0].tolist()


def test_the_charge_is_that_of_all_parts_composed(tmp_path: Path, site: Path) -> None:
    shards = made(tmp_path / "shards", 3)
    found = figures_of(job_of(shards, {"noise": 2.0}), tmp_path / "run")
    assert [one["taken"] for one in ledger(site)] == [[[2.0, 1.0, 1]]] * 3
    parts = 1 + 2 + 2 * 4
    composed = pld.from_gaussian_mechanism(
        2.0 * math.sqrt(parts), value_discretization_interval=1e-4
    ).self_compose(parts)
    record = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert record["epsilon"] == pytest.approx(composed.get_epsilon_for_delta(1e-4), rel=2e-3)
    assert record["epsilon"] == epsilon_of([Steps(2.0, 1.0, 1)], 1e-4)
    assert figures_of(job_of(shards, {"noise": 2.0}), tmp_path / "again") == found
    spec, job = read_any(shards), Job.model_validate(job_of(shards, {"noise": 2.0}))
    planned = plans(job, spec, job.build_algorithm().for_federation(spec))
    assert sum(one.examples for one in planned) == N  # `mpifl privacy` tells rows of all splits
    assert {(one.rate, one.steps) for one in planned} == {(1.0, 1)}
    assert len(ledger(site)) == 3  # the same question has the same answer, and costs nothing again


OF = BoundedColumn(3, -1.5, 4.0)
WILD = [BoundedColumn(2, 0.0, 1.0, *unit) for unit in ((1e308, 1e308), (0.0, 5e-324), (-1e308, 1e300))]
"""By units that a server may state falsely."""
SUMS: Sequence[BoundedSum] = (
    RowCount(),
    LevelCounts((0, 1, 2), (0.5, -0.1, 0.5)),
    *(PowerSum(OF, power) for power in range(3)),
    BinCounts(OF, 7),
    BinCounts(BoundedColumn(0, 0.0, 1e300), 1),
    *(PowerSum(of, 1) for of in (BoundedColumn(2, 1.0, 1.0), BoundedColumn(2, -1e308, 1e308), *WILD)),
    *(BinCounts(of, 3) for of in WILD),
)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=6))
def test_a_row_changes_each_sum_by_its_bound_at_most(rows: list[list[float]]) -> None:
    numbers = torch.tensor(rows, dtype=torch.float64)
    whole = [one.rows(numbers).sum(0) for one in SUMS]
    for nth in range(len(rows)):
        left = torch.cat([numbers[:nth], numbers[nth + 1 :]])
        change = [
            float((all_ - one.rows(left).sum(0)).double().norm())
            for one, all_ in zip(SUMS, whole, strict=True)
        ]
        assert all(moved <= one.bound for moved, one in zip(change, SUMS, strict=True))
        shares = (
            (moved / one.deviation(1.5, len(SUMS))) ** 2 for moved, one in zip(change, SUMS, strict=True)
        )
        assert sum(shares) <= 1.5**-2 * (1 + 1e-12)


def test_the_bounds_are_reached() -> None:
    most = torch.tensor([[1.0, 0.0, 0.0, 4.0]], dtype=torch.float64)
    assert all(float(one.rows(most).double().norm()) == one.bound for one in SUMS[:7])
    assert {one.bound for one in SUMS} == {1, GRID}


class Unbounded(RowCount):
    """A sum of a user's own, whose bound nobody knows."""

    def rows(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers[:, :1].long()


LOUD = (Unbounded(), PowerSum(OF, -1), PowerSum(OF, 3), PowerSum(OF, 0.5))  # type: ignore[arg-type]


class OwnTable(DPTable):
    """A table of a user's own."""

    loud: int = 0

    def for_federation(self, spec: Any) -> DPTable:
        found = super().for_federation(spec)
        found._sums = (LOUD[self.loud],)
        return found


def test_a_sum_of_ones_own_is_refused(tmp_path: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_of(made(tmp_path / "shards", 1), {"clip": 1.0})
    for loud in (0, 1):
        job["algorithm"] = {"name": "reference.test_dptable:OwnTable", "loud": loud}
        with pytest.raises(RoundLost, match="silo 0: refused"):
            figures_of(job, tmp_path / f"run {loud}")
        assert "asks for sums whose bound is not known" in capsys.readouterr().err
    assert not ledger(site)
    assert [is_bounded(one) for one in (*LOUD, *SUMS)] == [False] * len(LOUD) + [True] * len(SUMS)
    for one in SUMS:  # no single sum has a method of its own
        with pytest.raises((AttributeError, TypeError)):
            one.rows = Unbounded().rows  # type: ignore[method-assign]
        with pytest.raises((AttributeError, TypeError)):
            object.__setattr__(one, "rows", Unbounded().rows)


WHOLE = np.arange(20, 100.5)
"""Values of a standardised column, of which many are edges."""


@pytest.mark.parametrize(
    ("values", "bounds", "bins"),
    [
        (WHOLE, (18.0, 100.0), 82),
        (WHOLE, (20.0, 100.0), 8),
        (WHOLE / 10, (0.1, 9.7), 32),
        (WHOLE / 1000 - 0.06, (-0.03, 0.03), 6),
        (WHOLE * 1e6, (3e7, 9e7), 7),
        (np.arange(0, 1200.0) / 10, (80.0, 120.0), 400),
    ],
    ids=str,
)
def test_sums_of_a_standardised_column_do_not_depend_on_mean_and_deviation(
    values: np.ndarray, bounds: tuple[float, float], bins: int
) -> None:
    draw, found = np.random.default_rng(3), []
    ends = [float(edge) for edge in BoundedColumn(0, *bounds).edges(bins)]
    tiny = 1e-9 * (bounds[1] - bounds[0])  # numbers equal to an edge lie above it
    wanted = np.bincount(np.searchsorted(np.array(ends) - tiny, values, side="right"), minlength=bins)
    for _ in range(60):
        some = draw.choice(values, 9)
        unit = (float(some.mean()), float(some.std()) + tiny)
        assert Unit(*unit).tells(*bounds, float(BoundedColumn(0, *bounds).step))
        stored = torch.tensor(((values - unit[0]) / unit[1]).astype(np.float32))[:, None].double()
        of = BoundedColumn(0, *bounds, *unit)
        assert BinCounts(of, bins).rows(stored).sum(0).tolist() == wanted.tolist()
        found.append([PowerSum(of, power).rows(stored).tolist() for power in range(3)])
    assert found.count(found[0]) == len(found)


def test_noise_has_the_law_of_rounded_normal_numbers() -> None:
    of = BoundedColumn(0, 0.0, 1.0)
    one, other, n, z = BinCounts(of, 30_000), PowerSum(of, 1), 30_000, 1.7
    drawn = noise_of_sums([one, other], z, Draws(bytes(32), "law")).numpy()
    sigma = z * math.sqrt(2)
    law, ends = NormalDist(0, sigma), np.arange(-7, 9) - 0.5
    edges = np.array([0.0, *map(law.cdf, ends), 1.0])
    counts = np.histogram(drawn[:n], [-np.inf, *ends, np.inf])[0]
    assert stats.chisquare(counts, n * np.diff(edges)).pvalue > 0.01
    wide = np.array([noise_of_sums([other], z, Draws(bytes(32), nth)).item() for nth in range(3000)])
    assert stats.kstest(wide / (z * GRID), "norm").pvalue > 0.01
    assert len({*(wide % 1024)}) > 900  # low bits are noise, too
    again = noise_of_sums([one, other], z, Draws(bytes(32), "law")).numpy()
    anew = noise_of_sums([one, other], z, Draws(bytes([1] * 32), "law")).numpy()
    assert (again == drawn).all()
    assert abs(np.corrcoef(anew[:n], drawn[:n])[0, 1]) < 0.03


def test_figures_vary_by_the_noise_that_is_told(tmp_path: Path, site: Path) -> None:
    """Each silo draws its own."""
    shards, found = made(tmp_path / "shards", 4), []
    noise_of = {f"{silo}": noise for silo, noise in enumerate([0.3, 1.2, 0.7, 0.5])}
    own = {"noise_of": noise_of, "delta": 1e-4}
    for nth in range(24):
        job = {**job_of(shards, bounds={"age": [19_990, 20_010]}), "seed": nth, "privacy": own}
        found.append(figures_of(job, tmp_path / str(nth)))
    for key, (_, told) in found[0].items():
        values = [one[key][0] for one in found if key in one]
        if key[2] != "deviation":
            share = np.std(values, ddof=1) / told
            assert 0.5 < share < 1.6, key


def test_a_spent_budget_releases_and_charges_nothing(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silo 1 alone has spent: the others are not asked. What it has answered of other rows, or by another
    PyTorch, does not count."""
    x, y = rows_of()
    shards = write(tmp_path / "shards", x, y, [100, 200], held=0)  # a split without a row
    figures_of(job_of(shards, {"noise": 1.0}), tmp_path / "first")
    before = (site / "ledger.jsonl").read_text().splitlines(keepends=True)
    (site / "ledger.jsonl").write_text(before[1])
    spent = epsilon_of([Steps(1.0, 1.0, 1)], 1e-4)
    (site / "budget.toml").write_text(f"epsilon = {1.1 * spent}\ndelta = 1e-4\n")
    with pytest.raises(InputError, match="silo 1: privacy budget is spent"):
        figures_of(job_of(shards, {"noise": 1.0}, bins=6), tmp_path / "second")
    y[150] = 1 - y[150]
    changed = write(tmp_path / "changed", x, y, [100, 200], held=0)
    with pytest.raises(InputError, match="silo 1: privacy budget is spent"):
        figures_of(job_of(changed, {"noise": 1.0}), tmp_path / "on others")
    with monkeypatch.context() as patch:  # it has answered this very job, by another PyTorch
        patch.setattr("torch.__version__", "1.0")
        with pytest.raises(InputError, match="silo 1: privacy budget is spent"):
            figures_of(job_of(shards, {"noise": 1.0}), tmp_path / "by another")
    assert (site / "ledger.jsonl").read_text() == before[1]
    assert not any((tmp_path / "second").glob("metrics.jsonl"))
    (site / "budget.toml").write_text(f"epsilon = {1.6 * spent}\ndelta = 1e-4\n")
    figures_of(job_of(shards, {"noise": 1.0}, bins=6), tmp_path / "third")
    assert len(ledger(site)) == 4


def test_what_is_shown_says_what_is_protected(
    tmp_path: Path, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = made(tmp_path / "shards", 3, source={"dropped": {"rows": 7, "of": N + 7}})
    found = figures_of(job_of(shards, {"noise": 2.0}), tmp_path / "run")
    show_stats(tmp_path / "run")
    said = capsys.readouterr().out
    epsilon = epsilon_of([Steps(2.0, 1.0, 1)], 1e-4)
    for part in (
        f"epsilon {epsilon:.4g}",
        "delta 0.0001",
        "one row added or removed",
        "SD of noise",
        "Epsilon is given the encoding",
        "for all figures of this table",
        "mpifl privacy --delta 0.0001 tells the total",
        "quantiles",
    ):
        assert part in said, part
    page = write_report(tmp_path / "run").read_text()
    assert "SD of noise" in page
    assert "hides counts of rows and labels" in page
    assert "training examples" not in page
    assert "left out" not in page
    lines = (tmp_path / "run" / "dptable.csv").read_text().splitlines()
    assert lines[0] == "variable,level,figure,value,noise"
    assert len(lines) == 1 + len(found)
    latex = (tmp_path / "run" / "dptable.tex").read_text()
    assert "dptable.csv and .tex" in said
    assert r"\quad cp" in latex
    assert latex.count(r"\\") == 1 + len(found), "a row for each figure, and the heads"
    assert rf"epsilon {epsilon:.4g} at delta 0.0001" in latex


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"least": 5}, "least: 'dptable': withholds no small counts"),
        ({"by_silo": True}, "by_silo: 'dptable': adds up the silos' sums"),
        ({"quantiles": [0.5]}, "quantiles: 'dptable': exact quantiles have no noise; read them off"),
        ({"minimum": True}, "minimum: 'dptable': extremes are of single rows"),
        ({"correlations": True}, "correlations: 'dptable': products of columns are not noised; use 'fedavg'"),
        ({"survival": True}, "survival: 'dptable': curves are not noised"),
        ({"bounds": {"age": [2, 1]}}, "bounds.age = [2, 1]: give a lower and a larger upper"),
        ({"bounds": {"agee": [1, 2]}}, "bounds.agee: is no column; did you mean 'age'?"),
        ({"bounds": {"cp": [1, 2]}}, "bounds.cp: is a category"),
        ({"categories": ["cp", "cp"]}, "'cp' is given twice or no category"),
        ({"tables": {"privacy": None}}, "has noise by [privacy], and the job has none; add it"),
        ({"privacy": {"clip": 1.0}}, "[privacy] clip = 1.0: 'dptable' clips columns"),
        ({"privacy": {"level": "silo"}}, "hides rows and no silos; use [privacy] level = 'example'"),
        ({"privacy": {"noise_at": "sum"}}, "'dptable' takes steps of its own at silos"),
        ({"privacy": {"delta": 0.1}}, "the largest silo has 300 examples"),
        ({"privacy": {"evaluate_unprotected": True}}, "'dptable' scores no model"),
        ({"tables": {"rounds": 2}}, "rounds = 2: dptable makes its table in one round"),
    ],
    ids=str,
)
def test_what_is_refused(job: dict[str, Any], says: str, tmp_path: Path, site: Path) -> None:
    shards = made(tmp_path / "shards", 1)
    made_of = job_of(shards, **job)
    made_of = {key: value for key, value in made_of.items() if value is not None}
    privacy = job.get("privacy", {})
    made_of |= {"security": {}} if "noise_at" in privacy else {}
    made_of |= {"cohort": {"weights": "uniform"}} if "level" in privacy else {}
    with pytest.raises(InputError) as error:
        figures_of(made_of, tmp_path / "run")
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not ledger(site)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"filled": {"columns": {"age": {"the mean": 3}}}}, "bounds.age = [19998, 20003]: the gaps of this"),
        ({"missing": "mean", "mean": 2e4}, "gaps of this column get the mean of other rows, which noise"),
        ({"mean": 7e4, "deviation": 9.0}, "lie far from 70000, the mean by which the shards were standard"),
        ({"missing": "constant", "constant": 2e4, "mean": 2e4, "deviation": 1.0}, ""),
    ],
    ids=str,
)
def test_columns_whose_numbers_depend_on_other_rows_are_refused(
    source: Any, says: str, tmp_path: Path, site: Path
) -> None:
    spec = {"features": {"age": source}}
    told = source if "filled" in source else {"encoding": record_of("table", spec=spec)}
    job = job_of(made(tmp_path / "shards", 1, source=told))
    if not says:
        figures_of(job, tmp_path / "run")
        return
    with pytest.raises(InputError, match=re.escape(says)) as error:
        figures_of(job, tmp_path / "run")
    assert re.search("; (widen|cut)", str(error.value))
    assert not ledger(site)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bounds": ["age=18:90"]}, "--epsilon: not given; --bounds, "),
        ({"epsilon": 1.0}, "--delta: not given; --epsilon needs it"),
        ({"epsilon": 1.0, "delta": 1.0}, "--epsilon 1 --delta 1: use numbers above 0"),
        ({"epsilon": 1.0, "delta": 1e-5, "bounds": ["age"]}, "--bounds age: is not a column with its bounds"),
        (
            {"epsilon": 1.0, "delta": 1e-5, "bounds": ["a=1:2", "a=1:3"]},
            "--bounds a=1:3: names no column, or",
        ),
    ],
    ids=str,
)
def test_what_the_command_refuses(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        look_commands.stats(tmp_path, tmp_path / "run", **options)
    assert says in str(error.value)


def test_the_commands_noise_costs_epsilon_at_most() -> None:
    told = privacy_of(1.0, 1e-5)
    assert 0.99 < epsilon_of([Steps(told["noise"], 1.0, 1)], told["delta"]) <= 1.0
    assert keys_of_noised(["a=b=-1:2.5"], ["c"], 0) == {
        "bounds": {"a=b": [-1, 2.5]},
        "categories": ["c"],
        "bins": 0,
    }


@pytest.mark.parametrize("name", ["tableone", "kaplanmeier", "newton", "cox"])
def test_exact_sums_refuse_privacy_and_say_what_would_do(name: str, tmp_path: Path, site: Path) -> None:
    shards = made(tmp_path / "shards", 1)
    task = {"kaplanmeier": "survival", "cox": "survival"}.get(name, "binary")
    tables = {"algorithm": {"name": name}, "task": {"name": task}}
    with pytest.raises(
        InputError, match=rf"\[privacy\]: '{name}' sends exact sums .*; use '(dptable|fedavg)' "
    ):
        figures_of(job_of(shards, {"clip": 1.0}, tables), tmp_path / "run")
