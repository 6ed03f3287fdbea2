"""What a run of exact sums came to, in sentences: a regression, survival curves, or a table of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.common import count_of, one_line
from mpifl.report.pictures import fit_of
from mpifl.report.results.fit_findings import told_of_fit
from mpifl.report.runs import Record, chance, units

MOST_GROUPS = 4
"""Groups whose medians are told."""


def told_of_result(records: Sequence[Record], silos: int) -> list[str]:
    """Return what a run found in the rows of all silos; [] of a run that trains a model.

    Args:
        records: Its rounds.
        silos: How many silos have rows, 0 where nobody knows.
    """
    last = records[-1] if records else {}
    if fit := fit_of(records):
        return told_of_fit(fit, silos)
    if (curves := last.get("survival")) is not None:
        return _of_curves(curves)
    if (table := last.get("table")) is not None:
        where = f" at {count_of(silos, 'silo')}" if silos else ""
        of = count_of(len(table["variables"]), "variable")
        groups = f" of {table['groups']:,} groups, such as patients," if "groups" in table else ""
        return [f"Table 1 describes {count_of(table['rows'], 'row')}{groups}{where} by {of}."]
    return []


def _of_curves(told: Mapping[str, Any]) -> list[str]:
    """Say of which rows survival curves are, when half of each group have had the event, and whether groups
    part."""
    shown = [one for one in told["groups"] if not one["withheld"]]
    less = len(told["groups"]) - len(shown)
    rows, events = (sum(one[key] for one in shown) for key in ("rows", "events"))
    many = count_of(len(shown), "group")
    said = f"Survival of {count_of(rows, 'row')} in {many}, with {count_of(events, 'event')}."
    said += f" {count_of(less, 'group')} with few events {'is' if less == 1 else 'are'} withheld." * (
        less > 0
    )
    medians = [f"{one_line(one['name'])} {_median(one)}" for one in shown[:MOST_GROUPS]]
    more = f"; {len(shown) - MOST_GROUPS:,} more below" * (len(shown) > MOST_GROUPS)
    found = [said, f"Median time: {'; '.join(medians)}{more}."] if shown else [said]
    if test := told.get("log_rank"):
        parts = "differ by more than chance" if test["p"] <= chance.LEVEL else "show no difference"
        p = units.probability(test["p"])
        found.append(f"The curves {parts}: p {p if '<' in p else f'= {p}'} by the log-rank test.")
    return found


def _median(group: Mapping[str, Any]) -> str:
    """Write a group's median time with its interval."""
    if group["median"] is None:
        return "is not reached"
    low, high = (_end(group[key]) for key in ("median_low", "median_high"))
    return f"{group['median']:,.7g} (95% interval {low} to {high})"


def _end(time: float | None) -> str:
    return "not reached" if time is None else f"{time:,.7g}"
