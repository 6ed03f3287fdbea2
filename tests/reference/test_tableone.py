"""The table of who is in the data is numpy's of the pooled rows, the same bytes over all cuts, and of no few
rows."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from datetime import date, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ranks
from hypothesis import example, given, settings, strategies as st
from pages import Reader
from reference.test_refusals import Alone

from mpifl.cli.look_commands import stats
from mpifl.common import InputError
from mpifl.data.shards import read_federation, record_of
from mpifl.data.shards.shards import Features, FederationSpec
from mpifl.report.results.histograms import histogram
from mpifl.report.terminal import show_stats
from mpifl.report.terminal.stats_table import _told_to
from mpifl.sums import row_sums
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.analysis import exact_products as exact
from mpifl.wings.analysis.column_moments import power_sums
from mpifl.wings.analysis.number_cells import MOST_VALUES, Search, counted, keys_of
from mpifl.wings.analysis.small_cells import kept_edges, withheld
from scripts.write_shard import write_shard

N, NAMES = 300, ("age", "rare", "score", "cp=a", "cp=b", "cp=c", "income", "odd=x", "odd=y", "odd=z")
JOBS = [{"name": "tableone", "algorithm": {"name": "tableone"}}]
"""For the test that each algorithm has an oracle."""


def rows_of() -> tuple[np.ndarray, np.ndarray]:
    """A column far from 0; 3 ones, standardised; few numbers; a category; powers of ten; a category with a
    level of 2 rows. The outcome is yes or no."""
    draw = np.random.default_rng(5)
    cp, odd = draw.integers(0, 3, N), np.arange(N) % 2 + (np.arange(N) < 2) * 2
    rare = np.arange(N) % 100 == 7
    columns = [20_000 + draw.normal(size=N), (rare - rare.mean()) / rare.std(), draw.integers(-2, 3, N) / 2]
    columns += [*(cp == level for level in range(3)), np.exp(3 * draw.normal(size=N))]
    columns += [odd == 0, odd == 1, odd > 1]
    order = draw.permutation(N)
    return np.column_stack(columns).astype(np.float32)[order], draw.integers(0, 2, N)


def write(
    folder: Path, x: np.ndarray, y: np.ndarray, places: list[int], *, held: int = 1, **more: Any
) -> Path:
    """Write rows as silos, cut at these places; each holds its first rows out."""
    folder.mkdir(parents=True)
    of: dict[str, Any] = {"features": Features(shape=(x.shape[1],), dtype="float32"), "classes": 2}
    parts = [*zip(np.split(x, places), np.split(y, places), strict=True)]
    entries = [
        write_shard(
            folder / f"{k}.h5",
            {"train": (a[held:], b[held:]), "test": (a[:held], b[:held])},
            silo=k,
            name=f"silo {k}",
            **of,
        )
        for k, (a, b) in enumerate(parts)
    ]
    told: dict[str, Any] = {"name": "rows", "seed": 0, "scheme": {"name": "cut"}, "source": {}}
    told |= {"feature_names": NAMES[: x.shape[1]], "class_names": ("no", "yes"), **more}
    FederationSpec(silos=entries, **of, **told).write(folder)
    return folder


def made(folder: Path, silos: int, **more: Any) -> Path:
    """Write the rows, shuffled, as so many silos of two rows or more."""
    draw = np.random.default_rng(silos)
    order, (x, y) = draw.permutation(N), rows_of()
    places = 2 * np.sort(draw.choice(np.arange(1, N // 2), silos - 1, replace=False))
    return write(folder, x[order], y[order], places.tolist(), **more)


def job_of(shards: Path, **keys: Any) -> dict[str, Any]:
    return {
        "name": "tableone",
        "shards": str(shards),
        "rounds": 1,
        "device": "cpu",
        "model": {"name": "logreg"},
        "task": {"name": "binary"},
        "algorithm": {"name": "tableone", **keys},
        "tracking": {"console": False},
    }


def table_of(shards: Path, run: Path, tables: Any = None, **keys: Any) -> dict[str, Any]:
    """Make the table in this process; return its variables by name."""
    train({**job_of(shards, **keys), **(tables or {})}, run, (), False, Alone(), wings_of=wings_of)
    show_stats(run)
    table = json.loads((run / "metrics.jsonl").read_text())["table"]
    return {one["name"]: one for one in table["variables"]}


def files(run: Path) -> list[bytes]:
    return [(run / f"tableone.{kind}").read_bytes() for kind in ("html", "csv", "tex")]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of 1, 4 and 40 silos, and the table of each; of the 4 also by sums of whole numbers."""
    base = tmp_path_factory.mktemp("tableone")
    for silos in (1, 4, 40):
        table_of(made(base / f"shards-{silos}", silos), base / f"run-{silos}")
    table_of(base / "shards-4", base / "run-whole", {"security": {"masks": False}})
    return base


