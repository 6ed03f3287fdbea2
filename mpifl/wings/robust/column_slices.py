"""Which rank makes which columns of all silos' vectors, and what travels for that."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from typing import Protocol

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from mpifl.sums import Combined, is_finite, slice_of
from mpifl.wire import Count, Message, Text, Transport, Verdict

BLOCK = 1 << 14
"""Columns that a rule sees at a time, on any number of ranks."""
LONGEST_CHUNK = 1 << 18
"""Columns that travel between nodes at a time, and that a rank makes before it hands them over."""
CHUNK_ELEMENTS = 1 << 23
"""Elements of all silos in a chunk, unless one block has more: 32 MiB."""
LAST = -1
"""The stamp, within a pass, of the record with which a rank ends its part."""
EVERYWHERE = -1
"""In place of a rank: all ranks have this vector."""


class Forger(Protocol):
    """Writes over vectors before a rule sees them, where a test has silos lie on purpose."""

    def __call__(self, silos: Sequence[int], rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows of silos, with those of liars written over."""

    def agreed(
        self,
        transport: Transport,
        verdict: Verdict,
        plans: Sequence[ColumnsPlan],
        own: Mapping[tuple[str, int], Tensor],
    ) -> tuple[Forger | Combined, set[int]]:
        """Return on all ranks, before the rule runs, what writes over these vectors, or else what comes of
        the round; and the ranks that did not do their share in time.

        Args:
            transport, verdict: As in `Aggregator.combine`.
            plans: Where the vectors lie, of the same silos each.
            own: Those of this rank.
        """


class Located(Message):
    """A silo's vector: the rank that has it,
    and the handle by which the rank's node finds it, 0 if it cannot."""

    silo: int
    rank: int
    handle: int


class ColumnsPlan(Message):
    """One vector of all silos, in their order, and where the server wants the result."""

    name: str
    length: int = Field(ge=0)
    rows: list[Located]
    result: int


class SliceShare(Message):
    """What a rank says of the columns that it made."""

    fault: Text | None = None
    """What is wrong with the user's rule."""
    suspects: list[Count] = Field(default=[], max_length=2**20)
    """Ranks whose vectors did not come, or hold NaN or Inf."""
    outside: list[Count] = Field(default=[], max_length=2**20)
    """Of each silo, the values outside, and behind them those that were looked at."""


