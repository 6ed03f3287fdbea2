"""Records of the weighted mean: where sums lie, and the server's plan of which sums are added up."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from mpifl.sums.aggregator import headers_of, updates_of
from mpifl.wire import LARGEST, Header, Message, Name, Report, WindowNumber

Rank = Annotated[int, Field(strict=False)]
"""Not strict: as a key of JSON it comes as text."""


class PartialSum(Message):
    """Where one rank's sum of a vector lies, in one window of the exact sum."""

    name: Name
    window: WindowNumber
    handle: int = Field(default=0, ge=0, le=2**31)
    """The number by which the ranks of its node find it."""
    weight: float = Field(default=0.0, ge=0, le=LARGEST)
    """Above 0: this is one silo's unweighted vector, with this weight; 0: it is a sum."""


class WindowPart(Message):
    """Where one summand of a window lies: a rank's sum, or a silo's unweighted vector."""

    handle: int
    weight: float = 0.0
    """See `PartialSum`."""


class Window(Message):
    """One window of an exact sum: each rank's parts, as the rank reported them."""

    number: int
    parts: dict[Rank, list[WindowPart]]


class ReductionPlan(Message):
    """The plan for one vector: sum it over the ranks, and divide by its total weight (1 if `summed`)."""

    name: str
    length: int = Field(ge=0)
    total: float
    """The weight of all summands."""
    windows: list[Window]
    """The windows, the largest first; empty if every silo's vector is zero, and then nothing travels."""
    summed: bool = False
    """Whether the result is the sum itself, in float64."""
    mean: int = Field(default=0, ge=0)
    """The handle by which the ranks of the server's node find the vector for the mean."""


PARTS = TypeAdapter(Annotated[list[PartialSum], Field(fail_fast=True)])


def parts_of(report: Report) -> list[PartialSum]:
    """Return the parts of a report that was accepted."""
    return PARTS.validate_python(report.parts)


def pieces_in(records: Sequence[Any]) -> list[ReductionPlan]:
    """Return the plans of a verdict."""
    return [ReductionPlan.model_validate(record) for record in records]


def plan(reports: Mapping[int, Report]) -> list[ReductionPlan]:
    """Return the plan of each vector: its total weight, and which ranks have parts in which windows."""
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
    """Return the weighted means of the updates' numbers; a silo without a number is left out of its mean."""
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
    """Check that a rank has exactly the parts that its headers announce.

    These are one sum of each vector in each window, or the unweighted vectors of its silos.

    Raises:
        ValueError: the parts are others.
    """
    told: defaultdict[tuple[str, int], Counter[float]] = defaultdict(Counter)
    found: defaultdict[tuple[str, int], Counter[float]] = defaultdict(Counter)
    for header in good:
        for name, vector in header.vectors.items():
            if vector.window is not None:
                weight = header.weight if vector.combined == "weighted" else 1.0
                told[name, vector.window][weight] += 1
    for part in parts:
        found[part.name, part.window][part.weight] += 1
    if wrong := sorted(told.keys() ^ found.keys()) or sorted(n for n in found if found[n][0.0] > 1):
        name, window = wrong[0]
        raise ValueError(f"its sums are not those that its headers tell of ('{name}' in window {window})")
    for (name, window), weights in found.items():
        sums = weights.pop(0.0, 0)
        if not (weights < told[name, window] if sums else weights == told[name, window]):
            raise ValueError(f"its parts of '{name}' are not weighted as its headers say")


def _windows(name: str, parts: Mapping[int, Sequence[PartialSum]]) -> list[Window]:
    found: defaultdict[int, defaultdict[int, list[WindowPart]]] = defaultdict(lambda: defaultdict(list))
    for rank, of_rank in parts.items():
        for part in of_rank:
            if part.name == name:
                found[part.window][rank].append(WindowPart(handle=part.handle, weight=part.weight))
    return [Window(number=number, parts=found[number]) for number in sorted(found, reverse=True)]
