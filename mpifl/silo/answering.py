"""What every silo has, whatever its data: its random streams, what it keeps, and how it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
        turn: Which of its trainings in this round it is, counted from 0, where each has streams of its own.
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
        self.turn = 0
        self._seed = seed

    def stream(self, purpose: str) -> torch.Generator:
        """Return the random stream that this silo has for a purpose in this round."""
        return rng.torch_stream(self._seed, purpose, *rng.turn(self.id, self.round, self.turn))

    def keep(self, **values: Tensor | Scalar) -> None:
        """Keep copies of tensors, on the host, and numbers for later rounds; they count only if this update
        does."""
        self.kept |= {name: _copied(value) for name, value in values.items()}

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


class _Placed(Mapping[str, Any]):
    """What a silo keeps on the host, where it is looked at: a device holds the one silo's that works."""

    def __init__(self, kept: Mapping[str, Any], device: torch.device) -> None:
        self._kept, self._device = kept, device
        self._here: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._here:
            value = self._kept[name]
            self._here[name] = value.to(self._device) if isinstance(value, Tensor) else value
        return self._here[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def placed(kept: Mapping[str, Any], device: torch.device) -> Mapping[str, Any]:
    """Return what a silo keeps as it finds it on a device; on the CPU that is what it keeps."""
    return kept if device.type == "cpu" else _Placed(kept, device)


def _copied(value: Tensor | Scalar) -> Tensor | Scalar:
    """Return a copy of a tensor on the host."""
    return value.to("cpu", copy=True) if isinstance(value, Tensor) else value
