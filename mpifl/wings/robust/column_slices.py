"""One pass over the columns of all silos' vectors: the slice of each rank, and the messages between ranks."""

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
"""How many columns a rule sees at a time, on any number of ranks."""
LONGEST_CHUNK = 1 << 18
"""The most columns of a chunk: a rank computes a chunk, then sends it, and chunks travel between nodes."""
CHUNK_ELEMENTS = 1 << 23
"""The most elements of all silos in a chunk, unless one block has more: 32 MiB."""
LAST = -1
"""The stamp, within a pass, of the record that ends a rank's part."""
EVERYWHERE = -1
"""Stands for a rank: all ranks have this vector."""


class Forger(Protocol):
    """An attack that overwrites vectors of Byzantine silos before the rule sees them."""

    def __call__(self, silos: Sequence[int], rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the rows of silos, with those of Byzantine silos overwritten."""

    def agreed(
        self,
        transport: Transport,
        verdict: Verdict,
        plans: Sequence[ColumnsPlan],
        own: Mapping[tuple[str, int], Tensor],
    ) -> tuple[Forger | Combined, set[int]]:
        """Fit the attack to the vectors, on all ranks together, before the rule runs.

        Args:
            transport, verdict: As in `Aggregator.combine`.
            plans: The plans of the vectors; all have the same silos.
            own: The vectors of this rank.

        Returns:
            The fitted attack, or the end of the round; and the ranks that did not do their part in time.
        """


class Located(Message):
    """A silo's vector: the rank that has it, and the handle for that node, 0 if the node cannot read it."""

    silo: int
    rank: int
    handle: int


class ColumnsPlan(Message):
    """The plan of one vector: its rows in the order of the silos, and the handle of the server's result."""

    name: str
    length: int = Field(ge=0)
    rows: list[Located]
    result: int


class SliceShare(Message):
    """A rank's report on the columns that it computed."""

    fault: Text | None = None
    """The error of the user's rule, if there is one."""
    suspects: list[Count] = Field(default=[], max_length=2**20)
    """Ranks whose vectors did not come, or hold NaN or Inf."""
    outside: list[Count] = Field(default=[], max_length=2**20)
    """First the number of outlying values of each silo, then the number of examined values of each silo."""


class Slices:
    """One rank's part in a pass over the columns of all vectors. Each worker computes a slice.

    Attributes:
        fault: The error of the user's rule, if there is one.
        hanging: At the server, the ranks that did not send their part in time.
    """

    FIRST = 0
    """The first stamp of this pass. Passes have different stamps, so that their messages are not mixed up."""
    believes_faults = False
    """Whether the server accepts a rank's report that the user's rule has failed."""

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
        """Ranks that this rank neither sends to nor waits for."""
        self._all_here = all(self._reaches(0, row) for plan in self._plans for row in plan.rows)
        self.forge: Forger | None = None
        """The attack of colluding silos, if there is one."""
        self.fault: str | None = None
        self.hanging: set[int] = set()

    def leave_out(self, ranks: AbstractSet[int]) -> None:
        """Neither send to these ranks nor wait for them, since they hang."""
        self.hanging |= ranks
        self._missing |= ranks

    def run(self) -> None:
        """Compute this rank's columns of every vector and report; receive all reports at the server."""
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
        """Compute a chunk of columns; `wheres` has the chunk of each worker."""
        raise NotImplementedError

    def _hand_over_last(self) -> None:
        """Send this rank's report to the server."""
        share = SliceShare(fault=self.fault, suspects=sorted(self._suspects), outside=self._counted())
        self._transport.hand_over(0, share.encode(), self._stamp(LAST))

    def _counted(self) -> list[int]:
        """Return what this rank has counted during its work, for its report."""
        return []

    def _take_counted(self, counted: Sequence[int]) -> None:
        """Add, at the server, what another rank has counted, if its report is valid."""

    def _stamp(self, count: int) -> tuple[int, int]:
        return self._serial, self.FIRST + count

    def _shares(self, plan: ColumnsPlan) -> dict[int, slice]:
        """Return the slice of columns of each worker."""
        workers = self._workers
        return {rank: slice_of(nth, len(workers), plan.length, BLOCK) for nth, rank in enumerate(workers)}

    def _trade(self, plan: ColumnsPlan, wheres: Mapping[int, slice], count: int) -> dict[int, list[Tensor]]:
        """Exchange chunks of vectors that other ranks cannot read; return the received ones by rank."""
        me = self._transport.rank
        others = [rank for rank in self._workers if rank not in {me, *self._missing}]
        ours = {
            rank: [self._own[plan.name, row.silo][wheres[rank]] for row in self._unread(plan, me, rank)]
            for rank in others
        }
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
        """Return the vectors of one rank that another rank cannot read directly."""
        return [row for row in plan.rows if row.rank == holder and not self._reaches(reader, row)]

    def _reaches(self, rank: int, row: Located) -> bool:
        of = self._transport.nodes.of
        if row.rank in (rank, EVERYWHERE):
            return True
        return row.handle > 0 and of[rank] == of[row.rank]

    def _rows(
        self, plan: ColumnsPlan, where: slice, received: Mapping[int, Sequence[Tensor]]
    ) -> list[Tensor] | None:
        """Return some columns of all silos' vectors.

        If a vector is missing or not finite, note its rank as suspect and return None.
        """
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
        """Return some columns of a silo's vector; None if they did not come or cannot be read."""
        if row.rank in (self._transport.rank, EVERYWHERE):
            return self._own[plan.name, row.silo][where]
        if not self._reaches(self._transport.rank, row):
            return next(coming[row.rank], None) if row.rank in coming else None
        try:
            return self._transport.read(row.rank, row.handle, plan.length, torch.float32)[where]
        except OSError:
            return None

    def _take_last(self) -> None:
        """Receive the report of every other rank; a rank that sends none counts as hanging."""
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
        """Take a rank's report; a rank whose report cannot be read is suspected."""
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
        """Return the time until which the server waits: longer for ranks that may wait for others."""
        timeout = self._transport.timeout
        if self._all_here and timeout is not None:
            return time.perf_counter() + timeout
        return time.perf_counter() + 2 * self._transport.transfer_timeout


def chunk_of(silos: int) -> int:
    """Return how many columns travel at a time; they are whole blocks."""
    return BLOCK * max(min(LONGEST_CHUNK, CHUNK_ELEMENTS // silos) // BLOCK, 1)


def _part(share: slice, start: int, length: int) -> slice:
    begin = min(share.start + start, share.stop)
    return slice(begin, min(begin + length, share.stop))
