"""How ranks divide the work of a rule of columns, and bring the result together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from mpifl.common import InputError, ranks_named
from mpifl.sums import is_finite
from mpifl.wings.robust import column_slices
from mpifl.wings.robust.column_rules import Rule
from mpifl.wings.robust.column_slices import ColumnsPlan, Slices
from mpifl.wire import Transport, Verdict, pieces_of

SAMPLED = 1024
"""We look for silos with outlying values in at most this many columns of a vector."""


class Sharing(Slices):
    """One rank's part in computing the results.

    Args:
        rule_of: Returns the rule for a vector, given its name.
        results: At the server, the memory for the results.
        users: Whether the rule is the user's own.
    """

    def __init__(
        self,
        transport: Transport,
        verdict: Verdict,
        plans: Sequence[ColumnsPlan],
        rule_of: Callable[[str], Rule],
        own: Mapping[tuple[str, int], Tensor],
        results: Mapping[str, Tensor],
        *,
        users: bool,
    ) -> None:
        super().__init__(transport, verdict, plans, own)
        self._rule_of, self._results = rule_of, results
        self._silos = sorted({row.silo for plan in plans for row in plan.rows})
        self._outside: Counter[int] = Counter()
        self._seen: Counter[int] = Counter()
        self.believes_faults = users

    def mend(self, results: Mapping[str, Tensor]) -> None:
        """Copy all results at the server to new memory, which ranks that hang cannot write to.

        The columns of these ranks are computed here if all vectors can be read here; otherwise they are NaN.
        """
        for plan in self._plans:
            result = results[plan.name].copy_(self._results[plan.name])
            for rank in self.hanging:
                where = self._shares(plan).get(rank, slice(0, 0))
                result[where] = self._made(plan, where, {}) if self._all_here else torch.nan

    def outside(self) -> dict[int, float]:
        """Return, at the server, the share of columns in which each silo's value was outlying."""
        return {silo: self._outside[silo] / seen for silo, seen in sorted(self._seen.items()) if seen}

    def not_finite(self, results: Mapping[str, Tensor]) -> str | None:
        """Return which result is not finite and which ranks are suspected; None if all results are finite."""
        for plan in self._plans:
            if not is_finite(results[plan.name]):
                result, shares = results[plan.name], self._shares(plan).items()
                makers = {rank for rank, where in shares if not is_finite(result[where])}
                suspects = self._suspects | self.hanging or makers
                named = ranks_named(sorted(self._transport.origins[rank] for rank in suspects))
                rule = self._rule_of(plan.name).name
                return f"the {rule} of '{plan.name}' is not finite; suspected: {named}"
        return None

    def _step(self, plan: ColumnsPlan, wheres: Mapping[int, slice], count: int) -> None:
        mine = wheres.get(self._transport.rank, slice(0, 0))
        received = self._trade(plan, wheres, count)
        if mine.start < mine.stop:
            self._deliver(plan, mine, self._made(plan, mine, received), count)
        if self._transport.is_server:
            self._take(plan, wheres, count)

    def _made(self, plan: ColumnsPlan, where: slice, received: Mapping[int, Sequence[Tensor]]) -> Tensor:
        """Apply the rule to some columns; the result is NaN if a silo's vector is missing or not finite."""
        made = torch.full((where.stop - where.start,), torch.nan)
        rows = self._rows(plan, where, received)
        if rows is not None and not self.fault:
            self._apply(self._rule_of(plan.name), rows, made)
            self._count(plan, where, rows)
        return made

    def _count(self, plan: ColumnsPlan, where: slice, rows: Sequence[Tensor]) -> None:
        """Count which silos' values are outlying, in columns that do not depend on the number of ranks."""
        step = max(-(-plan.length // SAMPLED), 1)
        some = [row[-where.start % step :: step] for row in rows]
        found = self._rule_of(plan.name).outside(some) if len(some[0]) else None
        for row, outside in zip(plan.rows, found or (), strict=False):
            self._outside[row.silo] += outside
            self._seen[row.silo] += len(some[0])

    def _counted(self) -> list[int]:
        if not self._seen:
            return []
        return [counter[silo] for counter in (self._outside, self._seen) for silo in self._silos]

    def _take_counted(self, counted: Sequence[int]) -> None:
        outside, seen = counted[: len(self._silos)], counted[len(self._silos) :]
        if len(outside) == len(seen) == len(self._silos) and all(
            some <= all_ for some, all_ in zip(outside, seen, strict=True)
        ):
            self._outside.update(dict(zip(self._silos, outside, strict=True)))
            self._seen.update(dict(zip(self._silos, seen, strict=True)))

    def _apply(self, rule: Rule, rows: Sequence[Tensor], made: Tensor) -> None:
        """Apply a rule to some rows, block by block, and write the result; note an error of the rule."""
        try:
            for block in pieces_of(len(made), column_slices.BLOCK):
                made[block] = rule([row[block] for row in rows])
        except InputError as error:
            self.fault = str(error)

    def _deliver(self, plan: ColumnsPlan, where: slice, made: Tensor, count: int) -> None:
        """Write columns of the result to the server's memory, or send them to the server."""
        transport = self._transport
        if transport.is_server:
            self._results[plan.name][where] = made
        elif transport.nodes.number == 0:
            transport.read(0, plan.result, plan.length, torch.float32)[where] = made
        elif 0 not in self._missing and not transport.hand_over(0, [made], self._stamp(count)):
            self._missing.add(0)

    def _take(self, plan: ColumnsPlan, wheres: Mapping[int, slice], count: int) -> None:
        """Receive, at the server, the columns of ranks on other nodes."""
        transport = self._transport
        until = self._until()
        for rank, where in wheres.items():
            nbytes = 4 * (where.stop - where.start)
            if nbytes and transport.nodes.of[rank] != 0 and rank not in self.hanging:
                came = transport.next_share(rank, self._stamp(count), nbytes, until)
                if came is not None and len(came) == nbytes:
                    self._results[plan.name][where] = torch.frombuffer(came, dtype=torch.float32)
                else:
                    self.hanging.add(rank)