@pytest.fixture(scope="module")
def table(base: Path) -> dict[str, Any]:
    record = json.loads((base / "run-4" / "metrics.jsonl").read_text())
    return {one["name"]: one for one in record["table"]["variables"]}


def test_all_cuts_give_the_same_bytes(base: Path) -> None:
    first = files(base / "run-1")
    assert [files(base / f"run-{of}") == first for of in ("4", "40", "whole")] == [True] * 3


def test_figures_are_those_of_the_pooled_rows(table: dict[str, Any]) -> None:
    x, y = rows_of()
    for name, nth in (("age", 0), ("income", 6), ("score", 2)):
        column = x[:, nth].astype(np.float64)
        found = table[name]
        assert found["mean"] == pytest.approx(column.mean(), rel=1e-14, abs=1e-15)
        assert found["deviation"] == pytest.approx(column.std(ddof=1), rel=1e-12)
        if name != "score":
            assert found["quartiles"] == np.quantile(column, [0.25, 0.5, 0.75]).tolist()
            edges = found["histogram"]["edges"]
            counts = np.histogram(column, [-np.inf, *edges, np.inf])[0]
            assert found["histogram"]["counts"] == ((counts + 2) // 5 * 5).tolist()
            assert len(edges) > 5
    counts = Counter(x[:, 2].tolist())
    assert {float(of["level"]): of["count"] for of in table["score"]["levels"]} == counts
    assert [of["count"] for of in table["cp"]["levels"]] == x[:, 3:6].sum(0).tolist()
    assert [of["count"] for of in table["outcome"]["levels"]] == [N - y.sum(), y.sum()]
    assert not {"minimum", "maximum"} & table["age"].keys()


def test_a_column_of_zeros_and_ones_with_few_ones_tells_nothing(base: Path, table: dict[str, Any]) -> None:
    """Of two numbers, mean and deviation are their counts, standardised or not."""
    assert table["rare"] == {"name": "rare", "kind": "values", "columns": [1], "levels": [], "withheld": True}
    rows = [
        row for row in csv.DictReader((base / "run-4" / "tableone.csv").open()) if row["variable"] == "rare"
    ]
    assert [{key: value for key, value in row.items() if value} for row in rows] == [
        {"variable": "rare", "withheld": "True"}
    ]


def test_a_second_level_is_withheld_so_that_nobody_subtracts(table: dict[str, Any]) -> None:
    assert sorted(of["count"] is None for of in table["odd"]["levels"]) == [False, True, True]


def test_a_small_count_does_not_follow_from_other_figures(tmp_path: Path) -> None:
    """Two columns of whole numbers, with 3 twelves and 4, tell the same: exact counts in bins, the mean and
    the deviation would tell which. Nor are 3 ones found by the gaps that the mean has filled, or by other
    columns of a category: standardised ones, or those of a category with the label's name."""
    counts = [5, 6, 9, 12, 21, 33, 52, 60, 45, 29, 16, 9, 3], [5, 5, 11, 11, 21, 34, 50, 60, 47, 28, 17, 7, 4]
    whole = [np.repeat(np.arange(13.0), of) for of in counts]
    filled = np.repeat([0, 1, 3 / 290], [287, 3, 10])
    levels = np.eye(3)[np.repeat([0, 1, 2], [150, 147, 3])]
    x = np.column_stack([*whole, filled, (levels - levels.mean(0)) / levels.std(0), levels]).astype(
        np.float32
    )
    names = ("one", "other", "filled", *(f"{of}={level}" for of in ("odd", "outcome") for level in "abc"))
    source = {"filled": {"columns": {"filled": {"the mean": 10}}}}
    shards = write(tmp_path / "shards", x, np.arange(N) % 2, [100], feature_names=names, source=source)
    found = table_of(shards, tmp_path / "run")
    one, other = ({**found[of], "name": "", "columns": []} for of in ("one", "other"))
    assert "histogram" in one
    assert one == other
    assert found["filled"]["missing"] is None
    assert [found[f"odd={level}"]["levels"] for level in "abc"] == [[]] * 3
    assert [of["count"] for of in found["outcome"]["levels"]] == [150, None, None]
    assert [of["count"] for of in found["outcome outcome"]["levels"]] == [150, 150]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 12))
