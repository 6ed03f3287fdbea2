"""The server of a split network: it holds the labels, and the top is its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpifl.algorithms import Server
from mpifl.data.batches import Batches
from mpifl.wings.split.label_gate import Gate


@dataclass
class SplitServer(Server):
    """What rank 0 holds beside what every server does.

    Attributes:
        held: The splits of the silo whose targets the server knows.
        holder: That silo.
        gate: Where gradients leave that silo's site.
    """

    held: Mapping[str, Batches] = field(default_factory=dict)
    holder: int = 0
    gate: Gate = field(default_factory=Gate)

    @property
    def judges(self) -> bool:
        """Whether it can score the network: its silo has rows to test it on."""
        return "test" in self.held
