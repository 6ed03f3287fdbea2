"""What a silo asks of local training, and who answers: the plain way by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import torch
from torch import Tensor

from mpifl.data import Batches
from mpifl.silo import local
from mpifl.silo.chain import OfOutputs
from mpifl.silo.flat import Allocate, FlatModel, Objective
from mpifl.silo.local import Kept, LocalRun, LocalTraining
from mpifl.silo.optimizers import Correction
from mpifl.silo.steps import Counted
from mpifl.silo.way import PLAIN, Way


@dataclass(frozen=True)
class Asked:
    """One training of one silo; `local.train` says what each is.

    Attributes:
        weighted: The objective with weights of a batch's examples behind its tensors, as a sum; None where it
            is no mean over examples.
    """

    model: FlatModel
    batches: Batches
    start: Tensor
    local: LocalTraining
    generator: torch.Generator
    objective: Objective
    correct: Correction | None = None
    beside: Sequence[Tensor] = ()
    allocate: Allocate = torch.empty
    round: int = 0
    kept: Kept | None = None
    way: Way = PLAIN
    counted: Counted | None = None
    of_outputs: OfOutputs | None = None
    weighted: Callable[..., Tensor] | None = None

    def plainly(self) -> LocalRun:
        """Train this silo by itself."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "weighted"}
        return local.train(**given)


Trains: TypeAlias = Callable[[Asked], LocalRun]
"""Who answers."""
