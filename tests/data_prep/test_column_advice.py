"""What `inspect` suggests of a vertical folder: by who holds labels, by columns, and by what labels tell."""

import re
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
from unit.builders import write_vertical_folder

from data_prep.cli import main
from data_prep.inspect.column_advice import column_advice
from data_prep.inspect.column_page import column_page
from data_prep.inspect.columns_summary import summarise_columns
from mpifl.run.job import read_job
from mpifl.training.beforehand import validate_job
from mpifl.wings import wings_of


def advised(folder, *, features=False):
    return [str(one) for one in column_advice(summarise_columns(folder, features=features))]


def labels(rare, rows=40):
    return {"train": (np.arange(rows) < rare).astype(np.int64)}


def test_the_holder_and_the_algorithm_are_named(tmp_path):
    write_vertical_folder(tmp_path, {"train": 40}, (2, 2), holder=1)
    (first,) = advised(tmp_path)
    assert first.startswith("party 1 holds the labels: it has the top model")
    assert '[algorithm] name = "splitnn"' in first


def test_one_silo_needs_no_advice(tmp_path):
    write_vertical_folder(tmp_path, {"train": 40}, (3,))
    assert advised(tmp_path) == []


@pytest.mark.parametrize(
    ("rows", "widths", "words"),
    [
        (4990, (2, 2), ""),
        (5000, (2, 2), "an epoch is 500 exchanges"),
        (40, (2, 3), ""),
        (40, (1, 9), "Columns are spread unevenly: 1 at one silo, 9 at another"),
    ],
)
def test_what_costs_time_or_is_uneven_is_told(tmp_path, rows, widths, words):
    write_vertical_folder(tmp_path, {"train": rows}, widths)
    others = advised(tmp_path)[1:]
    assert [words in one for one in others] == [True] * bool(words)


@pytest.mark.parametrize(("rare", "words"), [(20, "two classes, the lengths"), (2, "one is rare (5%),")])
def test_labels_of_two_classes_show_in_gradients(tmp_path, rare, words):
    write_vertical_folder(tmp_path, {"train": 40}, (2, 2), y=labels(rare), classes=2)
    assert [one for one in advised(tmp_path) if words in one and "label-dp" in one]


def test_columns_of_another_scale_are_told_where_they_were_read(tmp_path):
    write_vertical_folder(tmp_path, {"train": 40}, (2, 2))
    assert len(advised(tmp_path, features=True)) == 1
    columns = summarise_columns(tmp_path, features=True)
    columns.moments[1] = replace(columns.moments[1], mean=columns.moments[1].mean + 300)
    assert any("Columns of party 1 are far from 0 ± 1" in str(one) for one in column_advice(columns))


def test_the_terminal_and_the_page_have_it(tmp_path, capsys):
    write_vertical_folder(tmp_path, {"train": 40}, (2, 2))
    with pytest.raises(SystemExit):
        main(["inspect", str(tmp_path)])
    assert "party 0 holds the labels" in re.sub(r"\s+", " ", capsys.readouterr().out)
    page = column_page(summarise_columns(tmp_path))
    assert "What the columns suggest" in page
    assert "<code>[algorithm] name = &#34;splitnn&#34;</code>" in page


def test_a_job_takes_what_is_suggested(tmp_path):
    write_vertical_folder(tmp_path, {"train": 40}, (1, 9), y=labels(2), classes=2)
    job = {
        "name": "toy",
        "shards": str(tmp_path),
        "rounds": 1,
        "model": {"name": "mlp", "hidden": [4]},
        "algorithm": {"name": "splitnn", "local_steps": 5},
        "local": {"batch_size": 256},
        "split": {
            "cut_width": [2, 8],
            "protect": "max-norm",
            "bottoms": {"0": {"name": "mlp", "hidden": [2]}},
        },
    }
    (tmp_path / "job.toml").write_text(tomli_w.dumps(job))
    validate_job(read_job(tmp_path / "job.toml"), "job.toml", wings_of)
