"""A table that is read twice is parsed once, if it is small enough to be kept; the shards are the same."""

import numpy as np
import pytest

from data_prep.sources.source_registry import find_source
from data_prep.tables.files import csv_table, keeping, lines as limits
from mpifl.common import InputError

SPEC = """
label = "y"
standardise = "own"
silo = "ward"
comment = "#"
[features]
a = { kind = "numeric", missing = "mean" }
b = { kind = "numeric", missing = "drop" }
town = { kind = "categorical", missing = "level" }
"""


def written(folder):
    lines = ["a,b,town,y,ward"]
    for at in range(400):
        a, b = "" if at % 7 == 3 else at / 3, "" if at % 11 == 5 else at * 2
        town = ("Bonn", "Ulm ", "Ulm")[at % 3]
        lines.append(f"{a},{b},{town},{'pq'[at % 2]},w{at % 3}")
    lines.insert(200, "#1,2,Ulm,p,w1")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "t.toml").write_text(SPEC)
    return folder / "t.csv"


def counted(monkeypatch):
    """Return a list that grows by each row that is read from the file."""
    found, piece = [], csv_table.CsvTable._piece
    monkeypatch.setattr(
        csv_table.CsvTable, "_piece", lambda self, *given: found.extend([0] * given[2]) or piece(self, *given)
    )
    return found


@pytest.mark.parametrize("step", [32, 1 << 14])
def test_a_small_table_is_parsed_once_and_a_large_one_twice_to_the_same_bits(tmp_path, step, monkeypatch):
    monkeypatch.setattr(limits, "ROWS", step)
    path, rows = written(tmp_path), counted(monkeypatch)
    once = find_source("csv")(path, 0)
    assert len(rows) == 400
    monkeypatch.setattr(keeping, "MOST_KEPT", 1000)
    twice = find_source("csv")(path, 0)
    assert len(rows) == 400 + 800
    assert np.asarray(once.x).tobytes() == np.asarray(twice.x).tobytes()
    assert (once.y.tolist(), once.silo.tolist()) == (twice.y.tolist(), twice.silo.tolist())
    assert once.done == twice.done
    assert once.done["dropped"]["commented"] == 1


def test_nothing_is_kept_for_a_table_that_is_read_once(tmp_path, monkeypatch):
    path = written(tmp_path)
    stated = SPEC.replace('standardise = "own"', 'classes = ["p", "q"]').replace('"mean"', '"drop"')
    path.with_suffix(".toml").write_text(stated.replace('"level"', '"level", levels = ["Bonn", "Ulm"]'))
    rows = counted(monkeypatch)
    monkeypatch.setattr(keeping.Kept, "first", None)
    assert len(find_source("csv")(path, 0)) < 400
    assert len(rows) == 400


def test_the_place_of_a_row_that_was_kept_is_named(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("\n100.0,600,", "\n1e39,600,"))
    path.with_suffix(".toml").write_text(SPEC.replace('standardise = "own"\n', ""))
    line = path.read_text().split("\n1e39")[0].count("\n") + 2
    with pytest.raises(InputError, match=f"t.csv: line {line}: a is '1e39', as a feature too large"):
        find_source("csv")(path, 0)
