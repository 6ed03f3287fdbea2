"""A proximal term keeps silos that do much or little work near the model they started from."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from mpifl.algorithms.cohort_protocol import Cohort
from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.silo import Silo
from mpifl.silo.steps import LocalRun, Proximal, steps_of
from mpifl.wire import Purpose, Update

NonNegative = Annotated[float, Field(ge=0)]


class FedProx(FedAvg):
    """FedProx (Li et al. 2020, Algorithm 2): each silo minimises h_k(w; w_t) = F_k(w) + (mu/2) ||w - w_t||^2
    inexactly.

    How much work a silo does is `[local]`'s. By `straggler_chance` some do less; their solutions count.

    With `adaptive`, mu goes by the global model's training loss over all silos (appendix C.3.3). It rises by
    `mu_step` where that has risen since the round before. It falls by `mu_step` where that has fallen for
    `patience` rounds in a row. A loss that stays as it was does neither, and ends a row.

    With `measure_gamma`, every silo reports how inexact it was, gamma = ||grad h_k(w_k)|| / ||grad h_k(w_t)||
    (Definition 2), at the cost of two more full gradients. Reported are `gamma`, the silos' mean in a round,
    and `gamma_silos`, each one's.

    With a target `gamma` a silo trains until its solution is gamma-inexact. It looks after each pass over its
    examples, at the cost of a full gradient, and ends with the steps of `[local]` at the latest. The round
    reports the silos' mean `steps`, and how inexact they have become.
    """

    unlike_fedavg: ClassVar[str] = "is pulled towards the model"

    mu: NonNegative = 0.01
    """The strength of the pull towards the global model; 0 is FedAvg."""
    adaptive: bool = False
    """Adapt mu to the training loss of the global model, for which all silos are asked in each round."""
    mu_step: NonNegative = 0.1
    """By how much adaptive moves mu at a time."""
    patience: PositiveInt = 5
    """After how many falls of the loss in a row adaptive lowers mu."""
    gamma: Annotated[float, Field(gt=0, lt=1)] | None = None
    """How inexact a silo is to be, which ends its training before `[local]` does."""
    measure_gamma: bool = False
    """Report how inexact each silo was, at the cost of two more full gradients."""

    @model_validator(mode="after")
    def _ends_alone(self) -> FedProx:
        if self.gamma is not None and self.local.batch_silos:
            what = "ends each silo's training by itself, and [local] batch_silos takes several at once"
            raise ValueError(f"gamma = {self.gamma:g}: {what}; leave one of them out")
        return self

    @property
    def _measuring(self) -> str:
        """The key by which gamma is measured; "" if none does."""
        return "gamma" * (self.gamma is not None) or "measure_gamma" * self.measure_gamma

    def why_not_private(self) -> str:
        """Say that it goes by losses, or by gradients of all examples, where it does."""
        if self.adaptive:
            return "adapts mu to the training loss, and a loss is a query; leave adaptive out"
        key = self._measuring
        return f"measures gamma by gradients of all examples; leave {key} out" if key else ""

    def why_not_noised(self) -> str:
        """Say that it goes by losses, or tells of gamma, where it does."""
        if self.adaptive:
            return "it adapts mu to the training loss, and a loss is a query; leave adaptive out"
        key = self._measuring
        return f"it reports gamma, and gamma is a query; leave {key} out" if key else ""

    def begin(self, server: Server) -> None:
        """Start from mu, whether or not it will be adapted."""
        super().begin(server)
        server.state["mu"] = self.mu

    def why_not_augmented(self) -> str:
        """Say that gamma is of gradients of everything."""
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
        """Return that silos which tell their loss are not training."""
        return "evaluation" if work == "tell_loss" else super().purpose(work)

    def tell_loss(self, silo: Silo, w: Tensor) -> Update:
        """Tell F_k(w)."""
        return silo.update(global_loss=silo.loss(w))

    def train_near(self, silo: Silo, w: Tensor, mu: float) -> Update:
        """Train on the proximal objective, as long as `[local]` says or until that is solved well enough."""
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
        """Return how many steps a pass over a silo's examples takes."""
        return steps_of(self.local.at_round(silo.round).lasting(epochs=1), silo.examples)

    def _adapted(self, state: dict[str, Any], loss: float) -> dict[str, float | int]:
        before = state.get("loss", loss)  # the first round has none to have risen or fallen from
        falls = state.get("falls", 0) + 1 if loss < before else 0
        if loss > before:
            return {"mu": state["mu"] + self.mu_step, "loss": loss, "falls": 0}
        if falls < self.patience:
            return {"mu": state["mu"], "loss": loss, "falls": falls}
        return {"mu": max(state["mu"] - self.mu_step, 0.0), "loss": loss, "falls": 0}


class _Inexactness:
    """How inexactly a silo has solved its proximal problem: gamma of Definition 2."""

    def __init__(self, silo: Silo, w: Tensor, mu: float, every: int, target: float | None) -> None:
        self._silo, self._w, self._mu, self._every, self._target = silo, w, mu, every, target
        self._first = float(silo.gradient(w).delta.norm()) if target is not None else None
        self._known: tuple[int, float | None] = (0, None)

    def enough(self, steps: int) -> bool:
        """Return whether the lent model is a gamma-inexact solution; looked at after each pass."""
        if steps % self._every:
            return False
        statistics = self._silo.model.statistics.read()
        self._known = steps, self._found(self._silo.model.trained)
        self._silo.model.statistics.write(statistics)
        assert self._target is not None
        return self._known[1] is None or self._known[1] <= self._target

    def at_end(self, run: LocalRun) -> float | None:
        """Return gamma of what a training has come to; None where the silo has begun at its optimum."""
        steps, gamma = self._known
        return gamma if steps == run.steps else self._found(run.end.clone())

    def _found(self, end: Tensor) -> float | None:
        left = self._silo.gradient(end).delta.add_(end - self._w, alpha=self._mu).norm()
        if self._first is None:
            self._first = float(self._silo.gradient(self._w).delta.norm())
        return float(left) / self._first if self._first else None
