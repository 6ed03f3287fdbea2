"""The protocol of an aggregator: it combines many updates to one, with an instance on every rank."""

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
"""Prefix of names of vectors in a request: the server compares the silos' vectors with these."""


@dataclass
class Combined:
    """The result of combining a round's updates; only the server gets it.

    Attributes:
        vectors: The combined vectors by name; empty at other ranks.
        lost: Why there is no result; None if there is one.
        in_vain: Whether a new attempt would end in the same way.
        parties: How many ranks took part in a masked sum; 0 if sums are not masked.
        weights: The weight of each silo, if a rule gives each silo one.
        outside: For each silo the share of columns in which its value is at an edge, if a rule of columns
            finds it.
    """

    vectors: dict[str, Tensor] = field(default_factory=dict)
    lost: str | None = None
    in_vain: bool = False
    parties: int = 0
    weights: dict[int, float] = field(default_factory=dict)
    outside: dict[int, float] = field(default_factory=dict)


class Aggregator(Protocol):
    """Combines the updates of a cohort to one. It owns their vectors, and decides where they lie and travel.

    Calls come in this order. Every rank calls `begin`, `accumulate` once for each silo, and `parts`. The
    server calls `accept` for each report, then `place` unless the round is lost. Every rank calls `combine`.

    The results of `parts` and `place` travel in the report and in the verdict, in records of the aggregator's
    own. `combine` may exchange further messages, since all ranks of the verdict call it together.

    Attributes:
        hanging: At the server: ranks that did not do their share of the last result in time.
        sealed: Whether scalars of single silos stay at their ranks, and headers hold only their names.
    """

    hanging: set[int]
    sealed: ClassVar[bool]

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the round before, and be ready for a new one.

        Args:
            request: The server's request.
            received: The vectors of the request.
            silos: The asked silos of this rank.
        """

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return uninitialized memory on the CPU for a vector of a silo's update."""

    def accumulate(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Add one silo's update to this rank's part of the result, and describe its vectors for the header.

        Raises:
            ValueError: a vector cannot be combined with those of other silos; that is the silo's fault.
            OSError, MemoryError: there is no memory left. After any error nothing has been added.
        """

    def parts(self) -> Sequence[Message]:
        """Return where other ranks find this rank's part of the result."""

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Check that the parts in a rank's report match its headers; the server calls this.

        Args:
            rank: The rank that reports.
            parts: The result of the rank's `parts`. It may be anything, so all of it must be checked.
            headers: The headers of the rank's silos that did not fail.

        Raises:
            ValueError: the parts do not match, or cannot be read.
        """

    def place(self, reports: Mapping[int, Report]) -> Sequence[Message]:
        """Return what travels for these reports; the server calls this.

        Raises:
            RoundLost: these reports cannot be combined.
        """

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Combine the parts of the verdict's ranks; the server gets the result."""

    def scalars(self, headers: Iterable[Header]) -> dict[str, float]:
        """Combine the numbers of the updates; a silo without a number is left out of that number."""


class MakesAggregator(Protocol):
    """A rule that replaces the mean in training; it makes the aggregators."""

    def aggregator(self, memory: Memory) -> Aggregator:
        """Return the aggregator of this rank.

        Args:
            memory: The memory that the aggregator uses.

        Raises:
            InputError: the rule cannot work on this rank.
        """


def read_records(kind: TypeAdapter[list[Read]], parts: Sequence[Any], what: str) -> list[Read]:
    """Return the parts of a rank's report as records of a kind.

    Raises:
        ValueError: they are not such records.
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
    """Return the headers of the updates without a fault."""
    return [reply for reply in replies if isinstance(reply, Header) and reply.fault is None]
