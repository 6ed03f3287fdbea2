"""A draft looks at every row of a table, in whatever pieces these are read."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from data_prep.cli import main
from data_prep.tables import label_moments, read_spec
from data_prep.tables.drafting import Learned, draft
from data_prep.tables.files import lines as limits
from data_prep.tables.values import tallying

ROWS = 200
COLUMNS = ("number", "age", "code", "day", "share", "drug", "sick")


def command(*words):
    """Run a command line and return its exit code."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def write(folder, change=lambda at, row: None):
    """Write a table of which `change` alters rows; return its path."""
    lines = [";".join(COLUMNS)]
    for at in range(ROWS):
        values = [
            at * 37 % 1000,
            20 + at % 60,
            f"c{at % 9}",
            f"2020-01-{1 + at % 28:02d}",
            at / 8,
            "ab"[at % 2],
        ]
        row = dict(zip(COLUMNS, [*values, at % 2], strict=True))
        change(at, row)
        lines.append(";".join(map(str, row.values())))
    (path := folder / "t.csv").write_text("\n".join(lines) + "\n")
    return path


def late(**values):
    """Return a change of the last row but one."""

    def change(at, row):
        if at == ROWS - 2:
            row.update(values)

    return change


LATE = {
    "a gap": (late(age=""), 'age = { kind = "numeric", missing = "mean" }', None),
    "a mark": (
        late(drug="N/A"),
        'drug = { kind = "categorical", missing = "level" }',
        "'N/A', 1 times, first in drug",
    ),
    "a text": (
        late(age="old"),
        "# age is left out",
        "all values are numbers but for 1, first 'old' (line 200)",
    ),
    "no date": (
        late(day="soon"),
        "# day is left out",
        "all values are dates but for 1, first 'soon' (line 200)",
    ),
    "a fraction": (late(number="7.5"), 'number = "numeric"', None),
    "a comma": (late(share="1,5"), "# share is left out", "first '1,5' (line 200)"),
}


@pytest.mark.parametrize("step", [16, 1 << 14])
@pytest.mark.parametrize("what", LATE)
def test_what_stands_in_a_late_row_is_seen(tmp_path, what, step, monkeypatch, capsys):
    monkeypatch.setattr(limits, "ROWS", step)
    change, line, told = LATE[what]
    path = write(tmp_path, change)
    assert command("draft", path, "--label", "sick") == 0
    assert line in path.with_suffix(".toml").read_text()
    assert (told or "") in capsys.readouterr().out
    assert "It is guessed from all 200 rows" in path.with_suffix(".toml").read_text()


def test_codes_that_become_many_in_late_rows_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(limits, "ROWS", 50)
    path = write(tmp_path, lambda at, row: row.update(code=f"c{at if at > 100 else at % 9}"))
    assert command("draft", path, "--label", "sick") == 0
    assert "left out: code, 108 different texts, first 'c0' (line 2)" in capsys.readouterr().out
    words = ["--out", tmp_path / "o", "--scheme", "iid", "--silos", 2]
    assert command("partition", "csv", "--data", path, *words) == 0


def test_persons_who_come_again_in_late_rows_are_the_group(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ROWS", 50)
    path = tmp_path / "t.csv"
    path.write_text("patient_id,a,y\n" + "".join(f"{n % 150},{n / 7},{'pq'[n % 2]}\n" for n in range(200)))
    assert command("draft", path, "--label", "y") == 0
    assert read_spec(path.with_suffix(".toml")).group == "patient_id"


def test_numbers_are_written_as_the_whole_table_writes_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(limits, "ROWS", 16)
    path = write(tmp_path, lambda at, row: row.update(share=f"{at},5" if at > 100 else at))
    assert command("draft", path, "--label", "share", "--kind", "numeric") == 0
    assert "numbers: decimal = \",\", as in share '101,5' (line 103)" in capsys.readouterr().out
    assert read_spec(path.with_suffix(".toml")).decimal == ","
    wanted = [at + 0.5 * (at > 100) for at in range(ROWS)]
    assert label_moments([path], "share") == pytest.approx((np.mean(wanted), np.std(wanted)))


def test_more_values_than_are_told_apart_are_no_end(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ROWS", 8)
    monkeypatch.setattr(tallying, "MOST_DIFFERENT", 32)
    path = tmp_path / "t.csv"
    path.write_text("text,a,y\n" + "".join(f"t{n},{n * n + 3},{'pq'[n % 2]}\n" for n in range(400)))
    text, told, *_ = draft(path, Learned("categorical", ("y",)))
    assert "text is left out" in text
    assert any("a different whole number in every row" in line for line in told)


VALUES = st.sampled_from(
    ["", "NA", "3", "4", "5", "0.5", "1,5", "1.234", "a", "A", "2020-01-02", "10_1", "-7", "1.0"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(VALUES, VALUES, st.sampled_from("pq")), min_size=1, max_size=90), st.integers(1, 30)
)
def test_a_draft_does_not_depend_on_the_pieces(tmp_path, monkeypatch, rows, step):
    path = tmp_path / "t.csv"
    path.write_text("a;b;y\n" + "".join(";".join(row) + "\n" for row in rows))
    monkeypatch.setattr(limits, "ROWS", 1 << 14)
    whole = draft(path, Learned("categorical", ("y",)))
    monkeypatch.setattr(limits, "ROWS", step)
    assert draft(path, Learned("categorical", ("y",))) == whole
