"""What in a description of shards can be trained on, and was probably not meant so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data_prep.dataset.changed_rows import changes_of
from data_prep.dataset.outcome_shares import inverted_told
from mpifl.data.shards import FederationSpec, VerticalSpec

MOST_NAMED = 5
"""Names in a line."""
MANY, FEWEST = 10, 5
"""Classes from which on they may be measurements, and how few examples each has in the mean then."""
BLACK_AND_WHITE = (0, 255)
"""What programs that draw write for the two classes of a mask."""


class Doubt(NamedTuple):
    """One of them: about what, and what was found with what would do."""

    kind: str
    what: str


def doubts(spec: FederationSpec | VerticalSpec, *, spelled: bool = False) -> list[Doubt]:
    """Return what is doubtful in `federation.json`, which alone is looked at.

    Classes without a training example or with few, test examples of classes that no silo trains on, masks of
    0 and 255. An outcome that may be inverted at a site. Names that differ only by case, columns whose names
    are a row. Groups of one row. Rows that were left out, and values that were changed; where asked, those
    `spelled` otherwise as the spec states it.
    """
    found = _classes(spec), _outcomes(spec), _many(spec), _names(spec), _header(spec), _groups(spec)
    return [*(doubt for doubts in found for doubt in doubts), *_changed(spec, spelled)]


def _changed(spec: FederationSpec | VerticalSpec, spelled: bool) -> Iterator[Doubt]:
    for kind, told in changes_of(spec.source).items():
        if spelled or kind != "spelled":
            yield Doubt(kind, told)
    match spec.source.get("laid"):
        case {"images": int(count), "on": str(ground)}:
            what = f"{count:,} images may be transparent, and lie on {ground}"
            yield Doubt("transparent", f"{what}; --option ground=COLOUR takes another")


def _groups(spec: FederationSpec | VerticalSpec) -> Iterator[Doubt]:
    """Find groups that keep nothing together."""
    owned = [entry for entry in spec.silos if entry.groups]
    rows = sum(entry.examples[split] for entry in owned for split in entry.groups or ())
    if rows and rows == sum(sum((entry.groups or {}).values()) for entry in owned):
        what = "every group has one row, as if the column numbered records"
        yield Doubt("groups", f"{what}; name the column that is the same in all rows of a person")


def _classes(spec: FederationSpec | VerticalSpec) -> Iterator[Doubt]:
    counted = [entry for entry in spec.silos if entry.labels]
    if not spec.classes or not counted or of_tokens(spec):
        return
    trained = np.sum([entry.labels or [] for entry in counted], axis=0)
    tested = np.array(spec.test.labels if spec.test else np.zeros_like(trained))
    there = np.flatnonzero(trained + tested).tolist()
    if spec.classes == 256 and there == list(BLACK_AND_WHITE):
        what = "labels are only 0 and 255, in 256 classes: 255 is not a class number"
        yield Doubt("classes", f"{what}; store it as 1, or say --option ignore=255 if it does not count")
        return
    if unknown := np.flatnonzero((trained == 0) & (tested > 0)).tolist():
        said = f"the test set has {_called(spec, unknown)}, {tested[unknown].sum():,} times"
        trains = f"no silo trains on {'them' if len(unknown) > 1 else 'it'}"
        yield Doubt("classes", f"{said}, and {trains}; check that both belong to the same task")
    if empty := np.flatnonzero(trained + tested == 0).tolist():
        yield Doubt("classes", f"{_called(spec, empty)} without a training example; {_remedy(spec, empty)}")


def _outcomes(spec: FederationSpec | VerticalSpec) -> Iterator[Doubt]:
    """Find a site whose outcome may be inverted."""
    if isinstance(spec, FederationSpec):
        yield from (Doubt("outcome", line) for line in inverted_told(spec))


def _many(spec: FederationSpec | VerticalSpec) -> Iterator[Doubt]:
    """Find classes that are measurements, or names of the examples."""
    counted = [entry for entry in spec.silos if entry.labels]
    labels = np.sum([entry.labels or [] for entry in counted], axis=0)
    rows, there = int(np.sum(labels)), int(np.count_nonzero(labels))
    if there < MANY or rows != sum(entry.examples["train"] for entry in counted):
        return
    fractions = [name for name in spec.class_names or () if _is_number(name) and not float(name).is_integer()]
    if FEWEST * there > rows:
        what = f"{there:,} classes in {rows:,} training examples, fewer than {FEWEST} of each"
    elif len(fractions) * 2 > there:
        what = f"{there:,} classes, most of them numbers with fractions, as '{fractions[0]}'"
    else:
        return
    remedy = "a table's label takes kind = 'numeric', arrays --option targets=values"
    yield Doubt("classes", f"{what}; if these are measurements, learn them as values: {remedy}")


def _header(spec: FederationSpec | VerticalSpec) -> Iterator[Doubt]:
    """Find columns whose names are a row: each a number, or one of its own column's values."""
    columns: dict[str, list[str]] = {}
    for name in spec.feature_names or ():
        column, _, level = name.partition("=")
        columns.setdefault(column, []).append(level)
    numbered = [str(at) for at in range(len(columns) + 2)]
    names = [*columns]
    if names in (numbered[: len(names)], numbered[1 : len(names) + 1]):
        return
    if names and all(
        (levels == [""] and _is_number(name)) or name in levels for name, levels in columns.items()
    ):
        what = f"the columns' names look like a row: {', '.join(names[:MOST_NAMED])}"
        yield Doubt(
            "columns", f"{what}; if they are one, state the names in the table's spec, as names = [...]"
        )


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def of_tokens(spec: FederationSpec | VerticalSpec) -> bool:
    """Tell whether targets are sequences of tokens, whose vocabulary need not occur."""
    one = spec.features
    if isinstance(one, dict):
        return any(not of.dtype.startswith("float") and of.scale is None for of in one.values())
    tokens = one.scale is None and not one.dtype.startswith("float") and len(one.shape) == 1
    labels = sum(sum(entry.labels or ()) for entry in spec.silos)
    return tokens and labels != sum(entry.examples["train"] for entry in spec.silos if entry.labels)


