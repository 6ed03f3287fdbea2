"""The transform that notes each question at a private silo, and each answer in the site's ledger."""

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
"""Entries of the server's state, float64 for each silo: the steps taken in this run, and the questions left.

The second is how many more questions the silo's budget allows; it is infinite without a budget."""


@dataclass(frozen=True)
class Protection(Transform):
    """Notes each silo's answer in its site's ledger, and the cost of answers in the server's state.

    Attributes:
        silos: How many silos the federation has.
    """

    silos: int

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Let the silo note the question."""
        if purpose != "evaluation" and isinstance(silo, PrivateSilo):
            silo.ask(message)
        return message

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Note the answer in the ledger, and add its cost to the update's numbers.

        Raises:
            InputError: the ledger holds another answer to the same question, or cannot be written.
        """
        if purpose != "evaluation" and isinstance(silo, PrivateSilo):
            vectors = {name: unmarked(value) for name, value in update.vectors.items()}
            told = silo.settle(vectors, update.scalars)
            update.scalars |= told
            if told.get(LEFT) == 0:  # the next question would tell it anyway, as the kind of a fault
                update.open |= {LEFT}
            update.noise |= dict.fromkeys(vectors, silo.share_of) if silo.share_of else {}
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Note in the server's state what the answers have cost so far."""
        for name, before in ((STEPS, 0.0), (LEFT, math.inf)):
            told = {silo: float(one[name]) for silo, one in mean.silos.items() if name in one}
            mean.scalars.pop(name, None)
            if told:
                known: Tensor = server.state.get(name, torch.full((self.silos,), before, dtype=torch.float64))
                known = known.clone()  # a mirror may hold the old tensor
                known[list(told)] = torch.tensor(
                    list(told.values()), dtype=torch.float64, device=known.device
                )
                server.state[name] = known
        return mean
