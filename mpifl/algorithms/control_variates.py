"""Control variates: each silo keeps a vector, the server keeps their weighted sum, and both sides add up its
changes."""

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
    """An algorithm with control variates: silo k keeps g_k, 0 at first. The server keeps h = sum_k p_k g_k
    over all silos.

    p_k is silo k's weight in the objective: n_k / n, or 1/N if `[cohort]` draws and counts all silos equally.
    At the optimum of sum_k p_k F_k each g_k is its silo's gradient and h = 0, so no silo moves. So h decides
    which optimum it is; the weights of deltas decide only the way there. Silos that are drawn by n_k and
    counted equally also weigh n_k in h, since E[delta] then weighs silo k by p_k. h is a sum over all silos,
    not an estimate from the drawn ones. So it adds each shift times p_k, however often the silo is drawn.

    Attributes:
        at_server, at_silo: The names of h in `server.state` and of g_k in `silo.state`.
    """

    realigning: ClassVar[frozenset[str]] = frozenset({"tell_control"})
    at_server: ClassVar[str]
    at_silo: ClassVar[str]

    @property
    def alike(self) -> bool:
        """Whether p_k is 1/N in h, whatever the weights of the objective."""
        return False

    def begin(self, server: Server) -> None:
        """Start with control variates of zero."""
        super().begin(server)
        server.state[self.at_server] = torch.zeros_like(server.state["w"])

    def own(self, silo: Silo) -> Tensor:
        """Return g_k, shape [P]."""
        own: Tensor | None = silo.state.get(self.at_silo)
        return torch.zeros_like(silo.model.shared) if own is None else own

    def shift(self, server: Server, cohort: Cohort, mean: Mean, shift: Tensor) -> None:
        """Move h by n_S / n (or |S| / N) times the mean shift of the controls of the silos that answered."""
        server.state[self.at_server] += self._part(mean, cohort) * shift
        server.state["weight"] = self._all(cohort)

    def told(self, silo: Silo, control: Tensor, untold: Tensor | float = 0.0) -> Tensor | Uniform:
        """Return a silo's control or its shift, with the weight for the mean, minus the part that was not
        sent yet."""
        return uniform(control - untold) if self.alike else silo.importance * control - untold

    def _all(self, cohort: Cohort) -> float:
        """Return the weight of all silos in h."""
        return float(cohort.population) if self.alike else cohort.weight

    def _part(self, mean: Mean, cohort: Cohort) -> float:
        """Return the share of the weight in h that belongs to silos that answered."""
        return (len(mean) if self.alike else mean.weight) / self._all(cohort)

    def aligned(self, server: Server, everyone: Cohort) -> bool:
        """Return whether h weighs the g_k as the objective does. States without a noted weight counted all
        silos equally."""
        return bool(server.state.get("weight", everyone.population) == self._all(everyone))

    def realign(self, server: Server, everyone: Cohort) -> None:
        """Set h to the sum of p_k g_k over the silos' current g_k; with another h, training would miss the
        optimum."""
        mean = everyone.mean(self.tell_control)
        server.state[self.at_server].copy_(self._part(mean, everyone) * mean["control"])
        server.state["weight"] = self._all(everyone)

    def tell_control(self, silo: Silo) -> Update:
        """Send g_k minus the part that was not sent yet, in float64, which codecs leave unchanged."""
        return silo.update(control=self.told(silo, self.own(silo).double(), self.untold(silo)))

    def untold(self, silo: Silo) -> Tensor | float:
        """Return the part of the shifts of g_k that compression has left out so far."""
        return silo.residual("shift")
