"""What a rule by weights gave each silo, and whose values a rule of columns found at the edges."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from mpifl.common import Names
from mpifl.report.judging.suspicion import FAR, LITTLE, ROUNDS, Suspicion, edges, relative_weights

ELSE = "If its rows, labels and units are right, its rows differ from the others'."
WHY_LITTLE = f"Suspected: its weight was below {LITTLE:g} in each of its last {ROUNDS} rounds. {ELSE}"
WHY_FAR = (
    f"Suspected: its values at the edges were more than {FAR:g} deviations above the median of all silos, in "
    f"each of its last {ROUNDS} rounds. {ELSE}"
)
"""Why a silo is."""


def weights_of_silos(records: Sequence[dict[str, Any]], rule: object, names: Names) -> list[list[str]]:
    """Return a row for each silo that had weights, the least first: its name, its rounds, its mean weight
    beside that of all silos of a round, the rounds in which it was not chosen, and whether it is suspected.
    """
    shares: dict[str, list[float]] = {}
    for record in records:
        for silo, share in relative_weights(record).items():
            shares.setdefault(silo, []).append(share)
    suspected = suspects(records, rule, "weights")
    return [
        [
            names[silo],
            str(len(found)),
            f"{fmean(found):.2f}",
            str(found.count(0.0)),
            "suspected" if silo in suspected else "",
        ]
        for silo, found in sorted(shares.items(), key=lambda item: fmean(item[1]))
    ]


def edges_of_silos(records: Sequence[dict[str, Any]], names: Names) -> list[list[str]]:
    """Return a row for each silo whose values were counted, the oftenest at the edges first: its name, its
    rounds, its mean share beside the median of all silos of a round, and whether it is suspected."""
    shares: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        found, middle, _ = edges(record)
        for silo, share in found.items():
            shares.setdefault(silo, []).append((share, middle))
    suspected, rows = suspects(records, None, "outside"), []
    for silo, each in sorted(shares.items(), key=lambda item: -fmean(share for share, _ in item[1])):
        own, usual = fmean(share for share, _ in each), fmean(middle for _, middle in each)
        always = "suspected" if silo in suspected else ""
        rows.append([names[silo], str(len(each)), f"{own:.1%}", f"{usual:.1%}", always])
    return rows


def suspects(records: Sequence[dict[str, Any]], rule: object, *by: str) -> list[str]:
    """Return who is suspected after all rounds by these of the figures, or by any."""
    suspicion, found = Suspicion(rule), list[str]()
    for record in records:
        found = suspicion.see({key: record.get(key) for key in by or ("weights", "outside")})
    return found
