"""What every silo has, whatever its data: its random streams, what it keeps, and how it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mpifl.common import rng
from mpifl.wire import Scalar, Uniform, Update


class Answering:
    """One silo during one request.

    Attributes:
        id: Its number in the federation.
        round: The round that is asked, counted from 0.
        state: What it kept in rounds before, tensors and numbers by name; change it with `keep` only.
        weight: What an update weighs unless it says otherwise.
        kept: What `keep` was given during this request.
    """

    state: Mapping[str, Any]
    weight: float
    kept: dict[str, Any]

    def __init__(self, id: int, round: int, seed: int) -> None:
        self.id = id
        self.round = round
        self._seed = seed

    def stream(self, purpose: str) -> torch.Generator:
        """Return the random stream that this silo has for a purpose in this round."""
        return rng.torch_stream(self._seed, purpose, self.id, self.round)

    def keep(self, **values: Tensor | Scalar) -> None:
        """Keep copies of tensors and numbers for later rounds; they count only if this update does."""
        self.kept |= {name: v.clone() if isinstance(v, Tensor) else v for name, v in values.items()}

    def update(self, weight: float | None = None, **values: Tensor | Uniform | Scalar | None) -> Update:
        """Make this silo's answer: tensors are averaged over the cohort, numbers too, and reported for each
        silo.

        Args:
            weight: Its weight in the averages; by default what the algorithm's `weight` says.
            **values: Flat tensors, `uniform` tensors and numbers by name; None, NaN or Inf is a number that
                it has not.
        """
        vectors = {name: value for name, value in values.items() if isinstance(value, Tensor | Uniform)}
        scalars = {name: value for name, value in values.items() if not isinstance(value, Tensor | Uniform)}
        return Update(self.weight if weight is None else weight, vectors, scalars)
