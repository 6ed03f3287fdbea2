"""What an aggregator is: it makes one update of many, with an instance on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from mpifl.wire import (
    Header,
    Memory,
    Message,
    Reply,
    Report,
    Request,
    Transport,
    Update,
    VectorHeader,
    Verdict,
)

Read = TypeVar("Read", bound=Message)
REFERENCE = "reference "
"""How the names begin of vectors of a request that the server compares those of the silos with."""


@dataclass
class Combined:
    """What came of a round's updates.

    Attributes:
        vectors: By name, at the server; none elsewhere.
        lost: Why there is no result, at the server; None if there is one.
        in_vain: Whether the same would come of asking again.
        parties: How many ranks had a part in a masked sum, at the server; 0 of any other.
        weights: Of each silo's vectors, at the server, where a rule gives each silo one.
        outside: Of each silo, at the server: the share of the columns in which its value is at an edge, where
            a rule of columns has such.
    """

    vectors: dict[str, Tensor] = field(default_factory=dict)
    lost: str | None = None
    in_vain: bool = False
    parties: int = 0
    weights: dict[int, float] = field(default_factory=dict)
    outside: dict[int, float] = field(default_factory=dict)


class Aggregator(Protocol):
    """Makes one update of those of the cohort; it owns their vectors, and decides where these lie and what
    travels.

    Every rank calls the same methods in this order: `begin`, `accumulate` once for each silo, `parts`; the
    server `accept` for each report, then `place` unless the round is lost; every rank `combine`. What `parts`
    and `place` return travels in the report and in the verdict. Its schema is the aggregator's own. `combine`
    may exchange any further messages: all ranks of the verdict are in it together.

    Attributes:
        hanging: Ranks that did not do their share of the last result in time, at the server.
        sealed: Whether the numbers of single silos stay at their ranks, and headers tell their names alone.
    """

    hanging: set[int]
    sealed: ClassVar[bool]

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the round before.

        Args:
            request: What the server asks.
            received: The vectors that came with it.
            silos: Those of this rank that are asked.
        """

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return memory on the CPU, of any content, for a vector that a silo's update will hold."""

    def accumulate(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Take up one silo's update and describe its vectors for the header.

        Raises:
            ValueError: a vector cannot be combined with those of other silos; that is the silo's fault.
            OSError, MemoryError: there is no memory left. Whatever is raised, nothing has been taken up.
        """

    def parts(self) -> Sequence[Message]:
        """Say where the other ranks find what this rank has taken up."""

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """See, at the server, that the parts of a rank's report are those that its headers tell of.

        Args:
            transport: The world.
            rank: Whose report it is.
            parts: What the rank's `parts` returned, or anything else: nothing in it is to be believed.
            headers: Of the silos that did not fail.

        Raises:
            ValueError: they are not, or cannot be read.
        """

    def place(self, reports: Mapping[int, Report]) -> Sequence[Message]:
        """Say, at the server, what travels for these reports.

        Raises:
            RoundLost: nothing can come of them.
        """

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Bring together what the verdict's ranks have taken up; the result is the server's."""

    def scalars(self, headers: Iterable[Header]) -> dict[str, float]:
        """Combine the numbers of the updates; silos that do not name one are left out of it."""


class MakesAggregator(Protocol):
    """Another way than the mean to combine the updates of a training."""

    def aggregator(self, memory: Memory) -> Aggregator:
        """Return the aggregator of this rank, which takes memory here.

        Raises:
            InputError: it cannot be had on this rank.
        """


def read_records(kind: TypeAdapter[list[Read]], parts: Sequence[Any], what: str) -> list[Read]:
    """Return the parts of a rank's report as records of a kind.

    Raises:
        ValueError: they are none.
    """
    try:
        return kind.validate_python(parts)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{what} cannot be read ({where[:100]}: {first['msg'][:100]})") from None


def headers_of(reports: Mapping[int, Report]) -> list[Reply]:
    """Return the replies of all ranks in the order of their silos."""
    return sorted(
        (header for report in reports.values() for header in report.headers), key=lambda header: header.silo
    )


def updates_of(replies: Iterable[Reply]) -> list[Header]:
    """Return the headers of the updates that count."""
    return [reply for reply in replies if isinstance(reply, Header) and reply.fault is None]
