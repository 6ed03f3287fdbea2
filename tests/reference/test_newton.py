"""Newton's method gives the pooled regression, and the same bits however the rows are cut into silos."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ranks
from hypothesis import example, given, settings, strategies as st

from mpifl.cli.plan.played_rounds import play
from mpifl.data import Targets
from mpifl.data.shards.shards import Features, FederationSpec
from mpifl.report.terminal import show_coefficients
from mpifl.run.job import read_job
from mpifl.sums import row_sums
from mpifl.sums.row_sums import Part
from mpifl.wings.analysis import exact_products as exact, predictor
from mpifl.wings.analysis.regression.coefficients import compared_with, independent
from mpifl.wings.analysis.regression.families import FAMILIES
from scripts.write_shard import write_shard

N, COLUMNS = 150, Features(shape=(5,), dtype="float32")
CUTS = {"one": [], "four": [20, 21, 100], "seven": [10, 30, 31, 60, 90, 120]}
"""Where the rows of each folder are cut; those of `seven` are shuffled before."""


def job(name: str, shards: str, **tables: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "model": {"name": "logreg"},
        "task": {"name": "binary"},
        "algorithm": {"name": "newton"},
        "device": "cpu",
        "evaluate": {"every": 1000},
    }
    return {"name": name, "shards": shards, "seed": 11, "rounds": 8, **usual, **tables}


Names = tuple[str, ...]
RIDGE = {"name": "newton", "ridge": 2.0}
DAMPED = {"name": "newton", "damping": 1.0}
VALUES = {"task": {"name": "regression"}, "rounds": 3}
JOBS = [
    *(job(f"yes-{cut}", f"yes-{cut}") for cut in CUTS),
    job("ridge", "yes-four", algorithm=RIDGE),
    job("damped", "yes-four", algorithm=DAMPED, rounds=2),
    *(job(f"values-{cut}", f"values-{cut}", **VALUES) for cut in CUTS),
]


def rows_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns of scales from 1e-3 to 1e3, the last the third's double and one; yes or no, or values."""
    draw = np.random.default_rng(4)
    x = draw.normal(size=(N, 5)) * [1, 1e-3, 1e3, 1, 1] + [0, 0, 500, 3, 0]
    x[:, 3] = draw.integers(0, 2, N)
    x[:, 4] = 1 - x[:, 3]
    x = x.astype(np.float32)
    eta = 0.3 + x[:, 0] + 300 * x[:, 1] - 1e-3 * (x[:, 2] - 500) + 0.5 * x[:, 3]
    if kind == "yes":
        return x, (draw.random(N) < 1 / (1 + np.exp(-eta))).astype(np.int64)
    return x, (eta + draw.normal(size=N)).astype(np.float32)


def design(x: np.ndarray) -> np.ndarray:
    """Return the columns that are not left out, the intercept first."""
    return np.column_stack([np.ones(len(x)), x[:, :4].astype(np.float64)])


