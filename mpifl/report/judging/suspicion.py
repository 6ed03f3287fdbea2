"""Which silos are suspected: to whom a rule gave little, or whom it found at the edges, round after round."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from mpifl.report.observers import Record
from mpifl.run.folder import number
from mpifl.run.job.tables import BY_WEIGHTS

LITTLE, ROUNDS = 0.5, 5
"""A silo is suspected whose weight was below this part of the mean in each of so many last rounds of its."""

FAR, LEAST = 3.0, 0.02
"""And one whose share of values at the edges was so many deviations above the median of all silos, each of
which is taken for at least so much."""


class Suspicion:
    """Judges the silos by the rounds that it has seen.

    By a rule that chooses some silos and leaves others out by design nobody is suspected for that.

    Args:
        rule: The job's rule of aggregation.
    """

    def __init__(self, rule: object) -> None:
        kind = BY_WEIGHTS.get(str(rule))
        self._judges_weights = kind is None or not kind.chooses
        self._last: dict[tuple[str, str], deque[bool]] = {}

    def see(self, record: Record) -> list[str]:
        """Take note of a round; return the silos that are suspected after it."""
        weights = relative_weights(record) if self._judges_weights else {}
        outside, _, limit = edges(record)
        found = {("weights", silo): share < LITTLE for silo, share in weights.items()}
        found |= {("outside", silo): share > limit for silo, share in outside.items()}
        for key, is_odd in found.items():
            self._last.setdefault(key, deque(maxlen=ROUNDS)).append(is_odd)
        always = {silo for (_, silo), last in self._last.items() if len(last) == ROUNDS and all(last)}
        return sorted(always, key=lambda silo: (len(silo), silo))


def relative_weights(record: Record) -> dict[str, float]:
    """Return the weights of a round's silos divided by their mean, if it has weights."""
    found = _numbers(record.get("weights"))
    mean = fmean(found.values()) if found else 0.0
    return {silo: weight / mean for silo, weight in found.items()} if mean > 0 else {}


def edges(record: Record) -> tuple[dict[str, float], float, float]:
    """Return the shares of values at the edges of a round's silos, their median, and what is far from it.

    A deviation is 1.4826 times the median distance from the median, which few liars cannot move.
    """
    found = _numbers(record.get("outside"))
    middle = median(found.values()) if found else 0.0
    spread = median(abs(share - middle) for share in found.values()) if found else 0.0
    return found, middle, middle + FAR * max(1.4826 * spread, LEAST)


def _numbers(given: Any) -> dict[str, float]:
    held = given if isinstance(given, Mapping) else {}
    return {silo: value for silo in held if (value := number(held, silo)) is not None}
