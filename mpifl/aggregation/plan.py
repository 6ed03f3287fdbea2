"""What the server makes of the headers before any vector travels."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from mpifl.messages import Header, Piece, Report


def fitting(reports: Mapping[int, Report]) -> list[Header]:
    """Return all ranks' headers in the order of their silos, those of ranks that do not fit turned into faults.

    A rank has added its silos up before the others' lengths are known; where one of its vectors has not the length that
    most silos sent, all of it stays out.
    """
    lengths: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for report in reports.values():
        for header in report.headers:
            for name, folded in header.vectors.items():
                lengths[name][folded.length] += 1
    usual = {name: min(counts, key=lambda length: (-counts[length], length)) for name, counts in lengths.items()}
    headers = [header for report in reports.values() for header in _checked(report, usual)]
    return sorted(headers, key=lambda header: header.silo)


def _checked(report: Report, usual: Mapping[str, int]) -> list[Header]:
    for header in report.headers:
        for name, folded in header.vectors.items():
            if folded.length != usual[name]:
                fault = f"'{name}' has {folded.length} elements at silo {header.silo}, most silos sent {usual[name]}"
                return [h if h.fault else Header(silo=h.silo, fault=fault) for h in report.headers]
    return report.headers


def plan(headers: Iterable[Header]) -> tuple[list[Piece], dict[str, float]]:
    """Plan what travels for the accepted headers: the pieces, largest window first, and each vector's total weight."""
    lengths: dict[str, int] = {}
    windows: defaultdict[str, set[int]] = defaultdict(set)
    totals: defaultdict[str, list[float]] = defaultdict(list)
    for header in headers:
        for name, folded in header.vectors.items():
            lengths[name] = folded.length
            totals[name].append(1.0 if folded.uniform else header.weight)
            windows[name].update(() if folded.window is None else (folded.window,))
    pieces = []
    for name in sorted(lengths):
        used: list[int | None] = [*sorted(windows[name], reverse=True)] or [None]
        pieces += [Piece(name=name, length=lengths[name], window=window) for window in used]
    return pieces, {name: math.fsum(weights) for name, weights in totals.items()}
