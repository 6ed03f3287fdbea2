"""A first spec of a table, guessed from its rows, for its owner to read through."""

from __future__ import annotations

import csv
import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path

from data_prep.tables.label import TAKES
from data_prep.tables.piece import Piece
from data_prep.tables.spec import TableSpec
from data_prep.tables.stream import names_of_parquet, pieces
from data_prep.tables.surveying import survey
from mpifl.common import InputError, visible

KINDS = tuple(kind for kind in TAKES if kind != "none")
"""What a label may be."""
MISSING = ("", "?", "NA", "NaN", "nan", "null")
"""What is taken for a missing value."""
MOST_LEVELS = 50
"""Different texts of a column that is taken for categories; one with more is left out."""
DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Learned:
    """What is learned of a table, as `[label]` of its spec has it.

    Attributes:
        kind: categorical, numeric, multilabel or survival.
        columns: The label's columns; of survival the time, then the event.
        silo: The column of natural silos, if one is.
        names: What a CSV table's columns are called, where its first line does not say it.
    """

    kind: str
    columns: tuple[str, ...]
    silo: str | None = None
    names: tuple[str, ...] = ()

    def written(self) -> list[str]:
        """Return the lines of the spec that say so.

        Raises:
            InputError: there are more columns, or fewer, than its kind takes.
        """
        silo = [f"silo = {_quoted(self.silo)}"] if self.silo else []
        keys, one = TAKES[self.kind], len(self.columns) == 1
        if "columns" in keys and not (one and "column" in keys):
            given = f"columns = [{', '.join(map(_quoted, self.columns))}]"
        elif len(wanted := [key for key in keys if key != "columns"]) == len(self.columns):
            given = ", ".join(
                f"{key} = {_quoted(name)}" for key, name in zip(wanted, self.columns, strict=True)
            )
        else:
            raise InputError(f"--label: {self.kind} takes {','.join(wanted).upper()}; name each, by commas")
        names = [f"names = [{', '.join(map(_quoted, self.names))}]"] if self.names else []
        return [f'label = {{ kind = "{self.kind}", {given} }}', *silo, *names]


def draft(path: Path, learned: Learned) -> str:
    """Return the text of a spec for a table, CSV or Parquet by its ending.

    The kinds of columns are guessed from the first piece of the table: numbers, or a few texts. A column of
    many texts is left out, in a comment.

    Raises:
        InputError: the table cannot be read, or lacks a column that is named.
    """
    kind = "parquet" if path.suffix == ".parquet" else "csv"
    names, delimiter = (names_of_parquet(path), ",") if kind == "parquet" else _header(path)
    if learned.names and kind == "parquet":
        raise InputError(f"--names: {path} is Parquet, which names its columns; leave it out")
    names = [*learned.names] or names
    own = [*learned.columns, *([learned.silo] if learned.silo else [])]
    if lacking := [name for name in own if name not in names]:
        there = f"there are {', '.join(names)[:300]}"
        headless = any(map(_is_number, names))
        hint = (
            "; these look like a row: give the columns' names by --names, or in a line above it"
            if headless
            else ""
        )
        raise InputError(f"{path}: has no column '{lacking[0]}'; {there}{hint}")
    features = {name: "categorical" for name in names if name not in own}
    if not features:
        raise InputError(f"{path}: has no column beside {', '.join(own)}; a feature is needed")
    given = {"features": features, "missing": MISSING, "delimiter": delimiter}
    spec = TableSpec.model_validate({**given, "names": learned.names or None})
    piece = next(iter(pieces(kind, path, spec)), None)
    if piece is None:
        raise InputError(f"{path}: has no rows")
    lines = [
        f"# What the columns of {visible(path.name)} mean.",
        f"# It is guessed from the first {len(piece):,} rows: read it through.",
        *learned.written(),
        f"missing = [{', '.join(map(_quoted, MISSING))}]",
        'standardise = "own"',
        *([f"delimiter = {_quoted(delimiter)}"] if delimiter != "," else []),
    ]
    return "\n".join([*lines, "", "[features]", *(_guess(name, piece) for name in features), ""])


def label_moments(path: Path, column: str) -> tuple[float, float]:
    """Return mean and deviation of a table's column of numbers, gaps left out; 0 and 1 without any.

    Raises:
        InputError: the table cannot be read, lacks the column, or it is none of numbers.
    """
    kind = "parquet" if path.suffix == ".parquet" else "csv"
    delimiter = "," if kind == "parquet" else _header(path)[1]
    only = {"features": {column: "numeric"}, "missing": MISSING, "delimiter": delimiter}
    found = survey(kind, path, TableSpec.model_validate({**only, "standardise": "own"})).moments
    return found.columns[column].mean, found.columns[column].deviation


def _header(path: Path) -> tuple[list[str], str]:
    """Return the names of a CSV table's columns, and what separates them: what its first line has most of."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline(1 << 20)
        delimiter = max(DELIMITERS, key=line.count)
        words = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as a CSV table in UTF-8 ({error})") from None
    if "\0" in line:
        raise InputError(f"{path}: line 1: has a NUL character; export the table again in UTF-8")
    names = [word.strip() for word in words]
    if not any(names):
        raise InputError(f"{path}: its first line names no columns")
    return names, delimiter


def _guess(name: str, piece: Piece) -> str:
    """Return the line of a feature."""
    column = piece.columns[name]
    known, gaps = [value for value in column if value is not None], None in column
    key = name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _quoted(name)
    levels = sorted(set(known))
    if known and all(map(_is_number, known)):
        if len(known) > 2 and _is_numbering([float(value) for value in known]):
            return f"# {key} is left out: it numbers the rows"
        return f'{key} = {{ kind = "numeric", missing = "mean" }}' if gaps else f'{key} = "numeric"'
    if len(levels) > MOST_LEVELS or not known:
        return f"# {key} is left out: {len(levels):,} different texts"
    shown = ", ".join(itertools.islice(levels, 6)) + (", ..." if len(levels) > 6 else "")
    value = '{ kind = "categorical", missing = "level" }' if gaps else '"categorical"'
    return f"{key} = {value}  # {' '.join(visible(shown).split())}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_numbering(values: list[float]) -> bool:
    return all(after == before + 1 for before, after in itertools.pairwise(values))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML takes it escaped alone
