"""Who is in the data as a page: the table, and a histogram of each column of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.common.pages import Figure, Table, charts, render


def page_of_stats(
    told: Mapping[str, Any], heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str]
) -> str:
    """Return the page.

    Args:
        told: The table, as the run's record has it.
        heads: The heads of its columns.
        rows: Its rows.
        said: What is said of all of it.
    """
    drawn = [_drawn(one["name"], one["histogram"]) for one in told["variables"] if "histogram" in one]
    return render(
        "compare.html",
        title="Who is in the data",
        every=None,
        broad=True,
        words=f"{told['rows']:,} rows · {len(told['variables'])} variables",
        verdict=said,
        figures=[Figure("Table 1", "", [Table.of(heads, rows)], wide=True), *drawn],
        folds=[],
    )


def _drawn(name: str, histogram: Mapping[str, Sequence[Any]]) -> Figure:
    """Draw how many rows lie between edges, below the first and above the last."""
    edges, counts = [f"{edge:,.6g}" for edge in histogram["edges"]], histogram["counts"]
    names = [f"< {edges[0]}", *edges]
    return Figure(name, "", [charts.columns(counts, f"rows by {name}", max(counts), "bin", names=names)])
