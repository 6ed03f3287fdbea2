"""The learning rate of each step: a warm-up, then constant, linear or cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Shape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class RateSchedule:
    """The learning rate of each step of a round.

    It grows linearly over the first steps (Goyal et al. 2017, section 2.2). Then it stays, or falls to 0 at
    the last step, linearly or as half a cosine (Loshchilov & Hutter 2017, eq. 5, without restarts).

    Attributes:
        shape: The shape after the warm-up.
        warmup: Steps of the warm-up.
        total: Steps in all, the warm-up included.
        done: Steps taken in earlier rounds.
        base: The learning rate at the end of the warm-up.
    """

    shape: Shape = "constant"
    warmup: int = 0
    total: int = 1
    done: int = 0
    base: float = 1.0

    def lr(self, step: int) -> float:
        """Return the learning rate of a step of this round, counted from 0."""
        return self.base * self._factor(step)

    def _factor(self, step: int) -> float:
        step += self.done
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.shape == "constant":
            return 1.0
        part = min((step - self.warmup) / max(self.total - self.warmup, 1), 1.0)
        return 1 - part if self.shape == "linear" else (1 + math.cos(math.pi * part)) / 2