def test_withheld_counts_are_several_and_not_few_together(counts: list[int], least: int) -> None:
    found = withheld(counts, least)
    assert found >= {nth for nth, count in enumerate(counts) if 0 < count < least}
    assert all(counts[nth] for nth in found)
    if found and {nth for nth, count in enumerate(counts) if count} - found:
        assert len(found) > 1
        assert sum(counts[nth] for nth in found) >= len(found) + least - 1  # each may be 1, and each `least`


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
    st.lists(st.integers(0, 300), max_size=4),
    st.integers(1, 10),
)
def test_between_edges_and_quantiles_lie_no_few_rows(bins: list[int], told: list[int], least: int) -> None:
    below = np.cumsum(bins)[:-1].tolist()
    kept = [below[nth] for nth in kept_edges(below, told, sum(bins), least)]
    inside = [high - low for low, high in pairwise([0, *kept, sum(bins)])]
    assert not kept or not any(0 < count < least for count in inside)
    assert not any(0 < abs(edge - quantile) < least for edge in kept for quantile in told)


NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 3.4028234663852886e38]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=60), st.integers(0, 59), st.integers(1, 4))
@example([-0.0, 0.0, -1e-45], 1, 2)
def test_a_search_over_silos_finds_each_rank_or_all_numbers(
    numbers: list[float], rank: int, silos: int
) -> None:
    column = torch.tensor(numbers, dtype=torch.float32)
    rank = min(rank, len(numbers) - 1)
    parts = [keys_of(part[:, None].repeat(1, 2)) for part in column.tensor_split(silos)]
    search = Search(2, lambda count: {rank})
    for _ in range(4):
        search.take(torch.stack([counted(part, 0, 2, search.cut) for part in parts]).sum(0).double())
    wanted = np.sort(column.numpy() + np.float32(0))
    for found in search.columns:
        cell = found.at(rank)
        assert [*found.values][found.cells.index(cell)] == wanted[rank]
        assert cell.below == int((wanted < wanted[rank]).sum())
        if found.whole:
            assert found.values == Counter(wanted.tolist())
        assert found.whole == (len({*wanted.tolist()}) <= MOST_VALUES)
    assert all(top > float(abs(wanted).max()) for top in search.tops)


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=40), st.integers(1, 70), st.integers(0, 2**32 - 1))
@example([1.0, -1.0, 0.5**20, -1.5 * 0.5**57, 0.5 * 0.5**57], 65, 0)
def test_sums_of_numbers_and_squares_are_whole_numbers_that_c_and_tensors_share(
    numbers: list[float], columns: int, seed: int
) -> None:
    """Numbers count in whole units of 2^-57 of a power of two above all, halves to even."""
    draw = np.random.default_rng(seed)
    rows = torch.tensor(draw.choice(np.float32(numbers), (5, columns + 3)))[:, 1:-2]  # a part of wider rows
    tops = exact.powers_above(rows.abs().amax(0).double())
    with pytest.MonkeyPatch.context() as patch:
        found = power_sums(rows, tops)
        patch.setattr(row_sums, "compiled", lambda: None)
        assert torch.equal(found, power_sums(rows, tops))
    for column, top, sums in zip(rows.T.tolist(), tops.tolist(), found.T.tolist(), strict=True):
        whole = [round(Fraction(number) / Fraction(top) * 2**57) for number in column]
        levels = [
            sum(one << 19 * (len(of) - 1 - n) for n, one in enumerate(of)) for of in (sums[:3], sums[3:])
        ]
        assert levels == [sum(whole), sum(one**2 for one in whole)]


