"""A baseline as a page: the verdict, and a row for each silo."""

from __future__ import annotations

from mpifl.cli.baseline.baseline_figures import Baseline, Scored
from mpifl.cli.baseline.baseline_words import FROM_CHANCE, cells, heads, judged, verdict
from mpifl.common.pages import Cell, Figure, Fold, Table, render

LOOKS = {"better": "best", "worse": "worst"}


def page(found: Baseline, title: str) -> str:
    """Return the page."""
    rows = [_row(one, found) for one in (*found.silos, found.whole)]
    drawn = Table(["silo", *heads(found), "0 in the middle"], rows)
    note = f"{found.metric.name} on the same test rows; difference: federated − alone; {found.test}."
    figure = Figure("Each silo alone, the federated model, and all pooled", note, [drawn], wide=True)
    remarks = [["all", one] for one in found.remarks]
    remarks += [[name, f"left out: {why}"] for name, why in found.left_out.items()]
    folds = [Fold(f"Remarks ({len(remarks)})", [Table.of(["silo", "reason"], remarks)], opened=True)]
    return render(
        "compare.html",
        title=title,
        every=None,
        broad=True,
        words=f"{len(found.silos):,} silos, {found.whole.rows:,} test rows",
        verdict=[verdict(found), FROM_CHANCE],
        figures=[figure],
        folds=folds if remarks else [],
    )


def _row(one: Scored, found: Baseline) -> list[Cell]:
    texts, look = cells(one, found), LOOKS.get(judged(one, found.metric), "")
    row = [Cell(one.name), *(Cell(text) for text in texts[:-1]), Cell(texts[-1], look=look)]
    if (difference := one.difference) is None:
        return [*row, Cell("–")]
    ends = [end for other in (*found.silos, found.whole) if other.difference is not None
            for end in (other.difference.low, other.difference.high)]  # fmt: skip
    most = max(map(abs, ends)) or 1.0
    low, by, high = (50 + 46 * value / most for value in (difference.low, difference.by, difference.high))
    return [*row, Cell(texts[-3], dots=[by], span=(low, high))]
