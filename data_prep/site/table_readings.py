"""Whether sites read their tables alike: numbers, dates, and what they take for a missing value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.data.shards import FederationSpec, encoding_of, reading_of, unlike_readings

MARKS = "missing"
"""Where `source` of a site's entry says which texts stand for a missing value in its table."""
READING = "reading"
"""Where it says how the table writes numbers and dates."""
MOST_NAMED = 6
"""Columns in a line."""


def read_by(encoding: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a site's entry says of how it read its table, from the encoding of that; nothing of other
    data."""
    if encoding is None or encoding.get("kind") != "table":
        return {}
    return {MARKS: sorted({*encoding["spec"].get("missing", [""])}), READING: reading_of(encoding)}


def read_apart(specs: Sequence[FederationSpec]) -> list[str]:
    """Return what sites write in different ways in their tables, or otherwise than the spec they agreed on.

    Args:
        specs: Those of sites' entries; that of a federation says it of its sites.
    """
    told = [one.source[READING] for one in specs if isinstance(one.source.get(READING), dict)]
    told += [reading_of(encoding_of(one.source)) for one in specs if told]
    apart = {key for one in told for key in one if any(other.get(key) != one[key] for other in told)}
    return sorted({*apart, *(key for one in specs for key in unlike_readings(one.source))})


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
