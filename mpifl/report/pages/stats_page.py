"""Tables of all rows as pages: who is in the data, with histograms, and survival, with curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.common.pages import Figure, Table, charts, render, there
from mpifl.report.results import histogram

Told = Mapping[str, Any]


def figures_of_stats(told: Told, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Figure]:
    """Return the table of who is in the data, as the run's record has it, and its histograms."""
    drawn = [
        histogram(one["name"], one["histogram"], one.get("since", ""))
        for one in told["variables"]
        if "histogram" in one
    ]
    return [Figure("Table 1", "", [Table.of(heads, rows)], wide=True), *drawn]


def page_of_stats(
    told: Told, heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str]
) -> str:
    """Return the page of that; `said` is of all of it."""
    words = f"{told['rows']:,} rows · {len(told['variables'])} variables"
    return _page("Who is in the data", words, said, figures_of_stats(told, heads, rows))


def _page(title: str, words: str, said: Sequence[str], figures: Sequence[Figure]) -> str:
    more: dict[str, Any] = {"every": None, "broad": True, "folds": []}
    return render("compare.html", title=title, what=words, verdict=said, figures=figures, **more)


def figures_of_survival(told: Told, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Figure]:
    """Return the curves, as the run's record has them, and the table of their groups."""
    return there([_curves(_shown(told)), Figure("Groups", "", [Table.of(heads, rows)], wide=True)])


def page_of_survival(
    told: Told, heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str]
) -> str:
    """Return the page of that; `said` is of all of it."""
    words = f"{sum(one['rows'] for one in _shown(told)):,} rows · Kaplan and Meier's estimate"
    return _page("Survival", words, said, figures_of_survival(told, heads, rows))


def _shown(told: Told) -> list[Told]:
    return [one for one in told["groups"] if not one["withheld"]]


def _curves(groups: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Draw the curves as steps, straight through joined times; a single one with its interval."""
    lines = [
        charts.Line(one["name"], _steps(one["curve"]), look=charts.COLOURS[nth % len(charts.COLOURS)])
        for nth, one in enumerate(groups)
    ]
    band = charts.Band("95 % interval", _between(groups[0]["curve"])) if len(groups) == 1 else None
    covers = (0.0, 1.0)
    return charts.lines("Survival", lines, band, "{:.3f}".format, along="time", wide=True, covers=covers)


def _steps(curve: Sequence[Mapping[str, Any]]) -> list[tuple[float, float | None]]:
    """Return the corners of a curve, which begins at 1 and falls at times, or over joined ones."""
    found, before = [(0.0, 1.0)], 1.0
    for row in curve:
        found += [(row["from"], before), (row["time"], row["survival"])]
        before = row["survival"]
    return [*found]


def _between(curve: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float]]:
    """Return the corners of a curve's interval."""
    found, before = [(0.0, 1.0, 1.0)], (1.0, 1.0)
    for row in curve:
        if row["low"] is not None:
            ends = row["low"], row["high"]
            found += [(row["from"], *before), (row["time"], *ends)]
            before = ends
    return found
