"""Each silo's model is mixed into the server's as soon as it is there, the less the older it is."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mpifl.algorithms.asynchronous import Aging, Continuing, NonNegative
from mpifl.silo.steps import LocalRun, Proximal


class FedAsync(Aging, Continuing):
    """FedAsync (Xie, Koyejo & Gupta 2019, Algorithm 1): w_t = (1 - alpha_t) w_(t-1) + alpha_t w_new.

    w_new was trained from w_tau, and alpha_t = alpha s(t - tau). As the paper counts, t - tau is 1 where
    nobody else was mixed in meanwhile. s is 1 (`constant`), (t - tau + 1)^-a (`polynomial`), or 1 as long as
    t - tau <= b and 1 / (a (t - tau - b) + 1) beyond (`hinge`). Silos train on F_k(w) + (rho/2) ||w -
    w_tau||^2.
    """

    own_step: ClassVar[str] = "server mixes models"
    ignores: ClassVar[frozenset[str]] = frozenset({"cohort.weights"})

    rho: NonNegative = 0.005
    """The strength of the pull towards the model that a silo began with."""

    @property
    def waits(self) -> int:
        """One: the server mixes each model in by itself."""
        return 1

    def pull(self, w: Tensor) -> Proximal | None:
        """Return the proximal term."""
        return Proximal(w, self.rho) if self.rho else None

    def kept(self, run: LocalRun) -> Tensor:
        """Return the silo's model."""
        return run.end

    def weighed(self, kept: Tensor, w: Tensor, age: int) -> Tensor:
        """Return alpha_t (w_new - w)."""
        return (kept - w).mul_(self.alpha * self.share(age + 1))