def write(folder: Path, silos: list[tuple[np.ndarray, np.ndarray]], kind: str, names: Names = ()) -> None:
    """Write a folder of shards."""
    folder.mkdir()
    of: dict[str, Any] = {"features": COLUMNS, "classes": 2}
    if kind == "values":
        of = {"features": COLUMNS, "classes": None, "targets": Targets(shape=(), dtype="float32")}
    entries = [
        write_shard(folder / f"{k}.h5", {"train": silo}, silo=k, name=f"silo {k}", **of)
        for k, silo in enumerate(silos)
    ]
    standardised = {"age": {"mean": 40.0, "deviation": 12.5}}
    told = {
        "format_version": 1 + (kind == "values"),
        "name": "rows",
        "seed": 0,
        "scheme": {"name": "cut"},
        "source": {"encoding": {"kind": "table", "digest": "", "spec": {"features": standardised}}},
        "silos": entries,
    }
    FederationSpec(**told, **of, feature_names=names or None).write(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, here = tmp_path_factory.mktemp("newton"), Path(__file__).parent
    for kind in ("yes", "values"):
        x, y = rows_of(kind)
        for cut, places in CUTS.items():
            order = np.random.default_rng(1).permutation(N) if cut == "seven" else np.arange(N)
            silos = list(zip(np.split(x[order], places), np.split(y[order], places), strict=True))
            write(base / f"{kind}-{cut}", silos, kind)
    (base / "jobs.json").write_text(json.dumps(JOBS))
    done = ranks(1, here / "drive.py", base / "jobs.json", base, timeout=200, cwd=base)
    assert done.returncode == 0, done.stderr[-4000:]
    return base


def last(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return found


def column(run: Path, key: str) -> np.ndarray:
    return np.array([row[key] for row in last(run)["coefficients"] if "estimate" in row])


def inverted(matrix: np.ndarray) -> np.ndarray:
    scale = 1 / np.sqrt(np.diag(matrix))
    return np.linalg.inv(matrix * np.outer(scale, scale)) * np.outer(scale, scale)


def by_newton(kind: str, ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray, float]:
    """Return coefficients, standard errors and log-likelihood of the pooled rows, in plain numpy."""
    x, y = rows_of(kind)
    a, beta = design(x), np.zeros(5)
    penalty = ridge * np.array([0, 1, 1, 1, 1.0])
    for _ in range(30):
        mu = 1 / (1 + np.exp(-a @ beta)) if kind == "yes" else a @ beta
        v = mu * (1 - mu) if kind == "yes" else np.ones(N)
        information = a.T @ (a * v[:, None]) + np.diag(penalty)
        inverse = inverted(information)
        beta = beta + inverse @ (a.T @ (y - mu) - penalty * beta)
    squares = float(((y - mu) ** 2).sum())
    spread = 1.0 if kind == "yes" else squares / (N - 5)
    likelihood = (y * np.log(mu) + (1 - y) * np.log(1 - mu)).sum() if kind == "yes" else 0.0
    return beta, np.sqrt(np.diag(inverse) * spread), float(likelihood)


@pytest.mark.parametrize("kind", ["yes", "values"])
def test_all_cuts_give_the_same_bytes_and_the_pooled_regression(
    runs: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [
        [{key: of for key, of in json.loads(line).items() if key in KEPT} for line in lines.splitlines()]
        for lines in ((runs / f"{kind}-{cut}" / "metrics.jsonl").read_text() for cut in CUTS)
    ]
    assert told[0] == told[1] == told[2]
    models = {(runs / f"{kind}-{cut}" / "model.safetensors").read_bytes() for cut in CUTS}
    assert len(models) == 1
    beta, errors, likelihood = by_newton(kind)
    np.testing.assert_allclose(column(runs / f"{kind}-four", "estimate"), beta, rtol=1e-10)
    np.testing.assert_allclose(column(runs / f"{kind}-four", "error"), errors, rtol=1e-10)
    if kind == "yes":
        assert last(runs / "yes-four")["log_likelihood"] == pytest.approx(likelihood, rel=1e-12)
    monkeypatch.chdir(runs)
    planned = [(one.sent, one.received) for one in play(read_job(runs / f"{kind}-four" / "job.toml")).rounds]
    lines = (runs / f"{kind}-four" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert planned == [(one["bytes_sent"], one["bytes_received"]) for one in records]


KEPT = ("round", "decrement", "log_likelihood", "aic", "coefficients")


def test_ridge_spares_the_intercept_and_damping_shortens_steps(runs: Path) -> None:
    beta, errors, _ = by_newton("yes", ridge=2.0)
    np.testing.assert_allclose(column(runs / "ridge", "estimate"), beta, rtol=1e-9)
    np.testing.assert_allclose(column(runs / "ridge", "error"), errors, rtol=1e-9)
    x, y = rows_of("yes")
    centre, beta = np.r_[0, design(x)[:, 1:].mean(axis=0)], np.zeros(5)
    a = design(x) - centre
    for _ in range(2):
        mu = 1 / (1 + np.exp(-a @ beta))
        beta = beta + inverted(a.T @ (a * (mu * (1 - mu))[:, None]) + np.eye(5)) @ (a.T @ (y - mu))
    beta[0] -= beta @ centre
    np.testing.assert_allclose(column(runs / "damped", "estimate"), beta, rtol=1e-9)


def test_a_column_that_follows_from_others_is_left_out(runs: Path) -> None:
    assert last(runs / "yes-one")["coefficients"][-1] == {"name": "x4", "left_out": True}


@pytest.mark.parametrize("kind", ["yes", "values"])
def test_the_table_is_that_of_statsmodels(runs: Path, kind: str) -> None:
    sm = pytest.importorskip("statsmodels.api", reason="of the extra 'oracles'")
    x, y = rows_of(kind)
    fitted = sm.OLS(y.astype(float), design(x)).fit()
    if kind == "yes":
        fitted = sm.Logit(y, design(x)).fit(method="newton", tol=1e-14, maxiter=50, disp=0)
    run = runs / f"{kind}-seven"
    low, high = np.asarray(fitted.conf_int()).T
    for key, right in {"estimate": fitted.params, "error": fitted.bse, "low": low, "high": high}.items():
        np.testing.assert_allclose(column(run, key), right, rtol=1e-10, err_msg=key)
    np.testing.assert_allclose(column(run, "p"), fitted.pvalues, rtol=1e-8)
    assert last(run)["log_likelihood"] == pytest.approx(fitted.llf, rel=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 400),
    st.lists(st.integers(-40, 40), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_sums_of_products_are_the_same_over_all_cuts(rows: int, powers: list[int], seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    scales = torch.tensor([2.0**power for power in powers], dtype=torch.float64)
    x = (torch.randn(rows, len(powers), generator=draw, dtype=torch.float64) * scales).float().double()
    places = sorted(torch.randint(0, rows + 1, (3,), generator=draw).tolist())
    shuffled = x[torch.randperm(rows, generator=draw)].tensor_split(places)
    tops = exact.tops_of(sum(exact.exponent_counts(part) for part in shuffled))

    def added(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        words = sum(exact.packed(exact.products(part, part, tops, tops)) for part in parts)
        return exact.unpacked(torch.as_tensor(words), tops, tops)

    assert torch.equal(added((x,)), added(shuffled))
    size = torch.outer(x.square().sum(0).sqrt(), x.square().sum(0).sqrt()).clamp(min=1e-300)
    assert float(((added((x,)) - x.T @ x) / size).abs().max()) < 1e-12


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32))
def test_levels_of_products_are_those_of_the_slices_by_their_definition(
    rows: int, p: int, q: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    sides = [torch.randn(rows, many, generator=draw, dtype=torch.float64) ** 3 for many in (p, q)]
    tops = [exact.powers_above(side.abs().amax(0)) for side in sides]

    def cut(side: torch.Tensor, top: torch.Tensor) -> list[np.ndarray]:
        rest, found = np.vectorize(Fraction, otypes=[object])(side / top), list[np.ndarray]()
        for nth in range(1, exact.SLICES + 1):
            unit = 2 ** (exact.BITS * nth)
            found.append(np.vectorize(round, otypes=[object])(rest * unit))
            rest = rest - found[-1] * Fraction(1, unit)
        return found

    a, b = map(cut, sides, tops)
    levels = [sum(a[i].T @ b[level - i] for i in range(level + 1)).tolist() for level in range(exact.SLICES)]
    assert exact.products(*sides, *tops).tolist() == levels


NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5**19, -(0.5**20), 1.5 * 0.5**57, 5e-324, -1e-310, 1e-45, 3e38, -1e-30]
INFINITE = torch.tensor([[1e300, 2.0**129], [np.inf, -np.inf], [np.nan, np.nan]], dtype=torch.float64)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**32), st.booleans())
@example(1, 1, 1, 0, False)
@example(exact.BLOCK, 60, 60, 1, True)
def test_exact_sums_have_the_same_bits_in_c_and_in_tensors(
    rows: int, p: int, q: int, seed: int, by_rows: bool
) -> None:
    """Columns are normal, constant, or of numbers of any size; they lie by row or by column, with a weight
    for each row, on one thread or on several."""
    draw = np.random.default_rng(seed)

    def side(columns: int) -> torch.Tensor:
        found = draw.normal(size=(rows, columns)) * 2.0 ** draw.integers(-120, 120, columns)
        found[:, draw.random(columns) < 0.2] = draw.choice(NUMBERS)
        mixed = draw.random(columns) < 0.3
        found[:, mixed] = draw.choice(NUMBERS, (rows, mixed.sum()))
        return torch.from_numpy(found if by_rows else np.asfortranarray(found))

    left, right, last = side(p), side(q), side(1)
    weights = torch.from_numpy(draw.random(rows))
    parts = [Part(left, weights), Part(last)], [Part(right), Part(last, weights)]
    tops = [
        exact.powers_above(torch.cat(pair, 1).abs().amax(0)).clamp(min=2.0**-126)
        for pair in ((left, last), (right, last))
    ]
    beta = side(q)[0].contiguous()

    def summed() -> tuple[torch.Tensor, ...]:
        counts = exact.exponent_counts(right), exact.exponent_counts(INFINITE)
        return exact.products(*parts, *tops), predictor(right, beta), *counts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_sums, "LEAST", 1 << 12)
        found = summed()
        patch.setattr(torch, "get_num_threads", lambda: 3)
        threaded = summed()
        patch.setattr(row_sums, "compiled", lambda: None)
        wanted = summed()
    assert int(wanted[-1].reshape(2, -1)[:, -1].sum()) == INFINITE.numel()
    for ways in zip(found, threaded, wanted, strict=True):
        assert len({way.numpy().tobytes() for way in ways}) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-800, 800), min_size=1, max_size=200), st.integers(1, 199))
