"""Controls: a vector that each silo keeps, and their weighted sum at the server, which both sides add up."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.wire import Mean, Uniform, Update, uniform


class Controlled(FedAvg):
    """What silos keep controls for: g_k each, 0 at first, and h = sum_k p_k g_k over all silos at the server.

    p_k is what silo k weighs in the objective: n_k / n, or 1/N where `[cohort]` draws and counts all silos
    alike. No silo moves where each g_k is its gradient and h = 0, that is at the optimum of sum_k p_k F_k. So
    h decides which optimum it is, and what deltas weigh decides only how it is reached. Silos that are drawn
    by n_k and counted alike weigh n_k in h as well: E[delta] weighs p_k then. h is a sum over all silos, not
    an estimate from those drawn, so that it takes each shift by p_k however often the silo is drawn.

    Attributes:
        at_server, at_silo: The names of h in `server.state` and of g_k in `silo.state`.
    """

    realigning: ClassVar[frozenset[str]] = frozenset({"tell_control"})
    at_server: ClassVar[str]
    at_silo: ClassVar[str]

    @property
    def alike(self) -> bool:
        """Whether p_k is 1/N in h, whatever the objective weighs."""
        return False

    def begin(self, server: Server) -> None:
        """Start with controls of zero."""
        super().begin(server)
        server.state[self.at_server] = torch.zeros_like(server.state["w"])

    def own(self, silo: Silo) -> Tensor:
        """Return g_k, shape [P]."""
        own: Tensor | None = silo.state.get(self.at_silo)
        return torch.zeros_like(silo.model.shared) if own is None else own

    def shift(self, server: Server, cohort: Cohort, mean: Mean, shift: Tensor) -> None:
        """Move h by n_S / n (|S| / N) times the mean shift of the controls of silos that answered."""
        server.state[self.at_server] += self._part(mean, cohort) * shift
        server.state["weight"] = self._all(cohort)

    def told(self, silo: Silo, control: Tensor, untold: Tensor | float = 0.0) -> Tensor | Uniform:
        """Return a silo's control, or its shift, less what of it is not told, as the mean is to weigh it."""
        return uniform(control - untold) if self.alike else silo.importance * control - untold

    def _all(self, cohort: Cohort) -> float:
        """Return what all silos weigh in h."""
        return float(cohort.population) if self.alike else cohort.weight

    def _part(self, mean: Mean, cohort: Cohort) -> float:
        """Return what the silos that answered weigh of all."""
        return (len(mean) if self.alike else mean.weight) / self._all(cohort)

    def aligned(self, server: Server, everyone: Cohort) -> bool:
        """Return whether h weighs the g_k as the objective does;
        before it was noted, it weighed all alike."""
        return bool(server.state.get("weight", everyone.population) == self._all(everyone))

    def realign(self, server: Server, everyone: Cohort) -> None:
        """Make h the sum of p_k g_k that there are: where it were any other,
        training would end beside the optimum."""
        mean = everyone.mean(self.tell_control)
        server.state[self.at_server].copy_(self._part(mean, everyone) * mean["control"])
        server.state["weight"] = self._all(everyone)

    def tell_control(self, silo: Silo) -> Update:
        """Answer g_k, as far as the server was told of it; in float64, which travels as it is."""
        return silo.update(control=self.told(silo, self.own(silo).double(), self.untold(silo)))

    def untold(self, silo: Silo) -> Tensor | float:
        """Return what compression has left out of the shifts of g_k so far."""
        return silo.residual("shift")
