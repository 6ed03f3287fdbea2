"""What a rule by weights gave each silo, over the rounds of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from mpifl.aggregation import WEIGHT_RULES
from mpifl.common import Names
from mpifl.run import number

LITTLE, ROUNDS = 0.5, 5
"""A silo is suspected whose weight was below this part of the mean in each of so many last rounds of its."""


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


def _is_suspected(shares: Sequence[float]) -> bool:
    return len(shares) >= ROUNDS and max(shares[-ROUNDS:]) < LITTLE


def _shares(weights: Mapping[str, Any]) -> dict[str, float]:
    """Return weights divided by their mean, if they are weights."""
    found = {silo: weight for silo in weights if (weight := number(weights, silo)) is not None}
    mean = fmean(found.values()) if found else 0.0
    return {silo: weight / mean for silo, weight in found.items()} if mean > 0 else {}
