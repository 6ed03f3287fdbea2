"""Runs a rule of columns over all silos: a vector stays at its rank, and each rank computes a slice."""

from __future__ import annotations

import statistics
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from mpifl.common import BeyondRange, RoundLost
from mpifl.sums import (
    Combined,
    are_readable,
    checked_peak,
    header_of,
    headers_of,
    read_records,
    refuse_noise,
    updates_of,
)
from mpifl.wings.robust import column_slices
from mpifl.wings.robust.column_rules import Rule
from mpifl.wings.robust.column_sharing import Sharing
from mpifl.wings.robust.column_slices import ColumnsPlan, Forger, Located, chunk_of
from mpifl.wings.robust.disk_buffer import DiskBuffer
from mpifl.wire import (
    Count,
    Header,
    Memory,
    Message,
    Name,
    Report,
    Request,
    Summed,
    Transport,
    Update,
    VectorHeader,
    Verdict,
    unmarked,
)

LARGEST_FLOAT32 = torch.finfo(torch.float32).max


class Row(Message):
    """The place of one silo's vector at its rank."""

    name: Name
    silo: Count
    handle: int = Field(default=0, ge=0, le=2**31)
    """The handle by which the ranks of its node read it; 0 if they cannot, and it must be sent."""


ROWS = TypeAdapter(Annotated[list[Row], Field(fail_fast=True)])