def _called(spec: FederationSpec | VerticalSpec, classes: Sequence[int]) -> str:
    names = spec.class_names
    known = [f"'{names[one]}'" if names and one < len(names) else str(one) for one in classes[:MOST_NAMED]]
    more = f" and {len(classes) - MOST_NAMED:,} more" if len(classes) > MOST_NAMED else ""
    return f"{'classes' if len(classes) > 1 else 'class'} {', '.join(known)}{more}"


def _remedy(spec: FederationSpec | VerticalSpec, empty: Sequence[int]) -> str:
    if list(empty) == [0] and not spec.class_names:
        return "number them from 0, not from 1, and skip hidden folders"
    one = "a model cannot learn it"
    return "the model has outputs for them, and cannot learn them" if len(empty) > 1 else one


def _names(spec: FederationSpec | VerticalSpec) -> Iterator[Doubt]:
    names = [] if _is_text(spec) else spec.class_names or []
    yield from _alike("classes", names)
    yield from _alike("silos", [entry.name for entry in spec.silos])
    yield from _alike("levels", [name for name in spec.feature_names or () if "=" in name])


def _is_text(spec: FederationSpec | VerticalSpec) -> bool:
    """Tell whether classes are the characters of a text."""
    return all(len(name) == 1 for name in spec.class_names or ()) and of_tokens(spec)


def _alike(kind: str, names: Sequence[str]) -> Iterator[Doubt]:
    """Find names that differ by case, or by blanks at their ends, alone."""
    known: dict[str, str] = {}
    for name in names:
        first = known.setdefault(" ".join(name.split()).casefold(), name)
        if first != name:
            how = "blanks" if first.split() == name.split() else "case"
            said = f"{kind} '{first}' and '{name}' differ only by {how}"
            yield Doubt(kind, f"{said}; spell them alike if they are the same")
            return
