"""The part that all kinds of silos share: random streams, kept state and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from mpifl.common import rng
from mpifl.wire import Scalar, Uniform, Update


class Answering:
    """One silo during one request, whatever its data.

    Attributes:
        id: The silo's number in the federation.
        round: The round of the request, counted from 0.
        turn: The number of the training in this round, counted from 0. Each training has its own random
            streams.
        state: What the silo kept in earlier rounds: tensors and numbers by name. Change it with `keep` only.
        weight: The weight of an update, unless the update sets its own.
        kept: What the silo gave to `keep` during this request.
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
        """Return this silo's random stream for a purpose in this round."""
        return rng.torch_stream(self._seed, purpose, *rng.turn(self.id, self.round, self.turn))

    def keep(self, **values: Tensor | Scalar) -> None:
        """Keep numbers and copies of tensors (on the host) for later rounds. They count only if the update
        counts."""
        self.kept |= {name: _copied(value) for name, value in values.items()}

    def update(self, weight: float | None = None, **values: Tensor | Uniform | Scalar | None) -> Update:
        """Return this silo's answer. Tensors and numbers are averaged over the cohort; numbers are also
        reported for each silo.

        Args:
            weight: The update's weight in the averages; by default the algorithm's `weight`.
            **values: Flat tensors, `uniform` tensors and numbers by name. None, NaN or Inf is a missing
                number.
        """
        vectors = {name: value for name, value in values.items() if isinstance(value, Tensor | Uniform)}
        scalars = {name: value for name, value in values.items() if not isinstance(value, Tensor | Uniform)}
        return Update(self.weight if weight is None else weight, vectors, scalars)


class _Placed(Mapping[str, Any]):
    """A silo's kept state, copied to the device entry by entry when it is read. So only the working silo's
    state is there."""

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
    """Return a view of a silo's kept state on a device; on the CPU, return the state itself."""
    return kept if device.type == "cpu" else _Placed(kept, device)


def _copied(value: Tensor | Scalar) -> Tensor | Scalar:
    """Return a copy of a tensor on the host."""
    return value.to("cpu", copy=True) if isinstance(value, Tensor) else value
