"""What Arrow reads of a CSV table is what Python's own reader would, whatever stands there."""

import csv
import math
from decimal import Decimal, localcontext

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

from data_prep.tables.files import lines as limits
from data_prep.tables.files.csv_table import CsvTable
from data_prep.tables.files.stream import pieces
from data_prep.tables.spec import TableSpec
from data_prep.tables.values.notation import PLAIN
from data_prep.tables.values.texts import Texts, number
from mpifl.common import InputError

common = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NUMBERS = st.sampled_from(["1", "-2.5", "1e3", "007", "0.1", "1e999", "4.9e-324", ".5", "7."])
WORDS = st.sampled_from(["x", "é", "NA", "", '"a,b"', '"l\nm"', '"l\r\nm"', '"say ""no"""', '""', "y", "a"])
ODD = st.sampled_from(
    [
        *("+3", "10_1", "nan", "inf", " ", "?", " 7 ", "\t8", "a b", "\u00a09", "\x1c1", "1,5", "\u0661"),
        *('5" pipe', 'a"b', '"open', '"x" ', ' "x"', "#", "# c", "b", "x" * 70, "\0", "\ud800"),
    ]
)
ENDS = st.sampled_from(["\n"] * 9 + ["\r\n"] * 9 + ["\n\n", "\r", "\n  \n"])
COLUMN = st.sampled_from([NUMBERS] * 6 + [WORDS] * 3 + [NUMBERS | WORDS, WORDS | ODD, NUMBERS | ODD])
ROWS = st.tuples(COLUMN, COLUMN, COLUMN).flatmap(
    lambda columns: st.lists(st.tuples(st.tuples(*columns), ENDS), max_size=14)
)
KINDS = st.sampled_from(["numeric", "categorical"])


def read(path, spec):
    """Return all values with their lines, or what was said."""
    try:
        found = list(pieces("csv", path, spec))
    except InputError as error:
        return str(error)
    return [
        [
            [piece.at(row) for row in range(len(piece))],
            {name: list(texts) for name, texts in piece.columns.items()},
            {name: texts.gaps.tolist() for name, texts in piece.columns.items()},
            {name: [repr(one) for one in texts.numbers(PLAIN)] for name, texts in piece.columns.items()},
        ]
        for piece in found
    ]


def by_python(path, spec, monkeypatch):
    """Return the same by Python's reader alone."""
    with monkeypatch.context() as patch:
        patch.setattr(CsvTable, "_at_once", lambda self: None)
        return read(path, spec)


LIMITS = st.fixed_dictionaries(
    {
        "ROWS": st.integers(1, 9),
        "CHUNK": st.integers(1, 60),
        "MOST_PIECE": st.sampled_from([1 << 26, 40]),
        "MOST_ROW": st.sampled_from([1 << 24, 1 << 24, 60]),
    }
)


@common
@given(
    rows=ROWS,
    ragged=st.sampled_from([False] * 5 + [True]),
    kinds=st.tuples(KINDS, KINDS),
    missing=st.lists(st.sampled_from(["", "NA", "?", "1", " "]), unique=True),
    delimiter=st.sampled_from(",,;\t"),
    comment=st.sampled_from([None, None, "#"]),
    most=LIMITS,
)
def test_arrow_and_python_read_alike(
    tmp_path, monkeypatch, rows, ragged, kinds, missing, delimiter, comment, most
):
    for name, value in most.items():
        monkeypatch.setattr(limits, name, value)
    text = f"a{delimiter}b{delimiter}y\n"
    for row, end in rows:
        text += delimiter.join(row[:2] if ragged and row[2] == "y" else row) + end
    (path := tmp_path / "t.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
    features = dict(zip("ab", kinds, strict=True))
    told = {"features": features, "label": "y", "missing": missing, "delimiter": delimiter}
    spec = TableSpec.model_validate({**told, "comment": comment})
    assert read(path, spec) == by_python(path, spec, monkeypatch)


def halfway(value):
    """Return the decimals of the number in the middle of a float and the next, to the last digit."""
    with localcontext() as context:
        context.prec = 1200
        return str((Decimal(value) + Decimal(math.nextafter(value, math.inf))) / 2)


FLOATS = st.floats(allow_nan=False, allow_infinity=False, max_value=1e308, min_value=-1e308)
DECIMALS = st.one_of(
    FLOATS.map(repr),
    FLOATS.map(halfway),
    st.tuples(FLOATS.map(halfway), st.sampled_from("0159")).map("".join).filter(lambda text: "E" not in text),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?", fullmatch=True),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DECIMALS, min_size=1, max_size=20), st.sampled_from([".", ","]))
def test_a_number_is_that_which_python_makes_of_its_text(tmp_path, texts, mark):
    wanted = [float(text) for text in texts]
    assert Texts.of(texts).numbers(PLAIN).tolist() == wanted
    spec = {"features": {"a": "numeric"}, "label": "y", "delimiter": ";", "decimal": mark}
    rows = "".join(f"{text.replace('.', mark)};y\n" for text in texts)
    (path := tmp_path / "t.csv").write_text(f"a;y\n{rows}")
    (piece,) = pieces("csv", path, TableSpec.model_validate(spec))
    assert piece.columns["a"].numbers(piece.notation).tolist() == wanted


@given(st.text(max_size=6) | ODD)
def test_no_text_is_a_number_that_is_none_to_python(text):
    (found,) = Texts.of([text := text.strip().replace("\ud800", "")]).numbers(PLAIN)
    assert found == number(text) or not (math.isfinite(found) or math.isfinite(number(text)))


def test_common_tables_are_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(CsvTable, "_by_python", lambda self: None)
    monkeypatch.setattr(limits, "CHUNK", 100)
    monkeypatch.setattr(limits, "ROWS", 7)
    texts = ["p", "q, r", 'say "no"', "two\nlines", "two\r\nlines", "é", " s ", ""]
    for end in ("\n", "\r\n"):
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC):
            rows = [[n / 7, texts[n % 8], "uv"[n % 2]] for n in range(100)]
            with (path := tmp_path / "t.csv").open("w", newline="") as file:
                csv.writer(file, quoting=quoting, lineterminator=end).writerows([["a", "b", "y"], *rows])
            spec = TableSpec.model_validate({"features": {"a": "numeric", "b": "categorical"}, "label": "y"})
            found = list(pieces("csv", path, spec))
            assert [len(piece) for piece in found] == [7] * 14 + [2]
            assert all(piece.columns["a"].numeric for piece in found)
            numbers = np.concatenate([piece.columns["a"].numbers(PLAIN) for piece in found])
            assert numbers.tolist() == [row[0] for row in rows]
            wanted = [row[1].strip() or None for row in rows]
            assert [text for piece in found for text in piece.columns["b"]] == wanted


def test_long_rows_end_a_piece_where_they_did(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MOST_PIECE", 1000)
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{'1' * (n % 90 + 1)},u\n" for n in range(300)))
    spec = TableSpec.model_validate({"features": {"a": "numeric"}, "label": "y"})
    sizes = [len(piece) for piece in pieces("csv", path, spec)]
    with monkeypatch.context() as patch:
        patch.setattr(CsvTable, "_at_once", lambda self: None)
        assert [len(piece) for piece in pieces("csv", path, spec)] == sizes
    assert len(sizes) > 10
