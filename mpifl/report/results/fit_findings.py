"""What a regression says, in sentences: its rows, whether it has converged, and which effects are not 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.common import count_of
from mpifl.report.pictures import unsettled

MODELS = {
    "odds_ratio": "Logistic regression",
    "hazard_ratio": "Cox's model",
    "rate_ratio": "Poisson regression",
}
"""What a fit is called, by the ratio that its rows have; linear regression has none."""
INTERCEPT = "(intercept)"
MOST_NAMED, MOST_TOLD = 6, 3
"""Columns whose intervals leave out 0 that are named, and those that are told with their figures."""
NOT_CORRECTED = "Nothing is corrected for the number of coefficients."


def told_of_fit(fit: Mapping[str, Any], silos: int) -> list[str]:
    """Return what the record of a fit says; `silos` is how many have rows, 0 where nobody knows."""
    rows = [row for row in fit["coefficients"] if "estimate" in row and row["name"] != INTERCEPT]
    ratio = next((one for one in MODELS if any(one in row for row in fit["coefficients"])), "")
    where = f" at {count_of(silos, 'silo')}" if silos else ""
    of = f"{count_of(fit['rows'], 'row')}{where}"
    of += f" with {count_of(fit['events'], 'event')}" if "events" in fit else ""
    model = MODELS.get(ratio, "Linear regression")
    first = f"{model}: {count_of(len(rows), 'coefficient')} of {of}."
    if doubt := unsettled(fit):
        return [f"{first} The fit has not converged, so do not report it: {doubt}."]
    return [f"{first} The fit has converged.", *_effects(rows, ratio)]


def _effects(rows: Sequence[Mapping[str, Any]], ratio: str) -> list[str]:
    """Say which 95 % intervals leave out 0, and tell those effects that lie furthest from it."""
    if not rows:
        return []
    found = sorted(
        (row for row in rows if row["low"] > 0 or row["high"] < 0), key=lambda row: -abs(row["statistic"])
    )
    if not found:
        return [f"No coefficient has a 95% interval without 0. {NOT_CORRECTED}"]
    has = "has a 95% interval" if len(found) == 1 else "have 95% intervals"
    names = [row["name"] for row in found[:MOST_NAMED]]
    more = f" and {len(found) - MOST_NAMED:,} more" * (len(found) > MOST_NAMED)
    which = f"{len(found):,} of {len(rows):,} {has} without 0: {', '.join(names)}{more}. {NOT_CORRECTED}"
    told = [_effect(row, ratio) for row in found[:MOST_TOLD]]
    return [which, f"Largest effects, by estimate over error: {'; '.join(told)}."]


def _effect(row: Mapping[str, Any], ratio: str) -> str:
    """Write one effect with its interval, and what it is the effect of."""
    unit = " for one deviation" if "deviation" in row else " for each unit"
    what = f" against {row['against']}" if "against" in row else unit
    called = f"{ratio.replace('_', ' ')} " if ratio else "estimate "
    value, low, high = (row[key] for key in ((ratio, "ratio_low", "ratio_high") if ratio else _ENDS))
    return f"{row['name']}{what}, {called}{value:.4g} (95% interval {low:.4g} to {high:.4g})"


_ENDS = ("estimate", "low", "high")
