"""What a rule by weights gave each silo, and whose values a rule of columns found at the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from mpifl.aggregation import WEIGHT_RULES
from mpifl.common import Names
from mpifl.run import number

LITTLE, ROUNDS = 0.5, 5
"""A silo is suspected whose weight was below this part of the mean in each of so many last rounds of its."""

FAR, LEAST = 3.0, 0.02
"""And one whose share of values at the edges was so many deviations above the median of all silos, each of
which is taken for at least so much."""


def weights_of_silos(records: Sequence[dict[str, Any]], rule: object, names: Names) -> list[list[str]]:
    """Return a row for each silo that had weights, the least first: its name, its rounds, its mean weight
    beside that of all silos of a round, the rounds in which it was not chosen, and whether it is suspected.

    By a rule that chooses some silos and leaves others out by design nobody is suspected for that.
    """
    shares: dict[str, list[float]] = {}
    for record in records:
        for silo, share in _shares(record.get("weights") or {}).items():
            shares.setdefault(silo, []).append(share)
    kind = WEIGHT_RULES.get(str(rule))
    judged = kind is None or not kind.chooses
    return [
        [
            names[silo],
            str(len(found)),
            f"{fmean(found):.2f}",
            str(found.count(0.0)),
            "suspected" if judged and _is_suspected(found) else "",
        ]
        for silo, found in sorted(shares.items(), key=lambda item: fmean(item[1]))
    ]


def edges_of_silos(records: Sequence[dict[str, Any]], names: Names) -> list[list[str]]:
    """Return a row for each silo whose values were counted, the oftenest at the edges first: its name, its
    rounds, its mean share beside the median of all silos of a round, and whether it is suspected.

    A deviation is 1.4826 times the median distance from the median, which few liars cannot move.
    """
    shares: dict[str, list[tuple[float, float, bool]]] = {}
    for record in records:
        given = record.get("outside") or {}
        found = {silo: share for silo in given if (share := number(given, silo)) is not None}
        middle = median(found.values()) if found else 0.0
        spread = median(abs(share - middle) for share in found.values()) if found else 0.0
        limit = middle + FAR * max(1.4826 * spread, LEAST)
        for silo, share in found.items():
            shares.setdefault(silo, []).append((share, middle, share > limit))
    rows = []
    for silo, each in sorted(shares.items(), key=lambda item: -fmean(share for share, _, _ in item[1])):
        own, usual = fmean(share for share, _, _ in each), fmean(middle for _, middle, _ in each)
        always = len(each) >= ROUNDS and all(far for _, _, far in each[-ROUNDS:])
        rows.append(
            [names[silo], str(len(each)), f"{own:.1%}", f"{usual:.1%}", "suspected" if always else ""]
        )
    return rows


def _is_suspected(shares: Sequence[float]) -> bool:
    return len(shares) >= ROUNDS and max(shares[-ROUNDS:]) < LITTLE


def _shares(weights: Mapping[str, Any]) -> dict[str, float]:
    """Return weights divided by their mean, if they are weights."""
    found = {silo: weight for silo in weights if (weight := number(weights, silo)) is not None}
    mean = fmean(found.values()) if found else 0.0
    return {silo: weight / mean for silo, weight in found.items()} if mean > 0 else {}