def test_the_compiled_loop_takes_as_many_rows_as_a_column_may_have_between_two_carries() -> None:
    rows = torch.full((2 * exact.BLOCK + 1, 3), torch.finfo(torch.float32).max)
    tops, scale = torch.full((3,), 2.0**128, dtype=torch.float64), 2.0**-109
    found = row_sums.power_sums(rows, torch.full((3,), scale, dtype=torch.float64))
    parts = [power_sums(part, tops) for part in rows.split(exact.BLOCK)]
    assert found is None or torch.equal(found, torch.stack(parts).sum(0))


def test_silos_tell_means_where_none_of_them_has_few(tmp_path: Path) -> None:
    """The first 40 rows have one `b` of `cp`: of this category no silo tells anything. Nor of incomes, of
    which the first silo has two."""
    x, y = rows_of()
    x[:40, 6] = 0
    x[0, 6] = 1
    x[:40, 3:6] = [0, 0, 1]
    x[0, 3:6] = [0, 1, 0]
    found = table_of(write(tmp_path / "shards", x, y, [40, 130]), tmp_path / "run", by_silo=True)
    parts = [part[:, 0].astype(np.float64) for part in np.split(x, [40, 130])]
    means, deviations = [part.mean() for part in parts], [part.std(ddof=1) for part in parts]
    told = found["age"]["silos"]
    assert [of["mean"] for of in told] == pytest.approx(means, rel=1e-14)
    assert [of["deviation"] for of in told] == pytest.approx(deviations, rel=1e-11)
    smd = max(
        abs(means[i] - means[j]) / np.sqrt((deviations[i] ** 2 + deviations[j] ** 2) / 2)
        for i, j in ((0, 1), (0, 2), (1, 2))
    )
    assert found["age"]["smd"] == pytest.approx(smd, rel=1e-10)
    whole = x[:, 0].astype(np.float64)
    between = sum(len(part) * (part.mean() - whole.mean()) ** 2 for part in parts)
    assert found["age"]["between"] == pytest.approx(between / ((whole - whole.mean()) ** 2).sum(), rel=1e-9)
    shares = [part.mean() for part in np.split(y, [40, 130])]
    assert [of["mean"] for of in found["outcome"]["levels"][1]["silos"]] == pytest.approx(shares)
    smd = max(abs(p - q) / np.sqrt((p * (1 - p) + q * (1 - q)) / 2) for p in shares for q in shares)
    assert found["outcome"]["levels"][1]["smd"] == pytest.approx(smd, rel=1e-12)
    withheld = ("rare", "cp", "odd", "income")
    assert not any("silos" in of for name in withheld for of in (found[name], *found[name].get("levels", ())))


def test_ends_are_told_if_the_job_asks(base: Path, tmp_path: Path) -> None:
    x, _ = rows_of()
    found = table_of(base / "shards-4", tmp_path / "run", extremes=True)
    assert (found["age"]["minimum"], found["age"]["maximum"]) == (x[:, 0].min(), x[:, 0].max())


