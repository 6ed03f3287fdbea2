"""Generalised linear models with offset and weights are those of the pooled rows, in plain numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.test_refusals import Alone
from scipy import special, stats

from mpifl.data import Targets
from mpifl.data.shards.shards import Features, FederationSpec
from mpifl.report.terminal import show_coefficients
from mpifl.training.loop import train
from mpifl.wings import wings_of
from scripts.write_shard import write_shard

NAMES = ("age", "site=a", "site=b", "site=c", "log_years", "share")
OFFSET, WEIGHT, N = 4, 5, 120
Rows = tuple[np.ndarray, np.ndarray]
TASKS = ("regression", "binary", "counts")


def rows_of(task: str, seed: int = 6, n: int = N) -> Rows:
    """A column far from 0, a category of three, logarithms of person-years, and weights over decades."""
    draw = np.random.default_rng(seed)
    site, age = draw.integers(0, 3, n), draw.normal(60, 9, n)
    site[:3] = range(3)
    years, share = draw.gamma(2, 2, n) + 0.1, 10 ** draw.uniform(-2, 1, n)
    x = np.column_stack([age, *(site == nth for nth in range(3)), np.log(years), share]).astype(np.float32)
    eta = 0.04 * (age - 60) + 0.6 * site - 1 + np.log(years)
    if task == "counts":
        return x, draw.poisson(np.exp(eta)).astype(np.float32)
    if task == "binary":
        return x, (draw.random(n) < special.expit(eta)).astype(np.int64)
    return x, (eta + draw.normal(size=n)).astype(np.float32)


def write(folder: Path, x: np.ndarray, y: np.ndarray, places: list[int], **more: Any) -> Path:
    """Write rows as silos that are cut at these places."""
    folder.mkdir(parents=True)
    whole = y.dtype == np.int64
    of: dict[str, Any] = {"features": Features(shape=(x.shape[1],), dtype="float32")}
    of |= {"classes": 2} if whole else {"classes": None, "targets": Targets(shape=(), dtype="float32")}
    entries = [
        write_shard(folder / f"{k}.h5", {"train": silo}, silo=k, name=f"silo {k}", **of)
        for k, silo in enumerate(zip(np.split(x, places), np.split(y, places), strict=True))
    ]
    told: dict[str, Any] = {"name": "rows", "seed": 0, "scheme": {"name": "cut"}, "source": {}}
    told |= {"format_version": 1 if whole else 2, "feature_names": NAMES[: x.shape[1]], **more}
    FederationSpec(silos=entries, **told, **of).write(folder)
    return folder


def fitted(shards: Path, run: Path, task: str, tables: Any = None, **keys: Any) -> dict[str, Any]:
    """Fit in this process, and return the last round's record."""
    job: dict[str, Any] = {"name": "glm", "shards": str(shards), "rounds": 12, "device": "cpu"}
    job |= {"model": {"name": "logreg"}, "task": {"name": task}, "evaluate": {"every": 1000}}
    job |= {"algorithm": {"name": "newton", **keys}, "tracking": {"console": False}, **(tables or {})}
    train(job, run, (), False, Alone(), wings_of=wings_of)
    found: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return found


