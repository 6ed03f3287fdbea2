"""A first pass over all vectors, for attacks that depend on whole vectors and not on single elements."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from mpifl.sums import Combined
from mpifl.wings.robust import GramPass

if TYPE_CHECKING:  # that module imports this one
    from mpifl.wings.attacks.colluding_attacks import Forging


class Fitting(GramPass):
    """Computes the Gram matrix of the honest vectors and the attack's direction, and fits the attack.

    In this pass the direction stands in the rows of the Byzantine silos.
    """

    FIRST = 1 << 41
    DECISION = -3
    """The stamp of the server's decision within the pass."""

    def agreed(self, forging: Forging) -> Forging | Combined:
        """Run the pass and fit at the server. All ranks get the fitted attack, or the end of the round."""
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
