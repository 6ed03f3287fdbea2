"""What travels for the weighted mean: records of where its sums lie,
and the server's plan of which are added up."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from mpifl.aggregation.base import headers_of, updates_of
from mpifl.wire import LARGEST, Header, Message, Name, Report, WindowNumber

Rank = Annotated[int, Field(strict=False)]
"""As a key it comes as text."""


class PartialSum(Message):
    """Where one rank's sum of a vector lies, in one window of the exact sum."""

    name: Name
    window: WindowNumber
    handle: int = Field(default=0, ge=0, le=2**31)
    """By which the ranks of its node find it."""
    weight: float = Field(default=0.0, ge=0, le=LARGEST)
    """Above 0: it is one silo's vector as it came, yet to be weighted; 0: it is a sum."""


class Window(Message):
    """One window of an exact sum: the handle of each rank's part, and its weight where it is not a sum."""

    number: int
    parts: dict[Rank, int]
    weights: dict[Rank, float] = Field(default={})


class ReductionPlan(Message):
    """One vector to be summed over the ranks and divided by its total weight; by 1 where it is `summed`."""

    name: str
    length: int = Field(ge=0)
    total: float
    """The weight of all summands."""
    windows: list[Window]
    """Largest first; none where every silo's vector is zero, and nothing travels."""
    summed: bool = False
    """Whether the sum itself is wanted, in float64."""
    mean: int = Field(default=0, ge=0)
    """By which the ranks of the server's node find where the mean is to be written."""


PARTS = TypeAdapter(list[PartialSum])


def parts_of(report: Report) -> list[PartialSum]:
    """Return the parts of a report that was accepted."""
    return PARTS.validate_python(report.parts)


def pieces_in(records: Sequence[Any]) -> list[ReductionPlan]:
    """Return the pieces of a verdict."""
    return [ReductionPlan.model_validate(record) for record in records]


def plan(reports: Mapping[int, Report]) -> list[ReductionPlan]:
    """Plan what travels for these reports: each vector's total weight,
    and which ranks have a part in which windows."""
    lengths: dict[str, int] = {}
    weights: defaultdict[str, list[float]] = defaultdict(list)
    summed: set[str] = set()
    for header in updates_of(headers_of(reports)):
        for name, vector in header.vectors.items():
            lengths[name] = vector.length
            weights[name].append(header.weight if vector.combined == "weighted" else 1.0)
            summed |= {name} if vector.combined == "summed" else set()
    parts = {rank: parts_of(reports[rank]) for rank in sorted(reports)}
    return [
        ReductionPlan(
            name=name,
            length=lengths[name],
            total=1.0 if name in summed else math.fsum(weights[name]),
            windows=_windows(name, parts),
            summed=name in summed,
        )
        for name in sorted(lengths)
    ]


def averages(headers: Iterable[Header]) -> dict[str, float]:
    """Average the numbers of the updates by their weights; silos that do not name one are left out of it."""
    headers = list(headers)
    scalars = [item for header in headers for item in header.scalars.items()]
    names = {name for name, value in scalars if not isinstance(value, str)}
    averages = {}
    for name in sorted(names):
        pairs = [(header.weight, float(header.scalars[name])) for header in headers if name in header.scalars]
        total = math.fsum(weight for weight, _ in pairs)
        if total > 0:
            averages[name] = math.fsum(weight * value for weight, value in pairs) / total
    return averages


def check_parts(parts: Sequence[PartialSum], good: Sequence[Header]) -> None:
    """See that a rank has just the sums that its headers tell of, each once.

    Raises:
        ValueError: it has not.
    """
    told = {(n, v.window) for header in good for n, v in header.vectors.items() if v.window is not None}
    found = Counter((part.name, part.window) for part in parts)
    twice = [one for one, times in found.items() if times > 1]
    if wrong := sorted(told.symmetric_difference(found)) or twice:
        name, window = wrong[0]
        raise ValueError(f"its sums are not those that its headers tell of ('{name}' in window {window})")
    for part in parts:
        if part.weight and (len(good) > 1 or part.weight != _weight_in(good[0], part.name)):
            raise ValueError(f"its sum of '{part.name}' is not weighted as its header says")


def _weight_in(header: Header, name: str) -> float:
    return header.weight if header.vectors[name].combined == "weighted" else 1.0


def _windows(name: str, parts: Mapping[int, Sequence[PartialSum]]) -> list[Window]:
    found: defaultdict[int, dict[int, PartialSum]] = defaultdict(dict)
    for rank, of_rank in parts.items():
        for part in of_rank:
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
