"""Runs rules that need whole vectors: the server decides by the Gram matrix, ranks compute the result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mpifl.common import InputError, RoundLost
from mpifl.sums import REFERENCE, Combined
from mpifl.wings.robust.column_rules import Rule
from mpifl.wings.robust.column_rules_run import ColumnRule
from mpifl.wings.robust.column_sharing import Sharing
from mpifl.wings.robust.column_slices import EVERYWHERE, ColumnsPlan, Forger, Located
from mpifl.wings.robust.disk_buffer import DiskBuffer
from mpifl.wings.robust.gram import GramPass
from mpifl.wings.robust.weighing import MEDIAN, Weighing
from mpifl.wings.robust.weight_rules import FLTrust
from mpifl.wire import Memory, Report, Request, Transport, Verdict

_SILO = -1
"""Stands for a silo's number: the server's own vector."""
_DECISION = (1 << 40) - 3
"""The stamp of the server's decision, after the Gram matrix."""


class GramRule(ColumnRule):
    """Multiplies the updates of all silos by a matrix that follows from their Gram matrix.

    All silos count equally. Vectors are kept, and columns are divided among workers, as in `ColumnRule`. In a
    first pass over the columns the workers compute the Gram matrix. The server decides, and sends the matrix
    to each worker. A second pass computes the result, without vectors of weight 0. The server also holds the
    Gram matrix [K, K].
    """

    def __init__(self, weighing: Weighing, memory: Memory, disk_buffer: DiskBuffer | None = None) -> None:
        super().__init__(MEDIAN, memory, disk_buffer)
        self._as_given, self._weighing, self._round = weighing, weighing, 0
        self._references: dict[tuple[str, int], Tensor] = {}

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the vectors of the round before, and keep the server's reference; see `Aggregator`."""
        super().begin(request, received, silos)
        self._weighing, self._round = self._as_given.among(len(request.cohort)), request.round
        came = {name.removeprefix(REFERENCE): v for name, v in received.items() if name.startswith(REFERENCE)}
        self._references = {(name, _SILO): v.cpu() for name, v in came.items()}

    def place(self, reports: Mapping[int, Report]) -> list[ColumnsPlan]:
        """Check, at the server, that all silos sent the same vectors and the rule can compare them.

        See `Aggregator`.
        """
        plans = super().place(reports)
        key = f"[aggregation] rule = '{self._weighing.name}'"
        if all(plan.name in self._weighing.apart for plan in plans):
            raise RoundLost(f"{key}: no silo sent a change of the model")
        silos = [{row.silo for row in plan.rows} for plan in plans]
        if any(one != silos[0] for one in silos):
            raise RoundLost(f"{key}: some silos sent fewer vectors than others")
        measured = [plan for plan in plans if plan.name not in self._weighing.apart]
        if isinstance(self._weighing.weights, FLTrust) and not self._brought(measured):
            sent = ", ".join(f"'{plan.name}'" for plan in measured)
            raise RoundLost(f"{key}: silos sent {sent}, and the server compares with its own 'delta'")
        return plans

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Compute this rank's part of the Gram matrix and of the results; see `Aggregator`.

        Between the two the server decides. At the end it collects the parts of the results.
        """
        self.hanging.clear()
        if transport.rank not in (0, *verdict.ranks) or not verdict.pieces:
            return Combined()
        plans = [ColumnsPlan.model_validate(record) for record in verdict.pieces]
        measured = [plan for plan in plans if plan.name not in self._weighing.apart]
        others = [plan for plan in plans if plan.name in self._weighing.apart]
        lie = self._lie(transport, verdict, measured)
        if isinstance(lie, Combined):
            return lie
        measured = self._with_reference(measured)
        matrix = self._decision(transport, verdict, measured, lie)
        if not isinstance(matrix, Tensor):
            return matrix
        silos = sum(row.rank != EVERYWHERE for row in measured[0].rows)
        kept = matrix.any(0) | (lie is not None)  # an attack needs all honest vectors
        kept[0] |= not kept.any()
        rule = self._weighing.rule_after(matrix[:, kept], silos)
        rules = {plan.name: rule for plan in measured} | {plan.name: MEDIAN for plan in others}
        plans = [*(_without(plan, kept) for plan in measured), *others]
        own = {**self._rows, **self._references}
        users = self._weighing.own
        work = Sharing(transport, verdict, plans, rules.__getitem__, own, self._results, users=users)
        work.leave_out(self.hanging)
        work.forge = lie
        work.run()
        if not transport.is_server:
            return Combined()
        return dataclasses.replace(self._combined(work), weights=self._told(matrix, measured[0]))

    def _needs(self, silos: int) -> str:
        return self._weighing.needs(silos)

    def _with_reference(self, plans: list[ColumnsPlan]) -> list[ColumnsPlan]:
        """Return plans with the server's vectors as last rows, if the server has sent one for each plan."""
        if not self._weighing.reference or not self._brought(plans):
            return plans
        last = Located(silo=_SILO, rank=EVERYWHERE, handle=0)
        return [plan.model_copy(update={"rows": [*plan.rows, last]}) for plan in plans]

    def _brought(self, plans: Sequence[ColumnsPlan]) -> bool:
        found = [self._references.get((plan.name, _SILO)) for plan in plans]
        return all(v is not None and len(v) == plan.length for v, plan in zip(found, plans, strict=True))

    def _decision(
        self, transport: Transport, verdict: Verdict, plans: Sequence[ColumnsPlan], lie: Forger | None
    ) -> Tensor | Combined:
        """Return the matrix that multiplies all rows, as the server decides; or the end of the round."""
        work = None
        if self._weighing.measures:
            work = GramPass(transport, verdict, plans, {**self._rows, **self._references})
            work.leave_out(self.hanging)
            work.forge = lie
            work.run()
        stamp, size = (verdict.serial, _DECISION), len(plans[0].rows)
        if not transport.is_server:
            until = time.perf_counter() + 5 * transport.transfer_timeout
            came = transport.next_share(0, stamp, 8 * size**2, until)
            if not came or len(came) % (8 * size):
                return Combined()
            return torch.frombuffer(came, dtype=torch.float64).view(-1, size)
        decided = self._decided(work, plans[0])
        told = decided.flatten() if isinstance(decided, Tensor) else torch.empty(0)
        for rank in sorted({*verdict.ranks}.intersection(transport.workers) - {0}):
            transport.hand_over(rank, [told], stamp)
        return decided

    def _decided(self, work: GramPass | None, plan: ColumnsPlan) -> Tensor | Combined:
        """Return the server's decision from the ranks' Gram matrix."""
        size, silos = len(plan.rows), sum(row.rank != EVERYWHERE for row in plan.rows)
        gram = np.empty((size, size))
        if work is not None:
            lost = work.lost()
            self.hanging |= work.hanging
            if lost:
                return Combined(lost=lost)
            gram = work.matrix()
        if self._weighing.reference and size == silos:  # the reference is zero before the first aggregate
            gram = np.pad(gram, (0, 1))
        try:
            matrix = self._weighing.decide(gram, silos, self._round)
        except InputError as error:
            return Combined(lost=str(error), in_vain=True)
        return torch.from_numpy(np.ascontiguousarray(matrix[:, :size]))

    def _told(self, matrix: Tensor, plan: ColumnsPlan) -> dict[int, float]:
        """Return the weight of each silo, for a rule by weights."""
        if self._weighing.weights is None:
            return {}
        weights = zip(plan.rows, matrix[0].tolist(), strict=True)
        return {row.silo: weight for row, weight in weights if row.rank != EVERYWHERE}


def _without(plan: ColumnsPlan, kept: Tensor) -> ColumnsPlan:
    """Return a plan with only the kept rows."""
    rows = [row for row, keep in zip(plan.rows, kept.tolist(), strict=True) if keep]
    return plan.model_copy(update={"rows": rows})


def aggregator_of(
    rule: Rule | Weighing, disk_buffer: str | None, memory: Memory, forge: Forger | None = None
) -> ColumnRule:
    """Return the aggregator of training updates for a rule other than the mean.

    Raises:
        InputError: no files can be made in the folder `disk_buffer`.
    """
    files = DiskBuffer(Path(disk_buffer)) if disk_buffer is not None else None
    made = GramRule(rule, memory, files) if isinstance(rule, Weighing) else ColumnRule(rule, memory, files)
    made.forge = forge
    return made