def test_figures_are_in_the_units_that_the_shards_know_and_gaps_are_counted(tmp_path: Path) -> None:
    """Ages are whole numbers, as are edges: an age at an edge lies above it, although shards round it."""
    x, y = rows_of()
    age = np.round(np.float64(x[:, 0]) * 10) - 199_950
    mean, deviation = age.mean(), age.std()
    x[:, 0] = (age - mean) / deviation
    features = {"age": {"kind": "numeric", "mean": mean, "deviation": deviation}}
    filled = {"columns": {"age": {"the mean": 7}, "income": {"the mean": 2}}}
    source = {
        "encoding": record_of("table", spec={"features": features, "label": {"column": "died"}}),
        "filled": filled,
    }
    found = table_of(write(tmp_path / "shards", x, y, [100], source=source), tmp_path / "run")
    told = found["age"]
    assert (told["mean"], told["deviation"]) == pytest.approx((mean, age.std(ddof=1)), rel=1e-6)
    assert told["quartiles"] == np.quantile(age, [0.25, 0.5, 0.75]).tolist()
    counts = np.histogram(age, [-1e9, *told["histogram"]["edges"], 1e9])[0]
    assert told["histogram"]["counts"] == ((counts + 2) // 5 * 5).tolist()
    assert all(edge == int(edge) for edge in told["histogram"]["edges"])
    assert (told["missing"], found["income"]["missing"]) == (7, None)
    show_stats(tmp_path / "run")
    line = "Mean, SD and quartiles take in the values that filled gaps: of age, income."
    for ending in ("html", "tex"):
        assert line in (tmp_path / "run" / f"tableone.{ending}").read_text()
    assert [of["count"] for of in found["died"]["levels"]] == [N - y.sum(), y.sum()]


def test_a_table_says_whose_rows_it_counts_what_was_left_out_and_has_dates_as_dates(tmp_path: Path) -> None:
    """Admissions are days since 2020, and the first one is a little below 0, as shards round it."""
    x, y = rows_of()
    x[:, 0] = np.arange(N)
    mean, deviation = x[:, 0].mean(), x[:, 0].std()
    x[:, 0] = (x[:, 0] - mean) / deviation
    x[0, 0] = np.nextafter(x[0, 0], np.float32(-10))
    dates = {"kind": "date", "since": "2020-01-01", "mean": float(mean), "deviation": float(deviation)}
    source: dict[str, Any] = {"encoding": record_of("table", spec={"features": {"age": dates}})}
    shards = write(tmp_path / "shards", x, y, [100], source=source)
    found = table_of(shards, tmp_path / "plain", extremes=True)["age"]
    assert found["minimum"] < 0 == round(found["minimum"])
    text = (tmp_path / "plain" / "tableone.tex").read_text()
    middle = date(2020, 1, 1) + timedelta(days=round(found["mean"]))
    assert f"{middle} ({found['deviation']:.1f} days)" in text
    assert f"2020-01-01, {date(2020, 1, 1) + timedelta(days=N - 1)}" in text
    assert "groups, such as patients" not in text
    assert _told_to(100.0, [-0.3, 1213.0]) == ["0", "1,213"]
    spec = read_federation(shards)
    for few, rows, said in (
        (
            40,
            48,
            f"The {N:,} rows are of {2 * 40} groups, such as patients. Figures count rows. 48 further rows",
        ),
        (40, 2, "Some further rows were left out before, since they lack values."),
    ):
        entries = [one.model_copy(update={"groups": {"train": few}}) for one in spec.silos]
        told = {**spec.source, "dropped": {"rows": rows, "of": N + rows}}
        spec.model_copy(update={"silos": entries, "source": told}).write(shards)
        table_of(shards, tmp_path / f"run-{rows}")
        page = (tmp_path / f"run-{rows}" / "tableone.html").read_text()
        assert said in " ".join(Reader(page).titles())
    assert "below 2020-" in page, "of the dates' histogram"


def test_a_bar_of_a_histogram_is_as_wide_as_its_bin_and_its_area_is_its_rows() -> None:
    """Edges of few rows are left out: a bin of twice the width with 275 rows is no peak beside 140."""
    figure = histogram(
        "creatinine", {"edges": [0.6, 0.7, 0.8, 1.0, 1.1], "counts": [30, 85, 140, 275, 140, 60]}
    )
    (plot,) = figure.blocks
    boxes = [[float(one) for one in re.findall(r"[0-9.]+", mark.path)] for mark in plot.marks]
    wide = [right - left for left, _, _, right, _ in boxes]
    high = [foot - top for _, foot, top, _, _ in boxes]
    assert wide[3] == pytest.approx(2 * wide[2], rel=0.01)
    assert high[3] == pytest.approx(high[2] * 137.5 / 140, rel=0.01)
    assert [mark.title for mark in plot.marks][:4:3] == ["below 0.6: 30", "0.8 to 1: 275"]
    assert figure.note.startswith("Bins differ in width: the area of a bar is its rows.")
    assert "height: rows in each 0.1" in plot.unit


def test_all_numbers_of_an_array_are_one_column(tmp_path: Path) -> None:
    """A count is told if it is of the numbers of `least` examples: a picture has 4."""
    pictures = (np.arange(40 * 4).reshape(40, 2, 2) % 3).astype(np.float32)
    pictures[:4] = 7
    features, y = Features(shape=(2, 2), dtype="float32"), np.arange(40) % 2
    of: dict[str, Any] = {"features": features, "classes": 2}
    (tmp_path / "shards").mkdir()
    entry = write_shard(tmp_path / "shards/0.h5", {"train": (pictures, y)}, silo=0, name="0", **of)
    told: dict[str, Any] = {"name": "pictures", "seed": 0, "scheme": {"name": "cut"}, "source": {}}
    FederationSpec(silos=[entry], **of, **told).write(tmp_path / "shards")
    found = table_of(tmp_path / "shards", tmp_path / "run")
    counts = {of["level"]: of["count"] for of in found["x"]["levels"]}
    assert "others" in counts
    assert "7" not in counts
    assert sum(counts.values()) == 160


@pytest.mark.parametrize(
    ("keys", "tables", "line"),
    [
        ({}, {"rounds": 2}, "rounds = 2: tableone makes its table in one round"),
        (
            {"by_silo": True},
            {"security": {"masks": False}},
            "[algorithm] by_silo = true: [security] shows no",
        ),
        ({}, {"cohort": {"fraction": 0.5}}, "[cohort] fraction = 0.5: tableone takes exact sums"),
        ({"least": 0}, {}, "[algorithm] least = 0"),
        ({"least": 9}, {}, "[algorithm] least = 9: is less than least = 10 of this site's"),
        ({"least": 10, "extremes": True}, {}, "[algorithm] extremes = true: needs extremes = true in"),
    ],
)
def test_what_is_not_told_is_one_line(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Any, tables: Any, line: str
) -> None:
    (tmp_path / "site").mkdir(mode=0o700)
    (tmp_path / "site" / "stats.toml").write_text("least = 10\n")
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    with pytest.raises(InputError) as refused:
        table_of(base / "shards-4", tmp_path / "run", tables, **keys)
    assert line in str(refused.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_number_that_is_missing_is_named(tmp_path: Path) -> None:
    x, y = rows_of()
    x[5, 6] = np.nan
    with pytest.raises(Exception, match="column 'income' has a number that is missing or infinite"):
        table_of(write(tmp_path / "shards", x, y, [100]), tmp_path / "run")


def test_ranks_under_masks_give_the_bytes_of_one(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("-m", "mpifl", "stats", base / "shards-4", "--out", tmp_path / "run", "--masks")
    done = ranks(4, *command, cwd=tmp_path, MPIFL_SITE=str(tmp_path / "site"), MPIFL_KERNELS="tensors")
    assert done.returncode == 0, done.stderr[-4000:]
    assert files(tmp_path / "run") == files(base / "run-1"), "nor do compiled loops change a byte"
    stats(tmp_path / "run")
    assert "income, mean (SD)" in capsys.readouterr().out
    with pytest.raises(InputError, match="--out: not given"):
        stats(tmp_path / "run", masks=True)
