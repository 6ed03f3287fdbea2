"""The weighted mean as sums of whole numbers modulo 2^64: the same bits with masks and without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from mpifl.common import InputError, RoundLost, ranks_named
from mpifl.sums import Combined
from mpifl.wings.masked.fixed_plan import PartyPlan, PlannedVector, SumPlan, message_of, part_of, plan_of
from mpifl.wings.masked.fixed_point import DIGITS, numbers_of
from mpifl.wings.masked.party_sums import PER_SCALAR, SENTINELS, FixedSums, PartySums, averages_in
from mpifl.wings.masked.release_phases import Phases, Ready, Release
from mpifl.wire import (
    Compute,
    Header,
    Memory,
    Report,
    Request,
    Transport,
    Update,
    VectorHeader,
    Verdict,
    pieces_of,
)

CHUNK = 1 << 19
"""How many elements travel between nodes at a time: 4 MiB."""


class FixedSum:
    """Adds up weight * vector over a rank's silos in private memory, masks it, and adds up all ranks' sums.

    A rank that has a sum is a *party*. It sends only its masked sum, and only after the server has released
    the sum to all parties. The leader of each node adds up its node's sums, the server those of the nodes.
    """

    sealed: ClassVar[bool] = True

    def __init__(self, how: FixedSums, memory: Memory) -> None:
        self._how, self._memory = how, memory
        self._request, self._received = Request(kind=""), dict[str, Tensor]()
        self._here = PartySums(how, self._request)
        self._rooms: dict[str, Tensor] = {}
        """The memory where the node's ranks will find this rank's masked sums."""
        self._scalars: dict[str, float] = {}
        self.hanging: set[int] = set()

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the sums of the round before; see `Aggregator`."""
        self._request, self._received = request, dict(received)
        self._here, self._rooms = PartySums(self._how, request), {}

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return private memory that no other rank reads."""
        return torch.empty(length, dtype=dtype)

    def accumulate(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Add one silo's update to this rank's sums; see `Aggregator`."""
        return self._here.add(silo, update)

    def parts(self) -> list[PartyPlan]:
        """Return where this rank's sums will lie once they are masked and released."""
        if not self._here.silos:
            return []
        self._rooms = {
            name: self._memory.empty(len(v), torch.int64) for name, v in self._here.vectors.items()
        }
        vectors = {name: self._memory.handle(room) for name, room in self._rooms.items()}
        offer = self._how.masking.offer if self._how.masking else None
        return [PartyPlan(vectors=vectors, scalars=sorted(self._here.numbers), offer=offer)]

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Check that a rank's sums match its headers; see `Aggregator`."""
        part = part_of(parts, headers)
        if part is None:
            return
        if (part.offer is not None) != self._how.masks:
            raise ValueError("it masks its sum, or does not, otherwise than the job says")
        if self._how.check_offer is not None:
            self._how.check_offer([header.silo for header in headers], part.offer)

    def place(self, reports: Mapping[int, Report]) -> list[SumPlan]:
        """Return, at the server, the plan of the sum; see `Aggregator`."""
        plan = plan_of(reports, self._how.least)
        if weightless := [vector.name for vector in plan.vectors if vector.total == 0]:
            raise RoundLost(f"all updates weigh 0 in the mean of '{weightless[0]}'")
        lacking = [v.name for v in plan.vectors if len(plan.having(v.name)) < len(plan.parties)]
        if lacking and self._how.masks:
            raise RoundLost(f"[security] masks: some ranks have no part in '{lacking[0]}'")
        return [plan] if plan.parties else []

    def scalars(self, headers: Iterable[Header]) -> dict[str, float]:
        """Return the averages of the numbers. They came with the sums, not in the headers."""
        return self._scalars

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Release and mask the sums of all parties, and add them up; see `Aggregator`."""
        self.hanging, self._scalars = set(), {}
        if not verdict.pieces:
            return Combined()
        plan = SumPlan.model_validate(verdict.pieces[0])
        own = self._own(plan) if transport.rank in plan.parties else []
        phases = Phases(transport, verdict.serial, plan.parties)
        if self._how.masks:
            lost = self._agree(transport, phases, verdict, plan, own)
            if lost is not None:
                return lost
        tail = self._hand_over(plan, own) if own else None
        tails = phases.tails(tail, len(plan.scalars) * PER_SCALAR + SENTINELS)
        if own:  # sent in the order in which the leader waits: MPI may buffer no message at all
            transport.done(verdict.serial)
        totals = self._totals(transport, verdict, plan)
        self.hanging |= phases.missing
        if not transport.is_server:
            return Combined()
        found = self._result(plan, totals, tails, len(verdict.accepted))
        return self._not_whole(transport, phases.empty) if found is None else found

    def _own(self, plan: SumPlan) -> list[Tensor]:
        return self._here.own([vector.name for vector in plan.vectors], plan.scalars)

    def _agree(
        self, transport: Transport, phases: Phases, verdict: Verdict, plan: SumPlan, own: Sequence[Tensor]
    ) -> Combined | None:
        """Wait until all parties are ready, and let the server release the sum.

        Returns:
            None if the sum is released; else why it is not.
        """
        answers = phases.ready(self._readiness(transport, verdict, plan, own) if own else None)
        concerned = _concerned(transport, plan)
        if not transport.is_server:
            waits = transport.rank in concerned
            told = phases.release(None, ()) if waits else Release()
            return Combined() if told.lost is not None else None
        lost = _unready(transport, phases, answers) or self._unnoted(verdict)
        phases.release(Release(lost=lost.lost if lost else None), concerned)
        return lost

    def _unnoted(self, verdict: Verdict) -> Combined | None:
        """Note the release at the server; return why it cannot be noted, if so."""
        assert isinstance(self._request, Compute)
        assert self._how.released is not None
        try:
            self._how.released.note(self._request.round, self._request.work, verdict.accepted)
        except InputError as error:
            return Combined(lost=str(error), in_vain=True)
        return None

    def _readiness(
        self, transport: Transport, verdict: Verdict, plan: SumPlan, own: Sequence[Tensor]
    ) -> Ready:
        assert isinstance(self._request, Compute)
        assert self._how.masking is not None
        message = message_of(self._request, self._received)
        try:
            question = self._here.question(message, plan, verdict.accepted, transport.rank)
            return Ready(context=self._how.masking.ready(question, own))
        except InputError as error:
            return Ready(refused=str(error))

    def _hand_over(self, plan: SumPlan, own: Sequence[Tensor]) -> Tensor:
        """Mask this rank's sums and put them where its node reads them; return its numbers.

        If the site cannot note the release, send zeros and an empty tensor of numbers instead.
        """
        names = [vector.name for vector in plan.vectors if vector.name in self._rooms]
        try:
            if self._how.masking is not None:
                self._how.masking.release()
                self._how.masking.mask(own)
            for name, masked in zip(names, own, strict=False):
                self._rooms[name].copy_(masked)
            return own[-1]
        except InputError:
            for name in names:
                self._rooms[name].zero_()
            return own[-1][:0]

    def _totals(self, transport: Transport, verdict: Verdict, plan: SumPlan) -> dict[str, Tensor]:
        """Add up the sums; return at the server those of all parties. Ranks without a part return nothing."""
        here = [rank for rank in plan.parties if transport.nodes.of[rank] == transport.nodes.number]
        if not transport.nodes.leads or not (here or transport.is_server):
            return {}
        self.hanging |= transport.await_done(here, verdict.serial, transport.transfer_timeout)
        return {one.name: self._total(transport, plan, one) for one in plan.vectors}

    def _total(self, transport: Transport, plan: SumPlan, vector: PlannedVector) -> Tensor:
        """Add up a vector's sums of this node's parties, and at the server those of all nodes."""
        having, nodes = plan.having(vector.name), transport.nodes
        total = torch.zeros(width_of(vector), dtype=torch.int64)
        for rank in having:
            if nodes.of[rank] == nodes.number and rank not in self.hanging:
                total += self._part(transport, plan, vector, rank)
        across = sorted({0, *(nodes.of[rank] for rank in having)})
        if nodes.number in across and len(across) > 1:
            for where in pieces_of(len(total), CHUNK):
                total[where] = transport.sum(total[where], across)
        return total

    def _part(self, transport: Transport, plan: SumPlan, vector: PlannedVector, rank: int) -> Tensor:
        if rank == transport.rank:
            return self._rooms[vector.name]
        handle, width = plan.parties[rank].vectors[vector.name], width_of(vector)
        try:
            return transport.read(rank, handle, width, torch.int64)
        except OSError:
            self.hanging.add(rank)
            return torch.zeros(width, dtype=torch.int64)

    def _result(
        self, plan: SumPlan, totals: Mapping[str, Tensor], tails: Mapping[int, Tensor], silos: int
    ) -> Combined | None:
        """Return the means at the server; None if a sum is incomplete."""
        tail = self._whole(plan, totals, tails, silos)
        if tail is None:
            return None
        self._scalars = averages_in(tail, plan.scalars)
        means = {v.name: self._mean(v, totals[v.name]) for v in plan.vectors}
        return Combined(means, parties=len(plan.parties) if self._how.masks else 0)

    def _whole(
        self, plan: SumPlan, totals: Mapping[str, Tensor], tails: Mapping[int, Tensor], silos: int
    ) -> Tensor | None:
        """Return the sum of all parties' numbers; None if it or a vector's sum is incomplete."""
        tail = torch.zeros(len(plan.scalars) * PER_SCALAR + SENTINELS, dtype=torch.int64)
        for own in tails.values():
            tail += own
        whole = len(tails) == len(plan.parties) and tail[-SENTINELS:].tolist() == [len(plan.parties), silos]
        varied = any(len(plan.having(one.name)) < len(plan.parties) for one in plan.vectors)
        for vector in plan.vectors:
            parties, count = totals[vector.name][-SENTINELS:].tolist()
            whole &= parties == len(plan.having(vector.name)) and (varied or count == silos)
        return tail if whole else None

    def _not_whole(self, transport: Transport, empty: Collection[int]) -> Combined:
        late = sorted(transport.origins[rank] for rank in self.hanging.union(empty))
        why = f"{ranks_named(late)} handed over no sum" if late else "the sums are not whole"
        if not self._how.masks:
            return Combined(lost=why)
        return Combined(
            lost=f"{why}; it was released, and can be asked for over no other silos", in_vain=True
        )

    def _mean(self, vector: PlannedVector, total: Tensor) -> Tensor:
        content = total[:-SENTINELS]
        if vector.combined == "summed":
            return numbers_of(content.view(-1, DIGITS))
        grid = self._how.grid(vector.name, vector.combined, self._request)
        return content.double().mul_(grid / vector.total).float()


def width_of(vector: PlannedVector) -> int:
    """Return how many elements the sum of a vector has, with its sentinels."""
    return vector.length * (DIGITS if vector.combined == "summed" else 1) + SENTINELS


def _concerned(transport: Transport, plan: SumPlan) -> list[int]:
    """Return the ranks that wait for a release: the parties and their nodes' leaders, without the server."""
    nodes = transport.nodes
    leaders = {nodes.leader_of(nodes.of[rank]) for rank in plan.parties}
    return sorted(leaders.union(plan.parties) - {0})


def _unready(transport: Transport, phases: Phases, answers: Mapping[int, Ready]) -> Combined | None:
    """Return, at the server, why a sum is not released; None if all parties are ready for the same sum."""
    origins = transport.origins
    refused = {origins[rank]: one.refused for rank, one in sorted(answers.items()) if one.context is None}
    if refused:
        rank, why = next(iter(refused.items()))
        return Combined(lost=f"rank {rank} hands over no sum: {why or 'it does not say why'}", in_vain=True)
    if phases.missing:
        return Combined(
            lost=f"{ranks_named(sorted(origins[one] for one in phases.missing))} did not get ready"
        )
    told = Counter(one.context for one in answers.values())
    if len(told) > 1:
        (usual, _), *_ = told.most_common(1)
        others = sorted(origins[rank] for rank, one in answers.items() if one.context != usual)
        what = f"parties were told {len(told)} different things, {ranks_named(others)} other than most"
        return Combined(lost=what, in_vain=True)
    return None
