"""The `[attack]` table: silos that lie on purpose, for tests and tables."""

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
"""What a free rider keeps: the model that it was sent last."""


@dataclass(frozen=True)
class Lying(Transform):
    """Have some silos falsify their examples or their updates; running statistics stay as they are.

    Attributes:
        kind: How.
        silos: Which.
        size: The standard deviation of noise, or the multiple.
        seed: The job's, from which noise is drawn.
        classes: Of labels.
        backdoor: For the kind of that name.
        anew: Whether their optimizers begin anew in each round.
    """

    kind: str
    silos: Collection[int]
    size: float
    seed: int
    classes: int
    backdoor: Backdoor | None = None
    anew: bool = False

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Turn labels round, y to classes - 1 - y, poison examples, or remember the model."""
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
        """Falsify all vectors of the update but statistics and sums."""
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
