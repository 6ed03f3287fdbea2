"""SCAFFOLD: control variates correct the drift between silos."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.control_variates import Controlled
from mpifl.algorithms.fednova import gradients_held
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.silo.steps import Constant, LocalRun
from mpifl.wire import Update


class Scaffold(Controlled):
    """SCAFFOLD (Karimireddy et al. 2020, Algorithm 1): controls correct each silo's drift from the others.

    With option I the new control c_k+ is the gradient of all the silo's data at w. With option II it is c_k -
    c + (w - y_k) / (K eta), the mean of the gradients of the training. Option I corrects every step by full
    gradients at w. That is right only near w: keep eta * K small.

    `[cohort] weights` sets the weights of deltas. Controls have the weights of `Controlled`, or 1/N each as
    the paper prints it. The controls' weights decide the optimum. With unequal silos and equal controls, it
    is the optimum of sum_k F_k / N, even if deltas weigh n_k.

    The paper's steps are plain SGD. With momentum, option II divides by eta ||a||_1 (Wang et al. 2020)
    instead of K eta. So each gradient counts as often as the momentum repeats it. As before, no silo moves at
    the optimum.
    """

    needs_mean: ClassVar[str] = "the server's control variate must stay the mean of the silos'"
    accumulated: ClassVar[frozenset[str]] = frozenset({"shift"})
    ways: ClassVar[tuple[str, ...]] = ("scaffold",)
    at_server: ClassVar[str] = "c"
    at_silo: ClassVar[str] = "c"

    option: Literal["I", "II"] = "II"
    """How a silo's control is renewed: by a full gradient (I), or from the steps just taken (II)."""
    control_weights: Literal["objective", "uniform"] = "objective"
    """The weights of silos' controls in the server's control: those of the objective, or 1/N each as printed
    in the paper."""

    @property
    def alike(self) -> bool:
        """Whether controls have equal weights."""
        return self.control_weights == "uniform"

    def why_not_augmented(self) -> str:
        """Return the reason, with option I: controls are full gradients."""
        known = "with option I corrects steps by the gradient of the examples as they are"
        return known if self.option == "I" else ""

    def why_not_private(self) -> str:
        """Return the reason, with option I: it uses gradients of all examples."""
        return "takes gradients of all examples by option I; use option = 'II'" if self.option == "I" else ""

    def why_not_clocked(self) -> str:
        """Return the reason, with option I: it takes gradients of all examples beside its steps."""
        return self.why_not_private()

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Move w by the mean delta, and c by the shifts of the c_k."""
        state = server.state
        mean = cohort.mean(self.train_corrected, w=state["w"], c=state["c"])
        self.server_optimizer.step(state, mean["delta"])
        self.shift(server, cohort, mean, mean["shift"])
        return mean.scalars

    def train_corrected(self, silo: Silo, w: Tensor, c: Tensor) -> Update:
        """Train with every gradient corrected by c - c_k, and renew c_k."""
        own = self.own(silo)
        run = silo.train_locally(w, self.local, correct=Constant(c - own))
        shift = self._control(silo, w, run, correction=c - own) - own
        silo.keep(c=own + shift)
        return silo.update(delta=run.delta, shift=self.told(silo, shift), train_loss=run.loss)

    def _control(self, silo: Silo, w: Tensor, run: LocalRun, correction: Tensor) -> Tensor:
        if self.option == "I":
            return silo.gradient(w).delta
        held = gradients_held(run.steps, self.local.momentum)
        return -run.delta / (held * self.local.at_round(silo.round).lr) - correction
