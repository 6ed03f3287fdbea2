"""What the server makes of the reports before any vector travels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from mpifl.wire import Header, Part, Piece, Reply, Report, Window


def headers_of(reports: Mapping[int, Report]) -> list[Reply]:
    """Return the replies of all ranks in the order of their silos."""
    return sorted((header for report in reports.values() for header in report.headers), key=lambda header: header.silo)


def updates_of(replies: Iterable[Reply]) -> list[Header]:
    """Return the headers of the updates that count."""
    return [reply for reply in replies if isinstance(reply, Header) and reply.fault is None]


def plan(reports: Mapping[int, Report]) -> list[Piece]:
    """Plan what travels for these reports: each vector's total weight, and which ranks have a part in which windows."""
    lengths: dict[str, int] = {}
    weights: defaultdict[str, list[float]] = defaultdict(list)
    for header in updates_of(headers_of(reports)):
        for name, folded in header.vectors.items():
            lengths[name] = folded.length
            weights[name].append(1.0 if folded.uniform else header.weight)
    return [
        Piece(name=name, length=lengths[name], total=math.fsum(weights[name]), windows=_windows(name, reports))
        for name in sorted(lengths)
    ]


def averages(headers: Iterable[Header]) -> dict[str, float]:
    """Average the numbers of the updates by their weights; silos that do not name one are left out of it."""
    headers = list(headers)
    names = {name for header in headers for name, value in header.scalars.items() if not isinstance(value, str)}
    averages = {}
    for name in sorted(names):
        pairs = [(header.weight, float(header.scalars[name])) for header in headers if name in header.scalars]
        total = math.fsum(weight for weight, _ in pairs)
        if total > 0:
            averages[name] = math.fsum(weight * value for weight, value in pairs) / total
    return averages


def _windows(name: str, reports: Mapping[int, Report]) -> list[Window]:
    found: defaultdict[int, dict[int, Part]] = defaultdict(dict)
    for rank in sorted(reports):
        for part in reports[rank].parts:
            if part.name == name:
                found[part.window][rank] = part
    return [
        Window(
            number=number,
            parts={rank: part.handle for rank, part in found[number].items()},
            weights={rank: part.weight for rank, part in found[number].items() if part.weight},
        )
        for number in sorted(found, reverse=True)
    ]
