"""Messages for sums of whole numbers: the sums of each party, the plan of what is added up, and its use."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter
from torch import Tensor

from mpifl.sums import Rank, headers_of, read_records, updates_of
from mpifl.wings.site import digest
from mpifl.wire import (
    MOST_SCALARS,
    MOST_VECTORS,
    Combination,
    Compute,
    Digest,
    Header,
    Message,
    Name,
    Report,
)

Deviation: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PartyPlan(Message):
    """The sums of one party.

    Attributes:
        vectors: By name, the handle of the memory where the party's sum will lie, for ranks of its node.
        scalars: The names of its silos' numbers.
        offer: Its offer, with its public key for the masks; None without masks.
        answers: Inside a site, the digests of what each silo has added. They do not leave the site.
        noise: Inside a site, the deviation of the noise on each vector's sum over all parties, in grid units.
    """

    vectors: dict[Name, Annotated[int, Field(ge=0, le=2**31)]] = Field(max_length=MOST_VECTORS)
    scalars: list[Name] = Field(max_length=MOST_SCALARS, fail_fast=True)
    offer: dict[str, Any] | None = None
    answers: dict[Rank, Digest] = Field(default={}, max_length=MOST_SCALARS)
    noise: dict[Name, Deviation] = Field(default={}, max_length=MOST_VECTORS)


class PlannedVector(Message):
    """A vector that is added up over the parties that have it, and divided by the total weight."""

    name: str
    length: int = Field(ge=0)
    combined: Combination
    total: float
    """The weight of all summands; 1 for a vector marked `Summed`."""


class SumPlan(Message):
    """The plan of a sum: its vectors, its numbers, and the part of each party."""

    vectors: list[PlannedVector]
    scalars: list[str]
    parties: dict[Rank, PartyPlan]

    def having(self, name: str) -> list[int]:
        """Return the parties that have a vector."""
        return sorted(rank for rank, part in self.parties.items() if name in part.vectors)

    def counting(self, number: str) -> int:
        """Return how many parties have a number."""
        return sum(number in part.scalars for part in self.parties.values())


PARTS = TypeAdapter(Annotated[list[PartyPlan], Field(fail_fast=True)])


def part_of(parts: Sequence[Any], headers: Sequence[Header]) -> PartyPlan | None:
    """Return the plan that a rank reports, if it matches the headers; None if the rank has no sums.

    Raises:
        ValueError: it does not match, or cannot be read.
    """
    found = read_records(PARTS, parts, "what it has of the sums")
    if not headers and not found:
        return None
    if len(found) != 1 or not headers:
        raise ValueError(f"it tells {len(found)} times what it has of the sums")
    told = {name for header in headers for name in header.vectors}
    if wrong := sorted(told ^ found[0].vectors.keys()):
        raise ValueError(f"its sums are not those that its headers tell of ('{wrong[0]}')")
    named = {name for header in headers for name in header.sealed}
    if others := sorted(named.symmetric_difference(found[0].scalars)):
        raise ValueError(f"its numbers are not those that its headers tell of ('{others[0]}')")
    return found[0]


def plan_of(reports: Mapping[int, Report], least: int = 1) -> SumPlan:
    """Make the plan of a sum from accepted reports.

    Args:
        reports: The reports by rank.
        least: How many parties must have a number; a number with fewer is left out.
    """
    headers = updates_of(headers_of(reports))
    parties = {rank: part_of(report.parts, updates_of(report.headers)) for rank, report in reports.items()}
    found = {rank: part for rank, part in sorted(parties.items()) if part is not None}
    plan = SumPlan(vectors=_vectors(headers), scalars=[], parties=found)
    named = sorted({name for part in found.values() for name in part.scalars})
    return plan.model_copy(update={"scalars": [one for one in named if plan.counting(one) >= least]})


def _vectors(headers: Iterable[Header]) -> list[PlannedVector]:
    lengths: dict[str, int] = {}
    marks: dict[str, Combination] = {}
    weights: defaultdict[str, list[float]] = defaultdict(list)
    for header in headers:
        for name, vector in header.vectors.items():
            lengths[name], marks[name] = vector.length, vector.combined
            weights[name].append(header.weight if vector.combined == "weighted" else 1.0)
    return [
        PlannedVector(
            name=name,
            length=lengths[name],
            combined=marks[name],
            total=1.0 if marks[name] == "summed" else math.fsum(weights[name]),
        )
        for name in sorted(lengths)
    ]


@dataclass(frozen=True)
class Question:
    """What a party's sum is to be used for.

    Attributes:
        message: The digest of the request: client method, numbers and received vectors (`message_of`).
        plan: The server's plan of the sum.
        accepted: The silos whose updates count.
        grids: The grid spacing of each vector.
        noise: The deviation of the noise on each vector's sum over all parties, in grid units; 0 for none.
        rank: The party's rank.
        answers: Digests of what each silo has added to the party's sum.
        about: What else must be the same at all parties, or masks do not cancel.
    """

    request: Compute
    message: str
    plan: SumPlan
    accepted: Sequence[int]
    grids: Sequence[float]
    noise: Sequence[float]
    rank: int
    answers: Mapping[int, str]
    about: Sequence[str] = ()


def message_of(request: Compute, received: Mapping[str, Tensor]) -> str:
    """Return the digest of a request with the vectors that came with it."""
    return digest([request.work, sorted(request.scalars.items())], received)
