"""Generalised linear models by Newton's method, from exact sums over all silos' examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat, PrivateAttr
from torch import Tensor, nn

from mpifl.algorithms import Algorithm, Cohort, Server
from mpifl.common import InputError, RoundLost
from mpifl.data.shards import AnySpec
from mpifl.learning.tasks import Task
from mpifl.silo import Silo
from mpifl.wings.analysis import exact_products as exact
from mpifl.wings.analysis.coefficients import Fit, independent, inverted
from mpifl.wings.analysis.families import FAMILIES, Family
from mpifl.wings.analysis.score_sums import RowSums, ScoreSums
from mpifl.wire import Mean, Update, summed

INTERCEPT = "(intercept)"
TASKS = " or ".join(f"'{name}'" for name in FAMILIES)
CHANGED = frozenset({"loss", "weights", "gamma", "mean", "deviation", "delta"})
"""Keys of tasks by which the loss is no likelihood of the outcome, or of another outcome."""


class Newton(Algorithm):
    """Fisher scoring for a generalised linear model with its canonical link, which is Newton's method
    (McCullagh & Nelder 1989, section 2.5).

    Silo k sends its part of the score X^T (y - mu) and of the information X^T V X. Their sums over silos are
    exact, so all bits are those of one silo with all rows. The server solves for the step. Columns that
    follow from the columns before them are left out, as R's `glm` does. The task says the family: `binary` is
    logistic regression, `regression` is linear regression. The model is `logreg`.
    """

    own_step: ClassVar[str] = "server solves for the step"
    needs_mean: ClassVar[str] = "the server solves equations of sums over all examples"
    unlike_fedavg: ClassVar[str] = "is a sum over all examples"
    ways: ClassVar[tuple[str, ...]] = ("newton",)
    not_clipped = "sums over examples have no bound that keeps their solution"
    not_augmented = "takes the examples as they are"
    not_private = "sends sums over all examples; use fedavg"
    not_noised = "sends sums over all examples, not a change of the model; use fedavg"
    not_clocked = "takes no steps over batches, and speeds are of such; use fedavg"

    ridge: NonNegativeFloat = 0.0
    """The penalty: ridge / 2 times the sum of squared coefficients without the intercept."""
    damping: NonNegativeFloat = 0.0
    """A number that is added to the diagonal of the information: shorter steps to the same solution."""

    _names: tuple[str, ...] = PrivateAttr(())

    def for_federation(self, spec: AnySpec) -> Newton:
        """Return the algorithm with the names of the federation's columns."""
        found = super().for_federation(spec)
        assert isinstance(found, Newton)
        found._names = (INTERCEPT, *(spec.feature_names or ()))
        return found

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that there is one coefficient for each column, and a family for the task.

        Raises:
            InputError: there is not.
        """
        where = "[algorithm] name = 'newton'"
        shapes = [tuple(p.shape) for p in module.parameters()]
        if len(shapes) != 2 or shapes != [(1, shapes[0][-1]), (1,)]:
            what = "fits a coefficient for each column, and an intercept, to one outcome"
            raise InputError(f"{where}: {what}; use [model] name = 'logreg' with [task] name = {TASKS}")
        if _kind(self.task) not in FAMILIES or self.task.model_dump(exclude_defaults=True).keys() & CHANGED:
            what = f"takes the likelihood of its family; use [task] name = {TASKS}"
            raise InputError(f"{where}: {what}, without {', '.join(sorted(CHANGED))}")

    @property
    def family(self) -> Family:
        """The family of the outcome."""
        return FAMILIES[_kind(self.task)]

    def begin(self, server: Server) -> None:
        """Start from coefficients of 0."""
        server.state["w"] = torch.zeros_like(server.model.shared)
        server.state["beta"] = torch.zeros(len(server.model.shared), dtype=torch.float64)

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of the sums: of exponents, and of products in words."""
        p = len(server.state["beta"])
        return {"exponents": (p + 1) * exact.EXPONENTS, "products": ScoreSums.words(p)}

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for the sums at the coefficients, and take Newton's step."""
        state, beta = server.state, server.state["beta"]
        if (tops := state.get("tops")) is None:
            tops = exact.tops_of(_of_all(cohort, cohort.mean(self.measure), "exponents"))
        asked = ScoreSums(self.family, beta, tops)
        mean = cohort.mean(self.add_up, beta=beta, tops=tops)
        sums = asked.unpacked(_of_all(cohort, mean, "products"))
        kept = independent(sums.information) if "kept" not in state else state["kept"].bool()
        moved = self._step(sums, beta, kept)
        state |= {"tops": tops, "kept": kept.to(torch.uint8), **moved}
        state["w"] = torch.cat([state["beta"][1:], state["beta"][:1]]).float()
        fit = self.fit(server)
        assert fit is not None
        return {"decrement": float(state["decrement"]), **fit.figures()}

    def _step(self, sums: RowSums, beta: Tensor, kept: Tensor) -> dict[str, Any]:
        """Return the entries of the server's state after the step from beta, shape [p].

        The standard errors are those at beta. So all belong together once the steps are small.
        """
        penalty = torch.full_like(beta, self.ridge)
        penalty[0] = 0.0  # of the intercept
        information, score = sums.information + torch.diag(penalty), sums.score - penalty * beta
        names = self._named(len(beta))
        if sums.rows <= int(kept.sum()):
            what = f"{sums.rows} training examples for {int(kept.sum())} coefficients"
            raise InputError(f"{what}: errors need more examples than that; leave columns out")
        inverse = inverted(information, kept, names)
        damped = inverted(information + self.damping * torch.eye(len(beta)), kept, names)
        step = damped @ score
        free = sums.rows - int(kept.sum())
        dispersion = 1.0 if self.family.fixed_dispersion else sums.squares / free
        errors = torch.where(kept, (inverse.diag() * dispersion).sqrt(), torch.nan)
        likelihood = self.family.likelihood(sums.likelihood, sums.rows, sums.squares)
        found = {"beta": beta + step, "errors": errors, "decrement": float(step @ score)}
        return found | {"dispersion": dispersion, "likelihood": likelihood, "examples": sums.rows}

    def fit(self, server: Server) -> Fit | None:
        """Return the fitted model; None before the first round."""
        state = server.state
        if "errors" not in state:
            return None
        beta, names = state["beta"], self._named(len(state["beta"]))
        of = state["likelihood"], int(state["examples"]), self.family, state["dispersion"]
        return Fit(names, beta, state["errors"], *of)

    def measure(self, silo: Silo) -> Update:
        """Send how many numbers of each column have each exponent."""
        if silo.examples > exact.MOST_ROWS:
            what = f"{silo.examples:,} training examples, and exact sums take {exact.MOST_ROWS:,} of a silo"
            raise InputError(f"{what}; cut it into more silos")
        counts = sum(
            exact.exponent_counts(torch.cat([columns, y[:, None]], 1)) for columns, y in _design(silo)
        )
        return silo.update(exponents=summed(torch.as_tensor(counts)))

    def add_up(self, silo: Silo, beta: Tensor, tops: Tensor) -> Update:
        """Send the silo's sums at the coefficients beta, shape [p]; see `ScoreSums` for tops."""
        sums = ScoreSums(self.family, beta, tops)
        return silo.update(products=summed(sums.of(_design(silo))))

    def _named(self, p: int) -> tuple[str, ...]:
        return self._names if len(self._names) == p else (INTERCEPT, *(f"x{j}" for j in range(p - 1)))


def _kind(task: Task) -> str:
    """Return a task's name; "" for a task of the user's own."""
    return str(getattr(task, "kind", ""))


def _of_all(cohort: Cohort, mean: Mean, name: str) -> Tensor:
    """Return a sum over all silos.

    Raises:
        RoundLost: not all have answered.
    """
    if len(mean) < cohort.population:
        raise RoundLost(f"{len(mean)} of {cohort.population} silos answered; newton takes sums over all")
    return mean[name]


def _design(silo: Silo) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the training examples in blocks; see `Blocks`."""
    for x, y in silo.split("train").in_order(exact.BLOCK):
        columns = x.double().flatten(1)
        yield torch.cat([columns.new_ones(len(columns), 1), columns], 1), y.double().reshape(len(y))
