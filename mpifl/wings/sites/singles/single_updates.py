"""A site's ranks hand each silo's update to the site's rank 0, in place of a sum."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from mpifl.sums import (
    Aggregator,
    Combined,
    are_readable,
    checked_peak,
    header_of,
    read_records,
    refuse_noise,
)
from mpifl.wire import (
    DTYPES,
    Count,
    Header,
    Memory,
    Message,
    Name,
    Report,
    Request,
    Transport,
    Update,
    VectorHeader,
    Verdict,
    pieces_of,
    unmarked,
)

_CHUNK = 1 << 26
"""Elements of a message between nodes."""
_SILO = "silo "


class SinglePart(Message):
    """A vector of one silo's update at its rank, or the payload of a codec in its place.

    Attributes:
        handle: The number by which ranks of its node find it; 0 if they cannot.
    """

    name: Name
    silo: Count
    dtype: Literal["float32", "float64", "uint8"]
    length: Count
    handle: int = Field(default=0, ge=0, le=2**31)


class PlacedPart(SinglePart):
    """A part, and the rank that has it."""

    rank: int


_PARTS = TypeAdapter(Annotated[list[SinglePart], Field(fail_fast=True)])


@dataclass(frozen=True)
class Singles:
    """Takes the place of a rule at a site: its ranks combine nothing."""

    def aggregator(self, memory: Memory) -> Aggregator:
        """Return this rank's aggregator."""
        return SingleUpdates(memory)


class SingleUpdates:
    """Keeps each silo's update as it would be sent, and gives the site's rank 0 all of them.

    The combined vectors are named by silo and vector (`single_named`): float32 or float64, or a codec's
    payload, uint8.
    """

    sealed: ClassVar[bool] = False

    def __init__(self, memory: Memory) -> None:
        self._memory, self._own = memory, dict[tuple[int, str], Tensor]()
        self.hanging: set[int] = set()

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the updates of the round before; see `Aggregator`."""
        self._own.clear()

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return memory for a vector; see `Aggregator`."""
        return torch.empty(length, dtype=dtype)

    def accumulate(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Keep one silo's update, and describe its vectors; see `Aggregator`."""
        refuse_noise(update)
        found = {name: unmarked(value) for name, value in update.vectors.items()}
        for name, vector in found.items():
            checked_peak(name, vector, 1.0, None)
        sent = {name: update.payloads.get(name, vector).detach() for name, vector in found.items()}
        self._own |= {(silo, name): self._kept(one) for name, one in sent.items()}
        return {name: header_of(update, name, None) for name in found}

    def _kept(self, vector: Tensor) -> Tensor:
        empty = self._memory.empty if vector.is_cpu else self._memory.empty_pinned
        return empty(len(vector), vector.dtype).copy_(vector)

    def parts(self) -> list[SinglePart]:
        """Return where this rank's vectors lie; see `Aggregator`."""
        handle = self._memory.handle
        return [
            SinglePart(
                name=name,
                silo=silo,
                dtype=str(one.dtype).removeprefix("torch."),  # type: ignore[arg-type]
                length=len(one),
                handle=handle(one),
            )
            for (silo, name), one in sorted(self._own.items())
        ]

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Check that a rank has exactly the vectors that its headers name; see `Aggregator`."""
        found = read_records(_PARTS, parts, "its vectors")
        told = Counter((header.silo, name) for header in headers for name in header.vectors)
        if told != Counter((one.silo, one.name) for one in found):
            raise ValueError("its vectors are not those that its headers tell of")
        lying = ((one.handle, one.length, DTYPES[one.dtype]) for one in found if one.handle)
        if not are_readable(transport, rank, lying):
            raise ValueError("its vectors cannot be read where it says that they lie")

    def place(self, reports: Mapping[int, Report]) -> list[PlacedPart]:
        """Return which rank has which vector, in the order of silos; see `Aggregator`."""
        found = [
            PlacedPart(rank=rank, **one.model_dump())
            for rank, report in reports.items()
            for one in _PARTS.validate_python(report.parts)
        ]
        return sorted(found, key=lambda one: (one.silo, one.name))

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Send this rank's vectors to rank 0 if it cannot read them; rank 0 gets all. See `Aggregator`."""
        self.hanging.clear()
        if transport.rank not in (0, *verdict.ranks):
            return Combined()
        parts = [PlacedPart.model_validate(record) for record in verdict.pieces]
        chunks = ((one, chunk) for one in parts if self._travels(transport, one) for chunk in _chunks(one))
        stamped = [((verdict.serial, nth), *of) for nth, of in enumerate(chunks)]
        if not transport.is_server:
            for stamp, one, chunk in stamped:
                if one.rank == transport.rank:
                    transport.hand_over(0, [self._own[one.silo, one.name][chunk]], stamp)
            return Combined()
        found = {f"{_SILO}{one.silo} {one.name}": self._here(transport, one) for one in parts}
        for stamp, one, chunk in stamped:
            if not self._received(transport, one, stamp, found[f"{_SILO}{one.silo} {one.name}"][chunk]):
                return Combined(lost=f"the updates of rank {transport.origins[one.rank]} did not come")
        return Combined(found)

    def _travels(self, transport: Transport, one: PlacedPart) -> bool:
        """Return whether a vector lies where rank 0 cannot read it."""
        return transport.nodes.of[one.rank] != transport.nodes.of[0] or (one.rank != 0 and not one.handle)

    def _here(self, transport: Transport, one: PlacedPart) -> Tensor:
        """Return at rank 0 a vector that it can read, or memory for one that travels."""
        if one.rank == transport.rank:
            return self._own[one.silo, one.name]
        if self._travels(transport, one):
            return torch.empty(one.length, dtype=DTYPES[one.dtype])
        return transport.read(one.rank, one.handle, one.length, DTYPES[one.dtype])

    def _received(self, transport: Transport, one: PlacedPart, stamp: tuple[int, int], into: Tensor) -> bool:
        """Return whether a part of a vector came in time."""
        if one.rank in self.hanging:
            return False
        until = time.perf_counter() + transport.transfer_timeout
        came = transport.next_share(one.rank, stamp, into.nbytes, until)
        if came is None or len(came) != into.nbytes:
            self.hanging.add(one.rank)
            return False
        into.copy_(torch.frombuffer(came, dtype=into.dtype))
        return True

    def scalars(self, headers: Iterable[Header]) -> dict[str, float]:
        """Return nothing: the coordinator combines numbers, too."""
        return {}


def single_named(name: str) -> tuple[int, str] | None:
    """Return the silo and the vector's name of a combined vector; None if it is a sum."""
    if not name.startswith(_SILO):
        return None
    number, _, vector = name.removeprefix(_SILO).partition(" ")
    return int(number), vector


def _chunks(one: PlacedPart) -> Iterator[slice]:
    return pieces_of(one.length, _CHUNK)