def test_what_a_row_adds_does_not_depend_on_its_place(values: list[float], place: int) -> None:
    eta = torch.tensor(values, dtype=torch.float64)
    for family in FAMILIES.values():
        whole = family.terms(eta, eta.abs().round())
        parts = [family.terms(part, part.abs().round()) for part in eta.tensor_split([place])]
        same(whole, parts)


def same(whole: Any, parts: list[Any]) -> None:
    for name in ("residual", "weight", "likelihood"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts]))


def test_columns_that_follow_from_others_are_found_in_order() -> None:
    draw = np.random.default_rng(0)
    a = draw.normal(size=(50, 6))
    a[:, 2], a[:, 5], a[:, 3] = a[:, 0] + 2 * a[:, 1], 0, a[:, 4] * 1e-6
    information = torch.from_numpy(a.T @ a)
    assert independent(information).tolist() == [True, True, False, True, False, False]
    levels = [[0, 1, 2]]
    kept = independent(information, levels)
    assert kept.tolist() == [False, True, True, True, False, False]
    assert compared_with(information, kept, levels).nonzero().flatten().tolist() == [0]
    a[:, 0], a[:, 2] = 0, 2 * a[:, 1]  # a first level that never occurs is no reference
    information = torch.from_numpy(a.T @ a)
    kept = independent(information, levels)
    assert kept.tolist() == [False, False, True, True, False, False]
    assert compared_with(information, kept, levels).nonzero().flatten().tolist() == [1]


