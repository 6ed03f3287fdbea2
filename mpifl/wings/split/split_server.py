"""What the server of a split network has besides: the labels, and the gate that protects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpifl.algorithms import Server
from mpifl.data.batches import Batches
from mpifl.wings.split.label_gate import Gate


@dataclass
class SplitServer(Server):
    """A server that also has the labels.

    Attributes:
        held: The splits of the label holder's silo, with targets.
        holder: That silo.
        gate: Protects the gradients that leave the label holder's site.
    """

    held: Mapping[str, Batches] = field(default_factory=dict)
    holder: int = 0
    gate: Gate = field(default_factory=Gate)

    @property
    def judges(self) -> bool:
        """Whether the server can score the network: the label holder has test rows."""
        return "test" in self.held
