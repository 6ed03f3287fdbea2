"""Attacks that each Byzantine silo carries out alone, on its examples or its update."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.common import rng
from mpifl.silo import Silo
from mpifl.transforms import STATISTICS, Message, Transform
from mpifl.wings.attacks.backdoor import Backdoor
from mpifl.wire import Purpose, Summed, Uniform, Update, unmarked

_BEFORE = "w before"
"""A free rider's state: the model that it received last."""


@dataclass(frozen=True)
class Lying(Transform):
    """Makes some silos falsify their examples or updates. Running statistics are left alone.

    Attributes:
        kind: The kind of attack.
        silos: The Byzantine silos.
        size: The standard deviation of the noise, or the factor of the update.
        seed: The job's seed; noise is drawn from it.
        classes: The number of classes.
        backdoor: The backdoor, for the kind of that name.
        anew: Whether these silos' optimizers begin anew in each round.
    """

    kind: str
    silos: Collection[int]
    size: float
    seed: int
    classes: int
    backdoor: Backdoor | None = None
    anew: bool = False

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Flip labels (y becomes classes - 1 - y), poison examples, or remember the model, by the kind."""
        if silo.id in self.silos and purpose == "training":
            if self.anew:
                silo.forget_optimizer()
            if self.kind == "label_flip":
                silo.relabel(lambda y: self.classes - 1 - y)
            if self.backdoor is not None:
                self.backdoor.teach(silo, self.seed)
            if self.kind == "free_rider" and isinstance(message.get("w"), Tensor):
                silo.received[_BEFORE] = message["w"]
        return message

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Falsify all vectors of the update, except statistics and sums."""
        learned = self.kind == "label_flip" or (self.kind == "backdoor" and self.size == 1.0)
        if silo.id not in self.silos or purpose != "training" or learned:
            return update
        for name, value in update.vectors.items():
            if name != STATISTICS and not isinstance(value, Summed):
                lie = self._lie(silo, name, unmarked(value))
                update.vectors[name] = Uniform(lie) if isinstance(value, Uniform) else lie
        if _BEFORE in silo.received:
            silo.keep(**{_BEFORE: silo.received[_BEFORE].clone()})
        return update

    def _lie(self, silo: Silo, name: str, vector: Tensor) -> Tensor:
        if self.kind == "sign_flip":
            return -vector
        if self.kind in ("scale", "backdoor"):
            return vector * self.size
        if self.kind == "gaussian":
            draw = rng.torch_stream(self.seed, f"attack on {name}", silo.id, silo.round)
            noise = torch.empty(len(vector)).normal_(0.0, self.size, generator=draw)
            return noise.to(vector.device)
        before, now = silo.state.get(_BEFORE), silo.received.get(_BEFORE)
        if before is None or now is None or len(now) != len(vector):
            return torch.zeros_like(vector)
        step: Tensor = now - before
        return step