class ColumnRule:
    """Applies a rule of columns to the updates of all silos, which count equally.

    A worker keeps the vector of each of its silos in float32, in memory that its node's ranks can read, or in
    files. After the verdict each worker applies the rule to a slice of columns of all vectors. Others send it
    the vectors that it cannot read, in chunks. Slices begin at multiples of a block, and the rule sees whole
    blocks, with rows in the order of the silos. So the result does not depend on the number of ranks. The
    server holds the result, and the vectors of its own silos.
    """

    sealed: ClassVar[bool] = False

    def __init__(self, rule: Rule, memory: Memory, disk_buffer: DiskBuffer | None = None) -> None:
        self._given, self._rule, self._memory, self._spill = rule, rule, memory, disk_buffer
        self._rows: dict[tuple[str, int], Tensor] = {}
        self._lengths: dict[str, int] = {}
        self._lent: list[weakref.ref[Tensor]] = []
        self._results: dict[str, Tensor] = {}
        self._abandoned: list[Tensor] = []
        """Memory that is never freed: a rank that hung may still write there."""
        self.hanging: set[int] = set()
        self.forge: Forger | None = None
        """The attack of colluding silos, if there is one."""

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the vectors of the round before; see `Aggregator`."""
        for held in (self._rows, self._lengths, self._lent, self._results):
            held.clear()
        self._rule = self._given.among(len(request.cohort))

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return memory for a vector. Without files the node can read it, so nothing need be copied."""
        if self._spill is not None:
            return torch.empty(length, dtype=dtype)
        vector = self._memory.empty(length, dtype)
        self._lent.append(weakref.ref(vector))
        return vector

    def accumulate(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Keep one silo's vectors and describe them for the header; see `Aggregator`."""
        refuse_noise(update)
        vectors = {name: unmarked(value) for name, value in update.vectors.items()}
        if added := sorted(name for name, value in update.vectors.items() if isinstance(value, Summed)):
            raise ValueError(f"'{added[0]}' is to be added up, which only [aggregation] rule = 'mean' does")
        for name, vector in vectors.items():
            peak = checked_peak(name, vector, 1.0, self._lengths.get(name))
            if peak > LARGEST_FLOAT32:
                raise BeyondRange(f"'{name}' reaches {peak:g}, which is beyond float32")
        kept = {(name, silo): self._kept(vector) for name, vector in vectors.items()}
        self._rows |= kept
        self._lent.clear()
        for name, vector in vectors.items():
            self._lengths[name] = len(vector)
        return {name: header_of(update, name, None) for name in vectors}

    def _kept(self, vector: Tensor) -> Tensor:
        """Return a vector in memory that stays unchanged until the next round; copy it if need be."""
        if vector.dtype == torch.float32 and any(ref() is vector for ref in self._lent):
            return vector
        if self._spill is not None:
            return self._spill.empty(len(vector)).copy_(vector)
        empty = self._memory.empty if vector.is_cpu else self._memory.empty_pinned
        return empty(len(vector), torch.float32).copy_(vector)

    def parts(self) -> list[Row]:
        """Return where the other ranks of the node find the vectors of this rank's silos."""
        return [
            Row(name=name, silo=silo, handle=self._memory.handle(row))
            for (name, silo), row in sorted(self._rows.items(), key=lambda item: item[0])
        ]

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Check that a rank has exactly the vectors that its headers name; see `Aggregator`."""
        rows = read_records(ROWS, parts, "its vectors")
        lengths = {(name, header.silo): v.length for header in headers for name, v in header.vectors.items()}
        _check_rows(rows, lengths.keys())
        lying = ((row.handle, lengths[row.name, row.silo], torch.float32) for row in rows if row.handle)
        if not are_readable(transport, rank, lying):
            raise ValueError("its vectors cannot be read where it says that they lie")

    def place(self, reports: Mapping[int, Report]) -> list[ColumnsPlan]:
        """Return, at the server, the plan of each vector and its result; see `Aggregator`."""
        rows: defaultdict[str, list[Located]] = defaultdict(list)
        for rank, report in reports.items():
            for row in ROWS.validate_python(report.parts):
                rows[row.name].append(Located(silo=row.silo, rank=rank, handle=row.handle))
        for name, located in rows.items():
            if needs := self._needs(len(located)):
                raise RoundLost(f"{len(located)} silos sent '{name}', and {needs}")
        headers = updates_of(headers_of(reports))
        lengths = {name: vector.length for header in headers for name, vector in header.vectors.items()}
        return [self._plan(name, lengths[name], rows[name]) for name in sorted(rows)]

    def _plan(self, name: str, length: int, rows: list[Located]) -> ColumnsPlan:
        rows = sorted(rows, key=lambda row: row.silo)
        result = self._memory.handle(self._placed(name, length))
        return ColumnsPlan(name=name, length=length, rows=rows, result=result)

    def _placed(self, name: str, length: int) -> Tensor:
        """Return memory for a result, with NaN in each block, so that a missing slice shows."""
        self._results[name] = self._memory.empty(length, torch.float32)
        self._results[name][:: column_slices.BLOCK] = torch.nan
        return self._results[name]

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Compute this rank's slices of the results; collect them at the server. See `Aggregator`."""
        self.hanging.clear()
        if transport.rank not in (0, *verdict.ranks) or not verdict.pieces:
            return Combined()
        plans = [ColumnsPlan.model_validate(record) for record in verdict.pieces]
        lie = self._lie(transport, verdict, plans)
        if isinstance(lie, Combined):
            return lie
        rule = self._rule
        work = Sharing(
            transport, verdict, plans, lambda name: rule, self._rows, self._results, users=rule.own
        )
        work.leave_out(self.hanging)
        work.forge = lie
        work.run()
        return self._combined(work) if transport.is_server else Combined()

    def _lie(
        self, transport: Transport, verdict: Verdict, plans: Sequence[ColumnsPlan]
    ) -> Forger | Combined | None:
        """Return the attack, fitted to the vectors, or None without one; or the end of the round."""
        if self.forge is None:
            return None
        silos = [[row.silo for row in plan.rows] for plan in plans]
        alike = [plan for plan, own in zip(plans, silos, strict=True) if own == silos[0]]
        found, hanging = self.forge.agreed(transport, verdict, alike, self._rows)
        self.hanging |= hanging
        return found

    def _needs(self, silos: int) -> str:
        """Return the beginning of an error: how many silos the rule needs; "" if there are enough."""
        return self._rule.needs(silos)

    def _combined(self, work: Sharing) -> Combined:
        """Return, at the server, the result of the work."""
        self.hanging |= work.hanging
        if work.hanging:
            self._mend(work)
        results, self._results = self._results, {}
        lost = work.fault or work.not_finite(results)
        return Combined(results, lost, work.fault is not None, outside=work.outside())

    def _mend(self, work: Sharing) -> None:
        """Move the results to new memory: ranks that hang may still write to the old one."""
        self._abandoned += self._results.values()
        empty = self._memory.empty
        self._results = {name: empty(len(one), torch.float32) for name, one in self._results.items()}
        work.mend(self._results)

    def scalars(self, headers: Iterable[Header]) -> dict[str, float]:
        """Return the median of each number over the silos that sent it."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for header in headers:
            for name, value in header.scalars.items():
                if not isinstance(value, str):
                    found[name].append(float(value))
        return {name: statistics.median(values) for name, values in sorted(found.items())}


def _check_rows(rows: Sequence[Row], told: AbstractSet[tuple[str, int]]) -> None:
    found = Counter((row.name, row.silo) for row in rows)
    twice = [one for one, times in found.items() if times > 1]
    if wrong := sorted(told ^ found.keys()) or twice:
        name, silo = wrong[0]
        raise ValueError(f"its vectors are not those that its headers tell of ('{name}' of silo {silo})")


def memory_of(hosted: Iterable[int], asked: int, length: int, disk_buffer: str | None) -> str:
    """Return a line that estimates the memory that a rule of columns needs.

    Args:
        hosted: How many silos each rank hosts.
        asked: How many silos a round asks.
        length: The length of a vector.
        disk_buffer: The folder where vectors are kept; None for memory.
    """
    most = min(max(hosted), asked)
    where = f"in files in {disk_buffer}" if disk_buffer else "of memory"
    sizes = [4e-6 * length * most, 4e-6 * min(length, chunk_of(asked)) * asked, 4e-6 * length]
    vectors, chunk, result = (f"{size:,.1f} MB" for size in sizes)
    return (
        f"vectors of single silos are kept: {vectors} {where} on the rank with most silos ({most}), up to "
        f"twice {chunk} for a chunk of all silos where ranks are on several nodes; "
        f"the server has the result, {result}"
    )