def by_newton(task: str, rows: Rows, offset: bool, weights: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Return coefficients, standard errors and log-likelihood, in plain numpy."""
    x, y = rows[0].astype(np.float64), rows[1].astype(np.float64)
    beside = [nth for nth, used in ((OFFSET, not offset), (WEIGHT, not weights)) if used]
    a = np.column_stack([np.ones(len(x)), x[:, [0, 2, 3, *beside]]])
    centre = np.r_[0, a[:, 1:].mean(0)]
    off, w = x[:, OFFSET] * offset, x[:, WEIGHT] if weights else np.ones(len(x))
    beta = np.zeros(a.shape[1])
    beta[0] = np.log(y.mean()) - off.mean() if task == "counts" else 0.0
    for _ in range(40):
        eta = (a - centre) @ beta + off
        mu = {"counts": np.exp, "binary": special.expit, "regression": lambda eta: eta}[task](eta)
        v = {"counts": mu, "binary": mu * (1 - mu), "regression": np.ones_like(mu)}[task]
        inverse = np.linalg.inv((a - centre).T @ ((a - centre) * (v * w)[:, None]))
        beta = beta + inverse @ ((a - centre).T @ (w * (y - mu)))
    back = np.eye(len(beta))
    back[0] -= centre
    squares, free = float((w * (y - mu) ** 2).sum()), len(x) - len(beta)
    spread = squares / free if task == "regression" else 1.0
    likelihood = {
        "counts": lambda: w @ stats.poisson.logpmf(y, mu),
        "binary": lambda: w @ np.where(y > 0, np.log(mu), np.log1p(-mu)),
        "regression": lambda: stats.norm.logpdf(y, mu, np.sqrt(squares / len(x) / w)).sum(),
    }[task]()
    return back @ beta, np.sqrt(np.diag(back @ inverse @ back.T) * spread), float(likelihood)


def told(record: dict[str, Any], key: str) -> np.ndarray:
    return np.array([row[key] for row in record["coefficients"] if "estimate" in row])


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_all_cuts_give_the_pooled_fit_and_the_same_bytes(tmp_path: Path, task: str, weights: bool) -> None:
    x, y = rows_of(task)
    keys = {"offset": "log_years", **({"weights": "share"} if weights else {})}
    models, records = set(), []
    for nth, places in enumerate(([], [17, 18, 70], [*range(3, 60, 3)])):
        order = np.random.default_rng(nth).permutation(N)
        shards = write(tmp_path / f"s{nth}", x[order], y[order], places)
        record = fitted(shards, tmp_path / f"r{nth}", task, **keys)
        records.append(
            {key: record[key] for key in ("decrement", "log_likelihood", "aic", "coefficients", "columns")}
        )
        models.add((tmp_path / f"r{nth}" / "model.safetensors").read_bytes())
    assert len(models) == 1
    assert records[1:] == records[:1] * 2
    beta, errors, likelihood = by_newton(task, (x, y), True, weights)
    np.testing.assert_allclose(told(record, "estimate"), beta, rtol=1e-10)
    np.testing.assert_allclose(told(record, "error"), errors, rtol=1e-10)
    assert record["log_likelihood"] == pytest.approx(likelihood, rel=1e-10)
    numbers = {"age": 0, "log_years": OFFSET} | ({} if weights else {"share": WEIGHT})
    assert record["columns"].keys() == numbers.keys()
    off = 1e-6 if task == "regression" and not weights else 0.5  # rows count by their offsets and weights
    for name, nth in numbers.items():
        mean, deviation = record["columns"][name]
        assert mean == pytest.approx(float(x[:, nth].mean(dtype=np.float64)), rel=1e-9)
        assert deviation == pytest.approx(float(x[:, nth].std(dtype=np.float64)), rel=off)
    names = [row["name"] for row in record["coefficients"]]
    assert names == ["(intercept)", "age", "site=a", "site=b", "site=c", *["share"] * (not weights)]
    assert (record["offset"], record.get("row_weights")) == ("log_years", "share" if weights else None)
    if task == "counts":
        np.testing.assert_allclose(told(record, "rate_ratio"), np.exp(beta), rtol=1e-10)
        for end in ("low", "high"):
            np.testing.assert_allclose(told(record, f"ratio_{end}"), np.exp(told(record, end)), rtol=1e-12)


def test_silos_own_fits_are_those_of_their_rows_and_part_by_cochrans_q(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third silo has no counts, the fourth one level alone, the fifth too few rows, and in the sixth no
    row of a level has a count: none of these has a finite fit."""
    x, y = rows_of("counts", n=290)
    y[160:180] = 0
    x[180:200, 1:4] = [1, 0, 0]
    y[243:290][x[243:290, 3] == 1] = 0
    places = [80, 160, 180, 200, 240, 243]
    shards = write(tmp_path / "s", x, y, places)
    keys = {"offset": "log_years", "weights": "share"}
    record = fitted(shards, tmp_path / "r", "counts", by_silo=True, **keys)
    assert record["own_fits"] == {
        "silos": ["silo 0", "silo 1", "silo 4"],
        "left_out": ["silo 2", "silo 3", "silo 5", "silo 6"],
        "reasons": {
            "silo 2": "its outcomes are all the same",
            "silo 3": "column 'site=b' is constant in its rows, or follows from the columns before it",
            "silo 5": "it has no more rows than coefficients",
            "silo 6": "column 'site=c' separates its outcomes",
        },
    }
    parts = [(x[a:b], y[a:b]) for a, b in ((0, 80), (80, 160), (200, 240))]
    own = [by_newton("counts", part, True, True)[:2] for part in parts]
    estimates, errors = (np.array(of) for of in zip(*own, strict=True))
    fitted_rows = [row for row in record["coefficients"] if "estimate" in row]
    for nth, row in enumerate(fitted_rows):
        np.testing.assert_allclose([one["estimate"] for one in row["silos"]], estimates[:, nth], rtol=1e-9)
        np.testing.assert_allclose([one["error"] for one in row["silos"]], errors[:, nth], rtol=1e-9)
        w = 1 / errors[:, nth] ** 2
        fixed = w @ estimates[:, nth] / w.sum()
        q = w @ (estimates[:, nth] - fixed) ** 2
        right = {"fixed": fixed, "fixed_error": w.sum() ** -0.5, "q": q, "q_p": stats.chi2.sf(q, 2)}
        right["i2"] = max(0, 1 - 2 / q)
        assert {key: row[key] for key in right} == pytest.approx(right, rel=1e-8)
    plain = fitted(shards, tmp_path / "plain", "counts", **keys)
    same = ("name", "estimate", "error", "low", "high")
    assert [[row.get(key) for key in same] for row in plain["coefficients"]] == [
        [row.get(key) for key in same] for row in record["coefficients"]
    ]
    show_coefficients(tmp_path / "r", tmp_path / "c.csv")
    printed = " ".join(capsys.readouterr().out.split())
    assert "of the own fits of 3 silos; without a finite fit: silo 2 (its outcomes are all the" in printed
    assert "silo 6 (column 'site=c' separates its outcomes)" in printed
    assert "offset: log_years, with a coefficient of 1" in printed
    lines = (tmp_path / "c.csv").read_text().splitlines()
    assert lines[0].endswith("rate_ratio,ratio_low,ratio_high,against,deviation,fixed,fixed_error,q,q_p,i2")
    assert repr(fitted_rows[0]["i2"]) in lines[1]


ENCODED = {"encoding": {"kind": "table", "digest": "", "spec": {"features": {"log_years": {}}}}}
ENCODED["encoding"]["spec"]["features"]["log_years"] = {"mean": 1.0, "deviation": 2.0}  # type: ignore[index]


@pytest.mark.parametrize(
    ("task", "harm", "keys", "line"),
    [
        ("counts", {"y": 0}, {}, "all counts are 0, so no coefficient is finite"),
        ("counts", {"y": (3, -1)}, {}, "count = -1 in row 3 is negative"),
        ("counts", {"y": (3, 0.5)}, {}, "count = 0.5 in row 3 is no whole number"),
        ("counts", {"quiet": 1}, {"rounds": 40}, "column 'site=b': its coefficient has no finite estimate"),
        ("binary", {"quiet": 1}, {"rounds": 40}, "column 'site=b': its coefficient has no finite estimate"),
        ("binary", {"y": 1}, {}, "all outcomes are the same, 1, so no coefficient is finite"),
        (
            "counts",
            {"x": (3, OFFSET, np.nan)},
            {},
            "column 'log_years' has a number that is missing or infinite",
        ),
        (
            "counts",
            {"x": (3, WEIGHT, 0)},
            {"weights": "share"},
            "column 'share' has a weight that is not above 0",
        ),
        (
            "counts",
            {},
            {"offset": "log_year"},
            "offset = 'log_year': no column is called so; did you mean 'log_years'?",
        ),
        (
            "counts",
            {},
            {"weights": "log_years", "offset": "log_years"},
            "weights = 'log_years': is the offset, too",
        ),
        ("counts", {"source": ENCODED}, {"offset": "log_years"}, "the shards have it standardised"),
        (
            "counts",
            {},
            {"tables": {"security": {"masks": False}}, "by_silo": True},
            "by_silo = true: [security] shows no",
        ),
        ("counts", {}, {"tables": {"privacy": {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0}}}, "[privacy]"),
        ("counts", {}, {"by_silo": True}, "by_silo = true: needs by_silo = true in this site's"),
        (
            "binary",
            {},
            {"tables": {"task": {"name": "binary", "loss": "focal"}}},
            "[task] loss = 'focal': 'newton' takes the likelihood of its family; leave it out",
        ),
        (
            "binary",
            {},
            {"tables": {"task": {"name": "binary", "loss": "bce", "ignore": 1}}},
            "[task] ignore = 1: 'newton' takes the likelihood of its family",
        ),
    ],
)
def test_what_has_no_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, harm: Any, keys: Any, line: str
) -> None:
    """`quiet` is a level of which no row has its event: its coefficient falls without end."""
    if "needs by_silo" in line:
        (tmp_path / "site").mkdir(mode=0o700)
        (tmp_path / "site" / "stats.toml").write_text("by_silo = false\n")
        monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    x, y = rows_of(task)
    match harm:
        case {"y": (row, value)}:
            y[row] = value
        case {"y": value}:
            y[:] = value
        case {"x": (row, column, value)}:
            x[row, column] = value
        case {"quiet": level}:
            y[x[:, 1 + level] > 0] = 0
    more = {"source": harm["source"]} if "source" in harm else {}
    tables = {**keys.pop("tables", {}), **({"rounds": keys.pop("rounds")} if "rounds" in keys else {})}
    shards = write(tmp_path / "s", x, y, [50], **more)
    with pytest.raises(Exception) as refused:
        fitted(shards, tmp_path / "r", task, tables, **keys)
    assert line in str(refused.value)


def test_a_silo_of_one_class_is_fitted_with_the_others(tmp_path: Path) -> None:
    x, y = rows_of("binary")
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    record = fitted(write(tmp_path / "s", x, y, [int((y == 0).sum())]), tmp_path / "r", "binary")
    np.testing.assert_allclose(
        told(record, "estimate"), by_newton("binary", (x, y), False, False)[0], rtol=1e-10
    )
