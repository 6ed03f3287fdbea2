"""What is seen only where the tables of several sites lie at one place: another unit, and one person at two
sites."""

from __future__ import annotations

import math
import statistics as statistics_of
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from data_prep.tables import ColumnMoments, Moments, SiteTable, names_in, spec_beside

FAR = 5.0
"""How many deviations within sites a site's mean is off where its unit may be another."""
SCALED, ALIKE = 8.0, 3.0
"""How many times as large mean and deviation both are in another unit, and how unlike both factors may be."""
FEWEST = 5
"""Values without which a site says nothing of a unit."""
MOST_NAMED = 5
"""Columns in as many lines."""


def units_told(statistics: Mapping[str, Moments], tables: Mapping[str, SiteTable]) -> list[str]:
    """Return a line for each numeric column that one site may have in another unit than the others.

    Its mean is over 5 deviations off, by what varies within sites, or its mean and deviation are both over 8
    times as large or as small as those of the others.

    Args:
        statistics: The moments of each site's columns, by the sites' names.
        tables: The tables by the same names.
    """
    spec = next(iter(tables.values())).spec
    names = [name for name, column in spec.features.items() if column.kind == "numeric"]
    told = [line for name in names for line in _of_column(name, statistics, tables)]
    more = [f"{len(told) - MOST_NAMED:,} more columns of sites are as far off"]
    return told[:MOST_NAMED] + (more if len(told) > MOST_NAMED else [])


def _of_column(
    name: str, statistics: Mapping[str, Moments], tables: Mapping[str, SiteTable]
) -> Iterator[str]:
    """Yield a line for each site that may have a column in another unit; of two sites one is named."""
    columns = {site: one.columns.get(name, ColumnMoments()) for site, one in statistics.items()}
    columns = {site: one for site, one in columns.items() if one.count >= FEWEST}
    count = sum(one.count for one in columns.values())
    within = math.sqrt(sum(one.count * _spread(one) ** 2 for one in columns.values()) / max(count, 1))
    several = len(columns) > 2
    for site in [*columns] if several else [*columns][1:]:
        own = columns[site]
        others = sum((one for other, one in columns.items() if other != site), ColumnMoments())
        # one odd site moves the mean of the others for all but itself, and the median for none
        middle = statistics_of.median(one.mean for one in columns.values()) if several else others.mean
        apart = min(abs(own.mean - others.mean), abs(own.mean - middle))
        if (within and apart > FAR * within) or _is_scaled(own, others):
            what = f"{name} at {site}: mean {own.mean:.3g}, elsewhere {others.mean:.3g}; another unit?"
            yield f"{what} say factor = ... for it in {spec_beside(tables[site].path)}"


def _spread(one: ColumnMoments) -> float:
    """Return the deviation of a column, 0 where it is constant."""
    return math.sqrt((one.apart or 0.0) / max(one.count, 1))


def _is_scaled(own: ColumnMoments, others: ColumnMoments) -> bool:
    """Tell whether mean and deviation of a site are those of the others, times a factor."""
    parts = own.mean, others.mean, _spread(own), _spread(others)
    if not all(parts):
        return False
    mean, deviation = own.mean / others.mean, parts[2] / parts[3]
    larger = min(mean, deviation) > SCALED or 0 < max(mean, deviation) * SCALED < 1
    return larger and mean > 0 and 1 / ALIKE < mean / deviation < ALIKE


def shared_groups(tables: Mapping[str, SiteTable], group: str | None) -> list[str]:
    """Return a line about groups with rows at two sites; nothing where no column says whose a row is.

    Args:
        tables: The tables by the sites' names.
        group: The column that says it, if the specs do not.

    Raises:
        InputError: a table lacks the column.
    """
    of = {site: group or one.spec.group for site, one in tables.items()}
    found = {site: names_in(tables[site], name) for site, name in of.items() if name is not None}
    pairs = Counter({(a, b): len(found[a] & found[b]) for a, b in combinations(found, 2)})
    ((first, second), most), *_ = pairs.most_common(1) or [(("", ""), 0)]
    if not most:
        return []
    times = Counter(name for names in found.values() for name in names)
    count, column = sum(1 for often in times.values() if often > 1), of[first]
    what = f"{count:,} group{'s' if count > 1 else ''} of {column} {'have' if count > 1 else 'has'} rows at"
    where = f"{what} two sites or more ({most:,} at {first} and {second})"
    remedy = (
        "if these are the same persons, keep each at one site: else one site trains on whom another tests"
    )
    return [f"{where}; {remedy}. Numbers that each site gave for itself mean nothing"]
