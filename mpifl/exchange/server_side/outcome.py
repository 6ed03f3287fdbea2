"""The outcome of an exchange, at the server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from mpifl.sums import updates_of
from mpifl.wire import Mean, Reply

R = TypeVar("R", bound=Reply)


@dataclass(frozen=True)
class Outcome:
    """The outcome of an exchange.

    Attributes:
        replies: The replies of the silos without a fault.
        faults: The faults of the other silos.
        vectors: The combined vectors, by name.
        scalars: The combined numbers, by name.
    """

    replies: Sequence[Reply] = ()
    faults: dict[int, str] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)

    def of(self, kind: type[R]) -> dict[int, R]:
        """Return the replies of one kind, by silo."""
        return {reply.silo: reply for reply in self.replies if isinstance(reply, kind)}

    def mean(self) -> Mean:
        """Return the replies as the mean of updates."""
        updates = updates_of(self.replies)
        weight = math.fsum(update.weight for update in updates)
        of_silos = {update.silo: update.scalars for update in updates}
        return Mean(self.vectors, self.scalars, of_silos, self.faults, weight)
