"""FedProx: a proximal term keeps each silo near the model that it started from."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.silo.steps import LocalRun, Proximal, refuse_idle, steps_of
from mpifl.wire import Purpose, Update

NonNegative = Annotated[float, Field(ge=0)]


class FedProx(FedAvg):
    """FedProx (Li et al. 2020, Algorithm 2): each silo minimises h_k(w; w_t) = F_k(w) + (mu/2) ||w - w_t||^2
    inexactly.

    `[local]` sets how much work a silo does. With `straggler_chance` some silos do less, and their solutions
    count.

    With `adaptive`, mu follows the global model's training loss over all silos (appendix C.3.3). mu rises by
    `mu_step` if the loss has risen since the last round. mu falls by `mu_step` if the loss has fallen for
    `patience` rounds in a row. An unchanged loss does neither and ends the row.

    With `measure_gamma`, every silo reports its inexactness gamma = ||grad h_k(w_k)|| / ||grad h_k(w_t)||
    (Definition 2). This costs two more full gradients. A round reports `gamma`, the silos' mean, and
    `gamma_silos`, each silo's value.

    With a target `gamma`, a silo trains until its solution is gamma-inexact. It checks this after each pass
    over its examples, which costs a full gradient. It ends after the steps of `[local]` at the latest. A
    round reports the silos' mean `steps`, and their gamma.
    """

    unlike_fedavg: ClassVar[str] = "is pulled towards the model"

    mu: NonNegative = 0.01
    """The strength of the pull towards the global model; 0 is FedAvg."""
    adaptive: bool = False
    """Adapt mu to the training loss of the global model, which all silos send in each round."""
    mu_step: NonNegative = 0.1
    """By how much adaptive changes mu at a time."""
    patience: PositiveInt = 5
    """After how many falls of the loss in a row adaptive decreases mu."""
    gamma: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The target inexactness of a silo, which may end its training before `[local]` does."""
    measure_gamma: bool = False
    """Report each silo's inexactness, at the cost of two more full gradients."""

    @model_validator(mode="after")
    def _ends_alone(self) -> FedProx:
        if self.gamma is not None and self.local.batch_silos:
            what = "ends each silo's training by itself, and [local] batch_silos takes several at once"
            raise ValueError(f"gamma = {self.gamma:g}: {what}; leave one of them out")
        return self

    @model_validator(mode="after")
    def _adapts(self) -> FedProx:
        if not self.adaptive:
            why = "says how adaptive changes mu, which stays as it is; use adaptive = true, or leave it out"
            refuse_idle(self, ["mu_step", "patience"], why)
        return self

    @property
    def _measuring(self) -> str:
        """The key that makes silos measure gamma; "" if none does."""
        return "gamma" * (self.gamma is not None) or "measure_gamma" * self.measure_gamma

    def why_not_private(self) -> str:
        """Return the reason, if silos send losses or measure gamma: both use all examples."""
        if self.adaptive:
            return "adapts mu to the training loss, and a loss is a query; leave adaptive out"
        key = self._measuring
        return f"measures gamma by gradients of all examples; leave {key} out" if key else ""

    def why_not_clocked(self) -> str:
        """Return the reason, if silos measure gamma: by gradients of all examples."""
        key = self._measuring
        return f"measures gamma by gradients of all examples; leave {key} out" if key else ""

    def why_not_noised(self) -> str:
        """Return the reason, if silos send losses or gamma."""
        if self.adaptive:
            return "it adapts mu to the training loss, and a loss is a query; leave adaptive out"
        key = self._measuring
        return f"it reports gamma, and gamma is a query; leave {key} out" if key else ""

    def begin(self, server: Server) -> None:
        """Start from the configured mu."""
        super().begin(server)
        server.state["mu"] = self.mu

    def why_not_augmented(self) -> str:
        """Return the reason: gamma uses gradients of all examples as they are."""
        return "measures gamma on the examples as they are" if self._measuring else ""

    def round(self, server: Server, cohort: Cohort) -> dict[str, Any]:
        """Move w along the weighted mean of the silos' deltas, and adapt mu."""
        state = server.state
        told = self._told(cohort, state["w"]) if self.adaptive else {}
        adapted = self._adapted(state, told["global_loss"]) if told else {"mu": state["mu"]}
        mean = cohort.mean(self.train_near, w=state["w"], mu=adapted["mu"])
        self.server_optimizer.step(state, mean["delta"])
        state |= adapted
        found = {"gamma_silos": mean.of_silos("gamma")} if self._measuring else {}
        return {**mean.scalars, **told, "mu": adapted["mu"], **found}

    def _told(self, cohort: Cohort, w: Tensor) -> dict[str, float]:
        return cohort.of(range(cohort.population)).mean(self.tell_loss, w=w).scalars

    def purpose(self, work: str) -> Purpose:
        """Return "evaluation" for `tell_loss`, since silos do not train in it."""
        return "evaluation" if work == "tell_loss" else super().purpose(work)

    def tell_loss(self, silo: Silo, w: Tensor) -> Update:
        """Send F_k(w)."""
        return silo.update(global_loss=silo.loss(w))

    def train_near(self, silo: Silo, w: Tensor, mu: float) -> Update:
        """Train on the proximal objective, until the steps of `[local]` are done or the solution is good
        enough."""
        of = _Inexactness(silo, w, mu, self._every(silo), self.gamma)
        enough = of.enough if self.gamma is not None else None
        run = silo.train_locally(w, self.local, correct=Proximal(w, mu), enough=enough)
        update = silo.update(delta=run.delta, train_loss=run.loss)
        if self._measuring:
            gamma = of.at_end(run)
            update.scalars |= {} if gamma is None else {"gamma": gamma}
        if self.gamma is not None:
            update.scalars["steps"] = run.steps
        return update

    def _every(self, silo: Silo) -> int:
        """Return the number of steps in a pass over a silo's examples."""
        return steps_of(self.local.at_round(silo.round).lasting(epochs=1), silo.examples)

    def _adapted(self, state: dict[str, Any], loss: float) -> dict[str, float | int]:
        before = state.get("loss", loss)  # the first round has no earlier loss
        falls = state.get("falls", 0) + 1 if loss < before else 0
        if loss > before:
            return {"mu": state["mu"] + self.mu_step, "loss": loss, "falls": 0}
        if falls < self.patience:
            return {"mu": state["mu"], "loss": loss, "falls": falls}
        return {"mu": max(state["mu"] - self.mu_step, 0.0), "loss": loss, "falls": 0}


