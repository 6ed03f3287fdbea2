"""Groups with rows at two sites, which are seen only where the tables of several sites lie at one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from data_prep.tables import SiteTable, names_in


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
