"""Privacy at the silo: a question is noted before it is answered, and its answer before it leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.algorithms import Server
from mpifl.silo import Silo
from mpifl.transforms import Message, Transform
from mpifl.wings.dpsgd.private_silo import PrivateSilo
from mpifl.wire import Mean, Purpose, Update, unmarked

STEPS, LEFT = "private_steps", "budget_left"
"""In the server's state: the steps that each silo has taken in this run, and the questions that its budget
still allows, float64; infinite where nothing limits them."""


@dataclass(frozen=True)
class Protection(Transform):
    """Have each silo's ledger hold what it answers, and the server know what that cost.

    Attributes:
        silos: How many the federation has.
    """

    silos: int

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Have the silo note the question."""
        if purpose != "evaluation" and isinstance(silo, PrivateSilo):
            silo.ask(message)
        return message

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Have the silo's ledger hold the answer, and say what it cost.

        Raises:
            InputError: the ledger holds another answer to the same question, or cannot be written.
        """
        if purpose != "evaluation" and isinstance(silo, PrivateSilo):
            vectors = {name: unmarked(value) for name, value in update.vectors.items()}
            update.scalars |= silo.settle(vectors, update.scalars)
            update.noise |= dict.fromkeys(vectors, silo.share_of) if silo.share_of else {}
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Note what the answers have cost so far."""
        for name, before in ((STEPS, 0.0), (LEFT, math.inf)):
            told = {silo: float(one[name]) for silo, one in mean.silos.items() if name in one}
            mean.scalars.pop(name, None)
            if told:
                known: Tensor = server.state.get(name, torch.full((self.silos,), before, dtype=torch.float64))
                known = known.clone()  # which a mirror may hold
                known[list(told)] = torch.tensor(
                    list(told.values()), dtype=torch.float64, device=known.device
                )
                server.state[name] = known
        return mean
