"""The interface between a party's sum and what masks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from mpifl.wings.masked.fixed_plan import SumPlan
from mpifl.wire import Compute


class Masking(Protocol):
    """How a party hides its sum; see `MaskedParty`."""

    @property
    def offer(self) -> dict[str, Any]:
        """Its offer to all other parties, with its public key."""

    def ready(self, question: Question, sums: Sequence[Tensor]) -> str:
        """Add this party's share of noise in place, and return the digest of the whole question.

        Raises:
            InputError: the party refuses to send such a sum.
        """

    def release(self) -> None:
        """Note that the sum is sent; the note is on the disk when this returns.

        Raises:
            InputError: it cannot be noted, and nothing may be sent.
        """

    def mask(self, sums: Sequence[Tensor]) -> None:
        """Add the masks in place."""


@dataclass(frozen=True)
class Question:
    """What a party's sum is to be used for.

    Attributes:
        request: The request.
        received: The vectors that came with it.
        plan: The server's plan of the sum.
        accepted: The silos whose updates count.
        grids: The grid spacing of each vector.
        noise: The deviation of the noise on each vector's sum over all parties, in grid units; 0 for none.
        rank: The party's rank.
        answers: Digests of what each silo has added to the party's sum.
    """

    request: Compute
    received: Mapping[str, Tensor]
    plan: SumPlan
    accepted: Sequence[int]
    grids: Sequence[float]
    noise: Sequence[float]
    rank: int
    answers: Mapping[int, str]
