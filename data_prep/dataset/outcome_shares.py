"""Shares of an outcome of two classes at several sites: which codes are one, and where it is inverted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from data_prep.dataset.other_units import BY_SITE
from mpifl.data.shards import FederationSpec

SAID = {
    **dict.fromkeys(("no", "n", "nein", "non", "nee", "nej", "false", "neg", "negative", "negativ", "-"), 0),
    **dict.fromkeys(("yes", "y", "ja", "j", "oui", "true", "pos", "positive", "positiv", "+"), 1),
    **dict.fromkeys(("0", "0.0"), 0),
    **dict.fromkeys(("1", "1.0"), 1),
}
"""What says no and yes. `no` beside si is Spanish or Italian, and says the same."""
YES = ("si", "sí", "sì", "sim")
RARE, ERRORS = 1 / 3, 2.0
"""The share up to which the rarer class is told by it, and by how many standard errors it is below."""
FEW, LIKE, ENOUGH = 0.25, 0.1, 20
"""The largest share of a class at all sites but one, how close the other class comes to it at that one, and
the rows that each site has."""


def affirms(values: Sequence[str]) -> bool | None:
    """Tell which of two values says yes: True if the second one does; None where words do not tell."""
    words = [value.strip().casefold() for value in values]
    said = [1 if word in YES else SAID.get(word) for word in words]
    return said == [0, 1] if said in ([0, 1], [1, 0]) else None


def negative_first(values: Sequence[str]) -> list[str]:
    """Return values with no before yes where they are two such words, else as they are."""
    return [*reversed(values)] if affirms(values) is False else [*values]


def paired(codes: Sequence[tuple[str, ...]], rows: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return the codes of an outcome that mean the same, those of the first tables first; nothing where two
    pairings are possible.

    Words for yes and no tell it. Else the rarer code does, where each table has one that is clearly rare.

    Args:
        codes: Two codes of each kind of tables.
        rows: How many rows have each code.
    """
    if all(affirms(pair) is not None for pair in codes):
        return [*zip(*map(negative_first, codes), strict=True)]
    rare = [min(pair, key=lambda code: rows[code]) for pair in codes]
    if not all(
        _is_rare(rows[one], sum(rows[code] for code in pair)) for one, pair in zip(rare, codes, strict=True)
    ):
        return []
    last = rare[0] == codes[0][1]
    alike = [pair if (one == pair[1]) == last else pair[::-1] for one, pair in zip(rare, codes, strict=True)]
    return [*zip(*alike, strict=True)]


def _is_rare(times: int, rows: int) -> bool:
    """Tell whether a code is the rarer one beyond chance, and by far."""
    share = times / rows
    return share + ERRORS * math.sqrt(share * (1 - share) / rows) <= RARE


def inverted_told(spec: FederationSpec) -> list[str]:
    """Return a line about a site whose outcome is probably inverted: its share is that of the other class at
    all other sites.

    Sites have tables, and an outcome of two classes in ENOUGH rows each. One class has at most FEW of the
    rows at all sites but one, and the other class has about as few of them at that one, within LIKE.
    """
    if spec.classes != 2 or not spec.feature_names or spec.scheme.get("name") not in BY_SITE:
        return []
    counts = {one.name: [*one.labels] for one in spec.silos if one.labels and sum(one.labels) >= ENOUGH}
    for label in (0, 1) if len(counts) > 1 else ():
        shares = {name: found[label] / sum(found) for name, found in counts.items()}
        site = max(shares, key=lambda name: shares[name])
        others = [found for name, found in counts.items() if name != site]
        rest = sum(found[label] for found in others) / sum(map(sum, others))
        few = all(share <= FEW for name, share in shares.items() if name != site)
        if few and 1 - shares[site] <= FEW and abs(1 - shares[site] - rest) <= LIKE:
            called = (spec.class_names or ("0", "1"))[label]
            what = f"{site} has '{called}' in {shares[site]:.1%} of its training rows, all others together"
            return [f"{what} in {rest:.1%}; is the outcome inverted there? See how its table codes it"]
    return []
