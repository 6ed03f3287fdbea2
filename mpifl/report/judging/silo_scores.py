"""What single silos scored, by their names; or why nobody here knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpifl.common import Names
from mpifl.common.pages import Cell, Figure, Table
from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs import Summary
from mpifl.run.folder import number

MOST_SILOS = 1000
"""Rows of a page's table."""
NAMES = Names()
"""Silos' names are anybody's text; by these they are fit to be read."""


def scores(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """Return the loss and the metrics of each silo in the last round that was scored, by its name."""
    silos = summary.last.get("silos")
    held = silos if isinstance(silos, Mapping) else {}
    return {NAMES[str(name)]: each for name, each in held.items() if isinstance(each, Mapping)}


def ranked(silos: Mapping[str, Mapping[str, Any]], metric: MetricInfo) -> list[tuple[str, float | None]]:
    """Return each silo's main metric, the worst silo first; those that have none at the end."""
    found = [(name, number(each, metric.name)) for name, each in silos.items()]
    sign = 1 if metric.higher_is_better else -1
    return sorted(found, key=lambda one: (one[1] is None, sign * (one[1] or 0.0)))


def section(summary: Summary) -> Figure:
    """Return the scores of every silo as a part of a page: a table to sort, the worst silo first."""
    silos, metric = scores(summary), summary.metric
    title = f"Every silo, by {metric.name}"
    if not silos:
        return Figure(title, why_none(summary.job).capitalize() + ".", wide=True)
    order = ranked(silos, metric)
    others = [
        name for name in dict.fromkeys(key for each in silos.values() for key in each) if name != metric.name
    ]
    values = [value for _, value in order if value is not None]
    marks = {metric.best(values, default=None): "best", metric.worst(values, default=None): "worst"}
    rows = []
    for name, value in order[:MOST_SILOS]:
        mark = marks.get(value, "") if value is not None and len(marks) > 1 else ""
        told = "–" if value is None else metric.write(value)
        row = [Cell(name, look=mark), Cell(f"{told} {mark}".strip(), "" if value is None else value, mark)]
        rows.append([*row, *(_cell(number(silos[name], other)) for other in others)])
    of = f"Round {summary.last['round']}, on what each silo holds out."
    more = f" The {MOST_SILOS} worst of {len(order):,}." if len(order) > MOST_SILOS else ""
    return Figure(title, of + more, [Table(["silo", metric.name, *others], rows, sort=True)])


def _cell(value: float | None) -> Cell:
    return Cell("–" if value is None else f"{value:.4f}", "" if value is None else value)


def why_none(job: Mapping[str, Any]) -> str:
    """Say why there is no score of single silos."""
    security = job.get("security")
    if isinstance(security, Mapping) and security.get("masks", True):
        return "withheld: sums are masked, and nobody but a silo knows its own"
    if isinstance(job.get("privacy"), Mapping):
        return "withheld: differential privacy covers what a silo scored on its own examples"
    if isinstance(job.get("split"), Mapping):
        return "there are none: all silos have the same rows"
    return "none was told: no silo holds out examples, or no round was scored yet"