class Slices:
    """One pass over the columns of all vectors, as one rank takes part in it: each worker makes a slice.

    Attributes:
        fault: What is wrong with the user's rule.
        hanging: Ranks that did not hand over their part in time, at the server.
    """

    FIRST = 0
    """Where the stamps of this pass begin: what travels in one is not taken for what travels in another."""
    believes_faults = False
    """Whether a rank may say that the user's rule is wrong, since it is applied there."""

    def __init__(
        self,
        transport: Transport,
        verdict: Verdict,
        plans: Sequence[ColumnsPlan],
        own: Mapping[tuple[str, int], Tensor],
    ) -> None:
        self._transport, self._plans, self._own = transport, plans, own
        self._workers = [rank for rank in transport.workers if rank in verdict.ranks]
        self._serial = verdict.serial
        self._suspects: set[int] = set()
        self._missing: set[int] = set()
        """Ranks that nothing is sent to any more, nor expected from."""
        self._all_here = all(self._reaches(0, row) for plan in self._plans for row in plan.rows)
        self.forge: Forger | None = None
        """Writes over the vectors of some silos, where a test has them lie."""
        self.fault: str | None = None
        self.hanging: set[int] = set()

    def leave_out(self, ranks: AbstractSet[int]) -> None:
        """Neither send to these ranks, nor wait for them: they hang."""
        self.hanging |= ranks
        self._missing |= ranks

    def run(self) -> None:
        """Make this rank's columns of every vector and hand over what came of them;
        at the server take that of all others."""
        count = 0
        for plan in self._plans:
            shares = self._shares(plan)
            chunk = chunk_of(len(plan.rows))
            longest = max(share.stop - share.start for share in shares.values())
            for start in range(0, longest, chunk):
                self._step(plan, {rank: _part(share, start, chunk) for rank, share in shares.items()}, count)
                count += 1
        if self._transport.is_server:
            self._take_last()
        else:
            self._hand_over_last()

    def _step(self, plan: ColumnsPlan, wheres: Mapping[int, slice], count: int) -> None:
        """Make a chunk of the columns of each worker's slice."""
        raise NotImplementedError

    def _hand_over_last(self) -> None:
        """Tell the server how this rank's part went."""
        share = SliceShare(fault=self.fault, suspects=sorted(self._suspects), outside=self._counted())
        self._transport.hand_over(0, share.encode(), self._stamp(LAST))

    def _counted(self) -> list[int]:
        """Return what this rank has counted beside its work, as it travels."""
        return []

    def _take_counted(self, counted: Sequence[int]) -> None:
        """Add, at the server, what another rank has counted, if it can be."""

    def _stamp(self, count: int) -> tuple[int, int]:
        return self._serial, self.FIRST + count

    def _shares(self, plan: ColumnsPlan) -> dict[int, slice]:
        """Return the columns that each worker makes."""
        workers = self._workers
        return {rank: slice_of(nth, len(workers), plan.length, BLOCK) for nth, rank in enumerate(workers)}

    def _trade(self, plan: ColumnsPlan, wheres: Mapping[int, slice], count: int) -> dict[int, list[Tensor]]:
        """Send the others the columns that they make of vectors that they cannot read;
        return theirs by rank."""
        me = self._transport.rank
        others = [rank for rank in self._workers if rank not in {me, *self._missing}]
        ours = {rank: self._unread_slices(plan, rank, wheres[rank]) for rank in others}
        outgoing = {rank: rows for rank, rows in ours.items() if rows and len(rows[0])}
        mine = wheres.get(me, slice(0, 0))
        theirs = {rank: len(self._unread(plan, rank, me)) * (mine.stop - mine.start) for rank in others}
        incoming = {rank: length for rank, length in theirs.items() if length}
        if not outgoing and not incoming:
            return {}
        found, missing = self._transport.trade(outgoing, incoming, self._stamp(count))
        self._missing |= missing
        return {rank: list(rows.view(len(self._unread(plan, rank, me)), -1)) for rank, rows in found.items()}

    def _unread(self, plan: ColumnsPlan, holder: int, reader: int) -> list[Located]:
        """Return the vectors of one rank that another cannot read where they lie."""
        return [row for row in plan.rows if row.rank == holder and not self._reaches(reader, row)]

    def _unread_slices(self, plan: ColumnsPlan, reader: int, where: slice) -> list[Tensor]:
        """Return the columns that another rank makes of this one's vectors, where it cannot read them."""
        rows = self._unread(plan, self._transport.rank, reader)
        return [self._own[plan.name, row.silo][where] for row in rows]

    def _reaches(self, rank: int, row: Located) -> bool:
        of = self._transport.nodes.of
        if row.rank in (rank, EVERYWHERE):
            return True
        return row.handle > 0 and of[rank] == of[row.rank]

    def _rows(
        self, plan: ColumnsPlan, where: slice, received: Mapping[int, Sequence[Tensor]]
    ) -> list[Tensor] | None:
        """Return some columns of all silos' vectors;
        None, and who is suspected noted, where one is not finite, or did not come."""
        rows, coming = [], {rank: iter(vectors) for rank, vectors in received.items()}
        for row in plan.rows:
            values = self._values(plan, row, where, coming)
            own = row.rank in (self._transport.rank, EVERYWHERE)
            if values is None or not (own or is_finite(values)):
                self._suspects.add(row.rank)
            else:
                rows.append(values)
        if len(rows) != len(plan.rows):
            return None
        return self.forge([row.silo for row in plan.rows], rows) if self.forge else rows

    def _values(
        self, plan: ColumnsPlan, row: Located, where: slice, coming: Mapping[int, Iterator[Tensor]]
    ) -> Tensor | None:
        """Return some columns of a silo's vector; None if they cannot be had."""
        if row.rank in (self._transport.rank, EVERYWHERE):
            return self._own[plan.name, row.silo][where]
        if not self._reaches(self._transport.rank, row):
            return next(coming[row.rank], None) if row.rank in coming else None
        try:
            return self._transport.read(row.rank, row.handle, plan.length, torch.float32)[where]
        except OSError:
            return None

    def _take_last(self) -> None:
        """Receive what every other rank says of its columns; who says nothing hangs."""
        until = self._until()
        for rank in self._workers:
            if rank == self._transport.rank or rank in self.hanging:
                continue
            came = self._transport.next_share(rank, self._stamp(LAST), 0, until)
            if came is None:
                self.hanging.add(rank)
            else:
                self._take_share(rank, bytes(came))

    def _take_share(self, rank: int, record: bytes) -> None:
        """Take note of what a rank says of its columns; one that says what cannot be read is suspected."""
        try:
            share = SliceShare.model_validate_json(record)
        except ValidationError:
            share = SliceShare(suspects=[rank])
        if share.suspects:
            self._suspects |= {rank, *share.suspects} & set(self._workers)
        if share.outside:
            self._take_counted(share.outside)
        if share.fault and self.believes_faults:
            self.fault = self.fault or share.fault

    def _until(self) -> float:
        """Return how long the server waits: for ranks that may wait for others first, longer."""
        timeout = self._transport.timeout
        if self._all_here and timeout is not None:
            return time.perf_counter() + timeout
        return time.perf_counter() + 2 * self._transport.transfer_timeout


def chunk_of(silos: int) -> int:
    """Return how many columns travel at a time: whole blocks."""
    return BLOCK * max(min(LONGEST_CHUNK, CHUNK_ELEMENTS // silos) // BLOCK, 1)


def _part(share: slice, start: int, length: int) -> slice:
    begin = min(share.start + start, share.stop)
    return slice(begin, min(begin + length, share.stop))
