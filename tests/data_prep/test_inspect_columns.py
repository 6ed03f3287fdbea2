"""What `inspect` shows of vertical folders: figures that are true, pages that are whole, options that go."""

import itertools
import re

import h5py
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pages import Reader
from scipy.stats import spearmanr

from data_prep.cli import main
from data_prep.inspect.column_page import column_page
from data_prep.inspect.columns_summary import ColumnsSummary, runs, summarise_columns
from data_prep.inspect.correlation import MOST_ROWS, correlations, icor, sample
from mpifl.data.shards.vertical_spec import VerticalSpec


def run(*words, ends=0):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert stop.value.code == ends


def cut(folder, *more, shape=(6,), out="out", scheme="vertical", **arrays):
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    given = {"x": draw.normal(size=(50, *shape)).astype("float32"), "y": np.arange(50) % 3, **arrays}
    np.savez(folder / "own.npz", **given)
    data = ["--data", folder / "own.npz", "--out", folder / out]
    run("partition", "npz", *data, "--scheme", scheme, "--silos", 2, *more)
    return folder / out


def test_correlations_are_those_of_the_formula():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(300, 9)) @ draw.normal(size=(9, 9))
    x[:, 4] = np.round(x[:, 4])  # equal values share their ranks
    x[:, 8] = 7.0  # does not vary
    parts = [x[:, :3], x[:, 3:5], x[:, 5:]]
    whole = np.zeros((9, 9))
    whole[:8, :8] = spearmanr(x[:, :8]).statistic
    ends, wanted = np.cumsum([0, 3, 2, 4]), np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            values = np.linalg.svd(whole[ends[i] : ends[i + 1], ends[j] : ends[j + 1]])[1]
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
            wanted[i, j] = (variance / len(values)) ** 0.5
    found = correlations(parts)
    assert np.allclose(found, wanted, atol=1e-12)
    apart = [sum(wanted[i, j] - wanted[i, i] for j in range(3) if j != i) / 2 for i in range(3)]
    assert icor(found) == pytest.approx(sum(apart) / 3)


def test_a_single_column_or_silo_has_no_correlation():
    x = np.random.default_rng(0).normal(size=(20, 3))
    found = correlations([x[:, :1], x[:, 1:]])
    assert found[0].tolist() == [0, 0]
    assert icor(correlations([x])) == 0


def test_a_sample_takes_the_same_rows_of_every_silo():
    rows = np.arange(5 * MOST_ROWS - 3)
    a, b = sample(np.stack([rows, rows], 1)), sample(rows.reshape(-1, 1, 1))
    assert np.array_equal(a[:, :1], b)
    assert MOST_ROWS / 2 < len(a) <= MOST_ROWS


@given(st.sets(st.integers(0, 60), min_size=1))
@settings(max_examples=100, deadline=None)
def test_runs_are_the_numbers(numbers):
    pairs = [[int(end) for end in run.split("-")] for run in runs(sorted(numbers))]
    assert [n for first, *last in pairs for n in range(first, (last or [first])[0] + 1)] == sorted(numbers)
    assert all(after[0] > before[-1] + 1 for before, after in itertools.pairwise(pairs))


@pytest.mark.parametrize("shape", [(6,), (4, 6), (3, 4, 6)])
def test_a_page_of_columns_is_whole_in_itself(tmp_path, shape, capsys):
    along = ["--along", "width"] if len(shape) > 1 else []
    out = cut(tmp_path / "<i>", "--name", "<b>&", "--columns", "contiguous", *along, shape=shape)
    run("inspect", out, "--features", "--page", tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    titles = Reader(text).titles()
    assert {"Columns", "Who has which column", "Training labels, at silo 0, labels"} < set(titles)
    assert "Correlation" in titles, "its card; the pairs are a table of the terminal"
    assert "<b>&" in titles
    assert not {"i", "b"} & {tag for tag, _ in Reader(text).tags}
    assert 'src="http' not in text
    assert re.search(r"Pcor of silos.*Icor", capsys.readouterr().out, re.DOTALL)


def test_names_of_columns_are_shown_where_all_have_one(tmp_path):
    spec = summarise_columns(cut(tmp_path, "--columns", "contiguous")).spec
    assert ColumnsSummary(spec).named(spec.silos[1]) == ["3-5"]
    named = VerticalSpec(**{**dict(spec), "feature_names": list("abcdef")})
    assert ColumnsSummary(named).named(named.silos[1]) == ["d", "e", "f"]
    few = VerticalSpec(**{**dict(spec), "feature_names": list("abc")})
    assert ColumnsSummary(few).named(few.silos[0]) == ["0-2"]


def test_values_and_tokens_have_their_words(tmp_path, capsys):
    tokens = np.arange(300).reshape(50, 6)
    out = cut(tmp_path, x=tokens, y=np.linspace(0, 1, 50))
    run("inspect", out, "--features", "--page", tmp_path / "a.html")
    said = capsys.readouterr().out
    assert "float64 values of shape []" in " ".join(said.split())
    assert "deviation" not in said
    assert "Training labels" not in (tmp_path / "a.html").read_text()


def test_two_vertical_folders_are_compared(tmp_path, capsys):
    a = cut(tmp_path)
    b = cut(tmp_path, "--columns", "contiguous", "--sizes", "1,5", out="b")
    capsys.readouterr()
    run("inspect", a, b, "--features", "--page", tmp_path / "two.html", ends=2)
    assert "two.html: is of one folder; two are compared here" in capsys.readouterr().err
    run("inspect", a, b, "--features")
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:5]
        for line in capsys.readouterr().out.split("\n")
        if "│" in line
    }
    assert [cell.strip() for cell in rows["Most columns of a silo"]] == ["3", "5", "+2"]
    assert any(name.startswith("Correlation") for name in rows)


def test_a_vertical_folder_is_not_compared_with_a_horizontal_one(tmp_path, capsys):
    a, b = cut(tmp_path), cut(tmp_path, scheme="iid", out="b")
    run("inspect", b, a, ends=2)
    assert "out is vertical, the other is not; inspect each by itself" in capsys.readouterr().err


def test_without_features_no_vertical_shard_is_opened(tmp_path):
    out = cut(tmp_path)
    for path in out.glob("*.h5"):
        path.unlink()
    assert "Correlation" not in column_page(summarise_columns(out))
    run("inspect", out, "--features", ends=2)


def test_a_file_of_another_ending_is_refused(tmp_path, capsys):
    run("inspect", cut(tmp_path), "--page", tmp_path / "a.doc", ends=2)
    assert f"{tmp_path / 'a.doc'}" in (said := capsys.readouterr().err)
    assert said.startswith("error: --page")
    assert "ends in '.doc'; it must be" in said


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_leave_a_gap(tmp_path, value):
    out = cut(tmp_path)
    path = out / "silo_0001.h5"
    with h5py.File(path, "r+") as file:
        file["train/x"][3, 0] = value
    with np.errstate(invalid="ignore"):
        page = column_page(summarise_columns(out, features=True))
    assert page.count('class="area spread"') == 1
    Reader(page)
