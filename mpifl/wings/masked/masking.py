"""What a party asks whoever hides its sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from mpifl.wings.masked.fixed_plan import SumPlan
from mpifl.wire import Compute


class Masking(Protocol):
    """How a party hides its sum; see `privacy.Party`."""

    @property
    def offer(self) -> dict[str, Any]:
        """Its half of the keys, for all other parties."""

    def ready(self, question: Question, sums: Sequence[Tensor]) -> str:
        """Add this party's share of noise, in place, and return the digest of all that the sum is for.

        Raises:
            InputError: the party hands no such sum over.
        """

    def release(self) -> None:
        """Note that the sum is handed over; it is on the disk when this returns.

        Raises:
            InputError: it cannot be noted, and nothing is to leave.
        """

    def mask(self, sums: Sequence[Tensor]) -> None:
        """Add the masks, in place."""


@dataclass(frozen=True)
class Question:
    """What a party is asked to hand over its sum for.

    Attributes:
        request: The request.
        received: The vectors that came with it.
        plan: What is added up.
        accepted: The silos whose updates count.
        grids: What one stands for, of each vector.
        noise: The deviation of the noise of each vector's sum over all parties, in its grid; 0 for none.
        rank: The party's.
        answers: Digests of what each silo has added to its sum.
    """

    request: Compute
    received: Mapping[str, Tensor]
    plan: SumPlan
    accepted: Sequence[int]
    grids: Sequence[float]
    noise: Sequence[float]
    rank: int
    answers: Mapping[int, str]
