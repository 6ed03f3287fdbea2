"""Each silo's model is mixed into the server's as soon as it is there, the less the older it is."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from mpifl.algorithms.asynchronous import Asynchronous
from mpifl.silo.steps import LocalRun, Proximal

NonNegative = Annotated[float, Field(ge=0)]


class FedAsync(Asynchronous):
    """FedAsync (Xie, Koyejo & Gupta 2019, Algorithm 1): w_t = (1 - alpha_t) w_(t-1) + alpha_t w_new.

    w_new was trained from w_tau, and alpha_t = alpha s(t - tau). As the paper counts, t - tau is 1 where
    nobody else was mixed in meanwhile. s is 1 (`constant`), (t - tau + 1)^-a (`polynomial`), or 1 as long as
    t - tau <= b and 1 / (a (t - tau - b) + 1) beyond (`hinge`). Silos train on F_k(w) + (rho/2) ||w -
    w_tau||^2.
    """

    own_step: ClassVar[str] = "server mixes models"

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.6
    """The share of a silo's model in the mixture, before staleness."""
    weighting: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """How the share falls with staleness."""
    a: NonNegative = 0.5
    """How fast it falls, by polynomial and hinge."""
    b: NonNegative = 4.0
    """Up to which staleness hinge leaves it as it is."""
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

    def share(self, stale: int) -> float:
        """Return s of t - tau."""
        if self.weighting == "polynomial":
            return float((stale + 1) ** -self.a)
        late = max(stale - self.b, 0.0) if self.weighting == "hinge" else 0.0
        return 1.0 / (self.a * late + 1.0)
