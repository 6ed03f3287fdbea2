"""Whether sites take the same texts of their tables for a missing value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.data.shards import FederationSpec

MARKS = "missing"
"""Where `source` of a site's entry says which texts stand for a missing value in its table."""
MOST_NAMED = 6
"""Columns in a line."""


def marks_told(encoding: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Return what a site's entry says of its marks, from the encoding of its table; nothing of other data."""
    if encoding is None or encoding.get("kind") != "table":
        return {}
    return {MARKS: sorted({*encoding["spec"].get("missing", [""])})}


def unlike_gaps(specs: Sequence[FederationSpec]) -> str:
    """Return a line where a site takes other texts for a missing value than the first one does; else "".

    A site whose entry does not say it is left out.
    """
    told = [(one, {*marks}) for one in specs if (marks := _strings(one.source.get(MARKS))) and one.silos]
    odd = next(((one, marks) for one, marks in told[1:] if marks != told[0][1]), None)
    if odd is None:
        return ""
    first, second = told[0], odd
    names = [one.silos[0].name for one, _ in (first, second)]
    more = [first[1] - second[1], second[1] - first[1]]
    alone = [
        f"only {name}'s spec reads {', '.join(map(repr, sorted(marks)))} as missing{_gaps(one)}"
        for name, marks, (one, _) in zip(names, more, (first, second), strict=True)
        if marks
    ]
    return f"missing: of {' and '.join(names)} {'; '.join(alone)}; does the other use it, too?"


def _gaps(spec: FederationSpec) -> str:
    """Name the columns that have gaps at a site, in any of its marks."""
    counted = [_columns(spec.source.get(key)) for key in ("filled", "dropped")]
    names = sorted({name for columns in counted for name in columns})
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f" (gaps there: {', '.join(names[:MOST_NAMED])}{more})" if names else ""


def _columns(told: Any) -> list[str]:
    columns = told.get("columns") if isinstance(told, dict) else None
    return [*map(str, columns)] if isinstance(columns, dict) else []


def _strings(told: Any) -> list[str]:
    """Return a list of texts; what others wrote otherwise says nothing."""
    return told if isinstance(told, list) and all(isinstance(one, str) for one in told) else []
