"""A first look at all vectors, by which lies are fitted that follow from more than single elements."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from mpifl.sums import Combined
from mpifl.wings.robust import GramPass

if TYPE_CHECKING:  # which imports this
    from mpifl.wings.attacks.colluding_attacks import Forging


class Fitting(GramPass):
    """The Gram matrix of the honest vectors and of the direction of the lie, which is written as liars'."""

    FIRST = 1 << 41
    DECISION = -3
    """The stamp, within the pass, of what the server decides."""

    def agreed(self, forging: Forging) -> Forging | Combined:
        """Look, and fit at the server; return on all ranks how silos lie, or else what comes of the round."""
        self.forge = forging
        self.run()
        transport = self._transport
        if not transport.is_server:
            until = time.perf_counter() + 5 * transport.transfer_timeout
            came = transport.next_share(0, self._stamp(self.DECISION), 8, until)
            if not came or len(came) != 8:
                return Combined()
            return forging.at(float(torch.frombuffer(came, dtype=torch.float64)))
        lost = self.lost()
        found = forging if lost else forging.fitted([row.silo for row in self._plans[0].rows], self.matrix())
        told = torch.tensor([] if found.gamma is None else [found.gamma], dtype=torch.float64)
        for rank in set(self._workers) - {0}:
            transport.hand_over(rank, [told], self._stamp(self.DECISION))
        return Combined(lost=lost) if lost else found