class _Inexactness:
    """The inexactness gamma of a silo's solution (Definition 2)."""

    def __init__(self, silo: Silo, w: Tensor, mu: float, every: int, target: float | None) -> None:
        self._silo, self._w, self._mu, self._every, self._target = silo, w, mu, every, target
        self._first = float(silo.gradient(w).delta.norm()) if target is not None else None
        self._known: tuple[int, float | None] = (0, None)

    def enough(self, steps: int) -> bool:
        """Return whether the lent model is a gamma-inexact solution; checked after each pass only."""
        if steps % self._every:
            return False
        statistics = self._silo.model.statistics.read()
        self._known = steps, self._found(self._silo.model.trained)
        self._silo.model.statistics.write(statistics)
        assert self._target is not None
        return self._known[1] is None or self._known[1] <= self._target

    def at_end(self, run: LocalRun) -> float | None:
        """Return gamma at the end of a training; None if the silo started at its optimum."""
        steps, gamma = self._known
        return gamma if steps == run.steps else self._found(run.end.clone())

    def _found(self, end: Tensor) -> float | None:
        left = self._silo.gradient(end).delta.add_(end - self._w, alpha=self._mu).norm()
        if self._first is None:
            self._first = float(self._silo.gradient(self._w).delta.norm())
        return float(left) / self._first if self._first else None
