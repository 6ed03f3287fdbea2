"""Generalised linear models by Newton's method, from exact sums over all silos' examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat, PrivateAttr
from torch import Tensor, nn

from mpifl.algorithms import Cohort, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.silo import Silo
from mpifl.wings.analysis import exact_products as exact
from mpifl.wings.analysis.coefficients import Fit, compared_with, independent, inverted
from mpifl.wings.analysis.families import FAMILIES, OutcomeModel
from mpifl.wings.analysis.federation_columns import levels_of, told_of
from mpifl.wings.analysis.score_sums import RowSums, ScoreSums
from mpifl.wings.analysis.whole_sums import WholeSums, kind_of
from mpifl.wire import Update, summed

INTERCEPT = "(intercept)"
CERTAIN = 1e-6
"""A log-likelihood of a row, in magnitude, below which all outcomes are told for certain."""
CHANGED = frozenset({"loss", "weights", "gamma", "mean", "deviation", "delta"})
"""Keys of tasks by which the loss is no likelihood of the outcome, or of another outcome."""


class Newton(WholeSums):
    """Fisher scoring for a generalised linear model with its canonical link, which is Newton's method
    (McCullagh & Nelder 1989, section 2.5).

    Silo k sends its part of the score X^T (y - mu) and of the information X^T V X. Their sums over silos are
    exact, so all bits are those of one silo with all rows. The server solves for the step. Columns that
    follow from the columns before them are left out, as R's `glm` does, and so is each category's first
    level. The task says the family: `binary` is
    logistic regression, `regression` is linear regression. The model is `logreg`.
    """

    seedless: ClassVar[bool] = True
    own_step: ClassVar[str] = "server solves for the step"
    tasks: ClassVar[tuple[str, ...]] = tuple(FAMILIES)
    """The tasks that it has a model of the outcome for."""
    elsewhere: ClassVar[str] = "; survival has [algorithm] name = 'cox'"
    """What a refusal of another task says at its end."""

    ridge: NonNegativeFloat = 0.0
    """The penalty: ridge / 2 times the sum of squared coefficients without the intercept."""
    damping: NonNegativeFloat = 0.0
    """A number that is added to the diagonal of the information: shorter steps to the same solution."""

    _names: tuple[str, ...] = PrivateAttr(())
    _deviations: dict[int, float] = PrivateAttr({})
    """By column: the deviation that is its unit, where the shards standardised it."""

    def for_federation(self, spec: AnySpec) -> Newton:
        """Return the algorithm with the names of the federation's columns."""
        found = super().for_federation(spec)
        assert isinstance(found, Newton)
        found._names = (INTERCEPT, *(spec.feature_names or ()))
        units, _ = told_of(spec, found._names)
        found._deviations = {nth: unit.deviation for nth, unit in units.items()}
        return found

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that there is one coefficient for each column, and a family for the task.

        Raises:
            InputError: there is not.
        """
        where, tasks = (
            f"[algorithm] name = '{type(self).__name__.lower()}'",
            " or ".join(map(repr, self.tasks)),
        )
        shapes = [tuple(p.shape) for p in module.parameters()]
        if len(shapes) != 2 or shapes != [(1, shapes[0][-1]), (1,)]:
            what = "fits a coefficient for each column, and an intercept, to one outcome"
            raise InputError(f"{where}: {what}; use [model] name = 'logreg' with [task] name = {tasks}")
        if (
            kind_of(self.task) not in self.tasks
            or self.task.model_dump(exclude_defaults=True).keys() & CHANGED
        ):
            what = f"takes the likelihood of its family; use [task] name = {tasks}"
            raise InputError(f"{where}: {what}, without {', '.join(sorted(CHANGED))}{self.elsewhere}")

    @property
    def family(self) -> OutcomeModel:
        """The model of the outcome."""
        return FAMILIES[kind_of(self.task)]

    def outcome(self, y: Any) -> Tensor:
        """Return outcomes as one column, float64 of shape [n]."""
        found: Tensor = y.double().reshape(len(y))
        return found

    def begin(self, server: Server) -> None:
        """Start from coefficients of 0."""
        server.state["w"] = torch.zeros_like(server.model.shared)
        server.state["beta"] = torch.zeros(len(server.model.shared), dtype=torch.float64)

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of the sums: of exponents, and of products in words."""
        p = len(server.state["beta"])
        return {
            "exponents": (p + 1) * exact.EXPONENTS,
            "totals": exact.words_of(p),
            "products": ScoreSums.words(p),
        }

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for the sums at the coefficients, and take Newton's step."""
        state = server.state
        found = {} if "tops" in state else self._measured(cohort, len(state["beta"]))
        beta, centre = state["beta"], {**found, **state}["centre"]
        sums = self.row_sums(cohort, {**found, **state})
        if "kept" not in state:
            levels = self._levels(len(beta))
            kept = independent(sums.information, levels)
            compared = compared_with(sums.information, kept, levels)
            found |= {"kept": kept.to(torch.uint8), "compared": compared.to(torch.uint8)}
        kept = {**found, **state}["kept"].bool()
        self._check_finite(sums, state.get("likelihood"))
        moved = self._step(sums, beta, kept, centre)
        state |= {**found, **moved}
        state["w"] = torch.cat([state["beta"][1:], _uncentred(state["beta"], centre)[:1]]).float()
        fit = self.fit(server)
        assert fit is not None
        return {"decrement": float(state["decrement"]), **fit.figures()}

    def row_sums(self, cohort: Cohort, state: Mapping[str, Any]) -> RowSums:
        """Ask for the sums over all silos' rows at the coefficients of a state."""
        beta, tops, centre = (state[key] for key in ("beta", "tops", "centre"))
        mean = cohort.mean(self.add_up, beta=beta, tops=tops, centre=centre)
        return self._score_sums(beta, tops).unpacked(self.of_all(cohort, mean, "products"))

    def _score_sums(self, beta: Tensor, tops: Tensor) -> ScoreSums:
        return ScoreSums(FAMILIES[kind_of(self.task)], beta, tops)

    def _measured(self, cohort: Cohort, p: int) -> dict[str, Tensor]:
        """Return each column's mean over all silos, and powers of two above what is left without it.

        Steps are solved for columns without their means. A column far from 0, such as a date, then keeps
        its digits.
        """
        centre = torch.zeros(p, dtype=torch.float64)
        tops = exact.tops_of(self.of_all(cohort, cohort.mean(self.measure), "exponents"))
        totals = cohort.mean(self.total, tops=tops)
        two = tops.new_full((1,), 2.0)
        summed = exact.unpacked(self.of_all(cohort, totals, "totals"), two, tops[:-1])[0]
        centre[1:] = summed[1:] / summed[0]
        centred = cohort.mean(self.measure_centred, centre=centre)
        return {"tops": exact.tops_of(self.of_all(cohort, centred, "exponents")), "centre": centre}

    def _check_finite(self, sums: RowSums, before: float | None) -> None:
        """Check that the likelihood has a maximum that steps come nearer to.

        Raises:
            InputError: it has none.
        """
        if not self.family.fixed_dispersion or self.ridge:
            return
        if sums.likelihood > -CERTAIN * sums.rows:
            what = "the columns tell every outcome, or all outcomes are the same, so no coefficient is finite"
            raise InputError(f"{what}; leave out what separates them, or use [algorithm] ridge")
        if before is not None and sums.likelihood < before - abs(before) / 2 - 1:
            what = f"the log-likelihood fell from {before:.6g} to {sums.likelihood:.6g}: steps are too long"
            raise InputError(
                f"{what}; use [algorithm] ridge or damping, or leave out what separates outcomes"
            )

    def _step(self, sums: RowSums, beta: Tensor, kept: Tensor, centre: Tensor) -> dict[str, Any]:
        """Return the entries of the server's state after the step from beta, shape [p].

        The standard errors are those at beta. So all belong together once the steps are small.
        """
        penalty = torch.full_like(beta, self.ridge)
        penalty[0] = 0.0  # of the intercept
        information, score = sums.information + torch.diag(penalty), sums.score - penalty * beta
        names, free = self._named(len(beta)), sums.rows - int(kept.sum())
        if free <= 0:
            what = f"{sums.rows} training examples for {len(beta)} coefficients"
            raise InputError(f"{what}: errors need more examples than that; leave columns out")
        if not self.family.fixed_dispersion and not sums.squares:
            raise InputError(
                "the outcome is the same everywhere, or columns give it exactly: nothing is left"
            )
        inverse = inverted(information, kept, names)
        damped = inverted(information + self.damping * torch.eye(len(beta)), kept, names)
        step = damped @ score
        back = _uncentring(centre)
        spread = (back @ inverse @ back.T).diag()
        dispersion = 1.0 if self.family.fixed_dispersion else sums.squares / free
        errors = torch.where(kept, (spread * dispersion).sqrt(), torch.nan)
        likelihood = self.family.likelihood(sums.likelihood, sums.rows, sums.squares)
        found = {"beta": beta + step, "errors": errors, "decrement": float(step @ score)}
        return found | {"dispersion": dispersion, "likelihood": likelihood, "examples": sums.rows}

    def fit(self, server: Server) -> Fit | None:
        """Return the fitted model; None before the first round."""
        state = server.state
        if "errors" not in state:
            return None
        beta, names = _uncentred(state["beta"], state["centre"]), self._named(len(state["beta"]))
        of = state["likelihood"], int(state["examples"]), self.family, state["dispersion"]
        return Fit(names, beta, state["errors"], *of, self._against(state["compared"]))

    def _against(self, compared: Tensor) -> dict[int, int]:
        """Return for each column of a level the one that it is compared with."""
        found = dict[int, int]()
        for places in self._levels(len(compared)):
            for base in (nth for nth in places if compared[nth]):
                found |= {nth: base for nth in places if nth != base}
        return found

    def told(self, server: Server) -> dict[str, Any]:
        """Return the table of coefficients."""
        if (fit := self.fit(server)) is None:
            return {}
        told: dict[str, Any] = {"coefficients": fit.table(), "rows": fit.rows}
        for nth, deviation in self._deviations.items():
            told["coefficients"][nth]["deviation"] = deviation
        return told | ({"ridge": self.ridge} if self.ridge else {})

    def measure(self, silo: Silo) -> Update:
        """Send how many numbers of each column have each exponent.

        Raises:
            InputError: there are too many rows for exact sums.
        """
        if silo.examples > exact.MOST_ROWS:
            what = f"{silo.examples:,} training examples, and exact sums take {exact.MOST_ROWS:,} of a silo"
            raise InputError(f"{what}; cut it into more silos")
        return self.measure_centred(silo, torch.zeros((), dtype=torch.float64))

    def measure_centred(self, silo: Silo, centre: Tensor) -> Update:
        """Send how many numbers of each column, less its centre, have each exponent."""
        blocks = (torch.cat([columns, y[:, None]], 1) for columns, y in self._blocks(silo, centre))
        return silo.update(
            exponents=summed(torch.as_tensor(sum(exact.exponent_counts(block) for block in blocks)))
        )

    def total(self, silo: Silo, tops: Tensor) -> Update:
        """Send the sums of the columns; see `ScoreSums` for tops."""
        two, none = tops.new_full((1,), 2.0), torch.zeros((), dtype=torch.float64)
        parts = (
            exact.products(columns[:, :1], columns, two, tops[:-1]) for columns, _ in self._blocks(silo, none)
        )
        return silo.update(totals=summed(exact.packed(torch.as_tensor(sum(parts)))))

    def add_up(self, silo: Silo, beta: Tensor, tops: Tensor, centre: Tensor) -> Update:
        """Send the silo's sums at the coefficients beta, shape [p]; see `ScoreSums` for tops."""
        sums = self._score_sums(beta, tops)
        return silo.update(products=summed(sums.of(self._blocks(silo, centre))))

    def _blocks(self, silo: Silo, centre: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the training examples in blocks, less the columns' centre, shape [p] or []; see `Blocks`."""
        for x, y in silo.split("train").in_order(exact.BLOCK):
            columns = x.double().flatten(1)
            whole = torch.cat([columns.new_ones(len(columns), 1), columns], 1)
            yield whole - centre, self.outcome(y)

    def _named(self, p: int) -> tuple[str, ...]:
        return self._names if len(self._names) == p else (INTERCEPT, *(f"x{j}" for j in range(p - 1)))

    def _levels(self, p: int) -> list[list[int]]:
        """Return the columns of each variable's levels, in the order of the levels."""
        return [list(places) for places in levels_of(self._named(p)).values()]


def _uncentring(centre: Tensor) -> Tensor:
    """Return the matrix that gives the coefficients of the columns as they are, shape [p, p]."""
    back = torch.eye(len(centre), dtype=torch.float64)
    back[0] -= centre
    return back


def _uncentred(beta: Tensor, centre: Tensor) -> Tensor:
    """Return the coefficients of the columns as they are."""
    return torch.cat([(beta[:1] - (beta * centre).sum()), beta[1:]])
