"""The server: the state of the training, and what it can do alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mpifl.batches import Batches
from mpifl.flat import FlatModel
from mpifl.silo import Score, evaluate


@dataclass
class Server:
    """What rank 0 holds.

    Attributes:
        model: The architecture, with the initial weights until something is evaluated on it.
        seed: The job's seed.
        state: All that the training has learned: plain tensors and numbers by name, `w` among them, shape [P].
        round: Rounds done.
        test: The global test set, if the shard folder has one.
    """

    model: FlatModel
    seed: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    round: int = 0
    test: Batches | None = None

    def evaluate(self, w: Tensor) -> Score | None:
        """Score the model w, shape [shared], on the test set; None if there is none, or silos own a part of it."""
        if self.test is None or len(self.model.personal) or len(self.model.personal_statistics):
            return None
        self.load(w)
        return evaluate(self.model, self.model.trained, self.test)

    def load(self, w: Tensor) -> FlatModel:
        """Put w, shape [shared], and the running statistics into the model and return it; no silo's own part is in it."""
        self.model.shared.copy_(w)
        own, statistics = self.model.initial_personal
        self.model.personal.copy_(own)
        self.model.personal_statistics.write(statistics)
        if "statistics" in self.state:
            self.model.statistics.write(self.state["statistics"])
        return self.model