def test_levels_are_compared_with_the_first_and_never_with_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first in order is the reference of R and statsmodels, too."""
    x, y = rows_of("values")
    level = np.random.default_rng(2).integers(0, 3, N)
    x = np.column_stack([x[:, :2], *(level == nth for nth in range(3))])
    names = ("age", "dose", "cp=a", "cp=b", "cp=missing")
    assert one(x, y, tmp_path, "values", names).returncode == 0
    a = np.column_stack([np.ones(N), np.delete(x, 2, axis=1)]).astype(np.float32).astype(np.float64)
    right = np.linalg.lstsq(a, y.astype(np.float64), rcond=None)[0]
    np.testing.assert_allclose(column(tmp_path / "one", "estimate"), right, rtol=1e-9)
    rows = {row["name"]: row for row in last(tmp_path / "one")["coefficients"]}
    assert rows["cp=a"] == {"name": "cp=a", "left_out": True, "reference": True}
    assert {name for name, row in rows.items() if row.get("against") == "cp=a"} == {"cp=b", "cp=missing"}
    show_coefficients(tmp_path / "one", tmp_path / "table.csv")
    printed = capsys.readouterr().out
    assert "other levels of a category are compared with: cp=a" in printed
    assert "per deviation of the column, as the shards have it: age 12.5" in printed
    with (tmp_path / "table.csv").open() as file:
        table = [*csv.DictReader(file)]
    assert [row["column"] for row in table] == [*rows]
    assert [table[1]["deviation"], table[1]["against"], table[-1]["against"]] == ["12.5", "", "cp=a"]


def one(
    x: np.ndarray,
    y: np.ndarray,
    tmp_path: Path,
    kind: str = "yes",
    names: Names = (),
    **tables: Any,
) -> Any:
    """Train on rows in one silo; return what the command did, and the run."""
    write(tmp_path / "shards", [(x.astype(np.float32), y)], kind, names)
    more = {"model": {"name": "logreg"}, "rounds": 30, **(VALUES if kind == "values" else {}), **tables}
    (tmp_path / "jobs.json").write_text(json.dumps([job("one", "shards", **more)]))
    return ranks(1, Path(__file__).parent / "drive.py", tmp_path / "jobs.json", tmp_path, cwd=tmp_path)


def test_a_column_far_from_0_keeps_its_digits(tmp_path: Path) -> None:
    x, y = rows_of("yes")
    whole = np.round(30 * x[:, 0])
    x[:, 0] = 20_000_000 + 2 * whole
    assert one(x, y, tmp_path).returncode == 0
    a, beta = np.column_stack([np.ones(N), 2 * whole, x[:, 1:4].astype(np.float64)]), np.zeros(5)
    for _ in range(30):
        mu = 1 / (1 + np.exp(-a @ beta))
        inverse = inverted(a.T @ (a * (mu * (1 - mu))[:, None]))
        beta = beta + inverse @ (a.T @ (y - mu))
    np.testing.assert_allclose(column(tmp_path / "one", "estimate")[1:], beta[1:], rtol=1e-9)
    np.testing.assert_allclose(
        column(tmp_path / "one", "error")[1:], np.sqrt(inverse.diagonal())[1:], rtol=1e-9
    )


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("separated", "columns tell every outcome"),
        ("one class", "all outcomes are the same"),
        ("few", "4 training examples for 6 coefficients"),
        ("constant", "the outcome is the same everywhere"),
        ("fraction", r"[cohort] fraction = 0.5: newton takes exact sums over all silos"),
        ("upload", r"[compression] upload = 'topk': newton takes exact sums"),
        ("model", "fits a coefficient for each column, and an intercept, to one outcome"),
    ],
)
def test_what_has_no_answer_is_one_line(tmp_path: Path, case: str, line: str) -> None:
    x, y = rows_of("yes")
    kind, tables = (
        "yes",
        {
            "fraction": {"cohort": {"fraction": 0.5}},
            "upload": {"compression": {"upload": "topk", "share": 0.1}},
            "model": {"model": {"name": "mlp", "hidden": [3]}},
        }.get(case, {}),
    )
    if case == "separated":
        y = (x[:, 0] > 0).astype(np.int64)
    if case == "one class":
        y = np.ones_like(y)
    if case == "few":
        x, y = x[:4], y[:4]
    if case == "constant":
        kind, y = "values", np.full(N, 2.5, np.float32)
    done = one(x, y, tmp_path, kind, **tables)
    assert done.returncode != 0
    assert line in done.stderr
    assert "ZeroDivision" not in done.stderr
