"""Newton's method for a model of the outcome, from exact sums over all silos' rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat, PrivateAttr
from torch import Tensor, nn

from mpifl.algorithms import Cohort, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.silo import Silo
from mpifl.wings.analysis import (
    EXACT,
    WholeSums,
    exact_products as exact,
    given_of,
    kind_of,
    levels_of,
    told_of,
)
from mpifl.wings.analysis.regression.coefficients import Fit, against_of, compared_with, independent
from mpifl.wings.analysis.regression.families import OutcomeModel
from mpifl.wings.analysis.regression.fit_moments import moments_told, spread_of
from mpifl.wings.analysis.regression.newton_step import (
    GROWN,
    NewtonStep,
    check_finite,
    newton_step,
    uncentred,
)
from mpifl.wings.analysis.regression.score_sums import RowSums, columns_of
from mpifl.wings.analysis.regression.silo_fits import SiloFits, own_fit
from mpifl.wire import MOST_SCALARS, Update, summed

INTERCEPT = "(intercept)"
CHANGED = frozenset({"loss", "weights", "gamma", "ignore", "mean", "deviation", "delta"})
"""Keys of tasks by which the loss is no likelihood of the outcome of all rows, or of another outcome."""


class NewtonFit(WholeSums):
    """A model of the outcome that is fitted by Newton's method.

    Silo k sends its part of the score and of the information. Their sums over silos are exact, and the server
    solves for the step. Columns that follow from the columns before them are left out, as R's `glm` does, and
    so is each category's first level.
    """

    seedless: ClassVar[bool] = True
    own_step: ClassVar[str] = "server solves for the step"
    not_private = f"{EXACT}; use 'fedavg' for a model of the columns, or 'dptable' for counts and means"
    not_noised = not_private
    tasks: ClassVar[tuple[str, ...]]
    """The tasks that it has a model of the outcome for."""
    elsewhere: ClassVar[str] = ""
    """What a refusal of another task says at its end."""

    ridge: NonNegativeFloat = 0.0
    """The penalty: ridge / 2 times the sum of squared coefficients without the intercept."""
    damping: NonNegativeFloat = 0.0
    """A number that is added to the diagonal of the information: shorter steps to the same solution."""
    by_silo: bool = False
    """Fit each silo's rows alone, too, and tell how far silos' coefficients part."""

    _names: tuple[str, ...] = PrivateAttr(())
    _deviations: dict[int, float] = PrivateAttr({})
    """By column: the deviation that is its unit, where the shards standardised it."""
    _silos: tuple[str, ...] = PrivateAttr(())

    def for_federation(self, spec: AnySpec) -> NewtonFit:
        """Return the algorithm with the names of the federation's columns.

        Raises:
            InputError: silos would have too much to tell.
        """
        found = super().for_federation(spec)
        assert isinstance(found, NewtonFit)
        found._names = (INTERCEPT, *(spec.feature_names or ()))
        found._silos = tuple(entry.name for entry in spec.silos)
        units, _ = told_of(spec, found._names)
        found._deviations = {nth: unit.deviation for nth, unit in units.items()}
        if self.by_silo and 2 * len(found._names) > MOST_SCALARS:
            what = f"tells two numbers of each column, and a silo tells up to {MOST_SCALARS:,}; leave it out"
            raise InputError(f"[algorithm] by_silo = true: {what}")
        return found

    def check(self, module: nn.Module, spec: AnySpec) -> None:
        """Check that there is one coefficient for each column, and a model of the task's outcome.

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
        if kind_of(self.task) not in self.tasks:
            what = f"takes the likelihood of its family; use [task] name = {tasks}{self.elsewhere}"
            raise InputError(f"{where}: {what}")
        for key, value in given_of(self.task).items():
            if key in CHANGED:
                what = f"'{type(self).__name__.lower()}' takes the likelihood of its family; leave it out"
                raise InputError(f"[task] {key} = {value!r}: {what}")

    @property
    @abstractmethod
    def family(self) -> OutcomeModel:
        """The model of the outcome."""

    @abstractmethod
    def outcome(self, y: Any) -> Tensor:
        """Return outcomes as one column, float64 of shape [n]."""

    @abstractmethod
    def row_sums(self, cohort: Cohort, state: Mapping[str, Any]) -> RowSums:
        """Ask for the sums over all silos' rows at the coefficients of a state."""

    @abstractmethod
    def own_sums(self, silo: Silo, beta: Tensor, tops: Tensor, centre: Tensor) -> RowSums:
        """Return the sums over a silo's rows alone.

        Raises:
            InputError: they do not exist.
        """

    @abstractmethod
    def own_start(self, silo: Silo) -> float:
        """Return the intercept from which a fit of a silo's rows alone begins.

        Raises:
            InputError: such a fit has none.
        """

    def given(self, p: int) -> dict[int, float]:
        """Return the coefficients of p columns that are not fitted, by column."""
        return {}

    def begin(self, server: Server) -> None:
        """Start from coefficients of 0."""
        server.state["w"] = torch.zeros_like(server.model.shared)
        server.state["beta"] = torch.zeros(len(server.model.shared), dtype=torch.float64)

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of the sums: of exponents, and of products in words."""
        p = len(server.state["beta"])
        return {"exponents": (p + 1) * exact.EXPONENTS, "totals": exact.words_of(p)}

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        """Ask for the sums at the coefficients, and take Newton's step."""
        state = server.state
        found = {} if "tops" in state else self._measured(cohort, len(state["beta"]))
        now = {**state, **found}
        sums = self.row_sums(cohort, now)
        if "kept" not in state:
            found |= self._columns_of(sums)
            if self.by_silo:
                found["own"] = self._own(cohort, {**now, **found})
            now |= found
        check_finite(self.family, sums, state.get("likelihood"), self.ridge)
        step = self._step(sums, now, state.get("step"))
        found |= step._asdict() | {"events": sums.events, "grown": step.grown(state, now["tops"][:-1])}
        state |= found
        beta = state["beta"]
        state["w"] = torch.cat([beta[1:], uncentred(beta, state["centre"])[:1]]).float()
        fit = self.fit(server)
        assert fit is not None
        return {"decrement": float(state["decrement"]), **fit.figures()}

    def _columns_of(self, sums: RowSums) -> dict[str, Tensor]:
        """Return which columns are fitted, and which levels others are compared with."""
        p, levels = len(sums.information), self._levels(len(sums.information))
        fitted = torch.ones(p, dtype=torch.float64)
        fitted[[*self.given(p)]] = 0.0
        information = sums.information * torch.outer(fitted, fitted)
        kept = independent(information, levels)
        compared = compared_with(information, kept, levels)
        told = {"kept": kept.to(torch.uint8), "compared": compared.to(torch.uint8)}
        return told | {"spread": spread_of(sums)}

    def _step(self, sums: RowSums, now: Mapping[str, Any], before: Tensor | None) -> NewtonStep:
        """Return Newton's step from what is known of all columns, after the step before it."""
        beta, kept, centre, tops = (now[key] for key in ("beta", "kept", "centre", "tops"))
        names, penalty = self._named(len(beta)), torch.full_like(beta, self.ridge)
        penalty[[0, *self.given(len(beta))]] = 0.0
        step = newton_step(
            self.family, sums, beta, kept.bool(), centre, penalty, damping=self.damping, names=names
        )
        step.check_settling(self.family, before, tops[:-1], names, self.ridge)
        return step

    def _measured(self, cohort: Cohort, p: int) -> dict[str, Tensor]:
        """Return each column's mean over all silos, powers of two above what is left without it, and the
        coefficients to begin from.

        Steps are solved for columns without their means. A column far from 0, such as a date, then keeps
        its digits.
        """
        centre, beta = torch.zeros(p, dtype=torch.float64), torch.zeros(p, dtype=torch.float64)
        tops = exact.tops_of(self.of_all(cohort, cohort.mean(self.measure), "exponents"))
        totals = cohort.mean(self.total, tops=tops)
        two = tops.new_full((1,), 2.0)
        sums = exact.unpacked(self.of_all(cohort, totals, "totals"), two, tops[:-1])[0]
        centre[1:] = sums[1:] / sums[0]
        for nth, coefficient in self.given(p).items():
            beta[nth] = coefficient
            centre[nth] = centre[nth] if coefficient else 0.0  # a weight is taken as it is
        centred = cohort.mean(self.measure_centred, centre=centre)
        tops = exact.tops_of(self.of_all(cohort, centred, "exponents"))
        return {"tops": tops, "centre": centre, "beta": beta}

    def _own(self, cohort: Cohort, now: Mapping[str, Any]) -> Tensor:
        """Ask for the fits of single silos; return estimates and errors, shape [2, silos, p]."""
        asked = {key: now[key].double() for key in ("beta", "tops", "centre", "kept")}
        mean = cohort.mean(self.describe, **asked)
        self.check_all(cohort, mean)
        fits = SiloFits.of(mean, len(now["beta"]))
        return torch.stack([fits.estimates, fits.errors])

    def fit(self, server: Server) -> Fit | None:
        """Return the fitted model; None before the first round."""
        state = server.state
        if "errors" not in state:
            return None
        p, beta = len(state["beta"]), uncentred(state["beta"], state["centre"])
        of = state["likelihood"], int(state["examples"]), self.family, state["dispersion"]
        against = against_of(state["compared"], self._levels(p))
        return Fit(self._named(p), beta, state["errors"], *of, against, self.given(p))

    def told(self, server: Server) -> dict[str, Any]:
        """Return the table of coefficients."""
        if (fit := self.fit(server)) is None:
            return {}
        beside = {nth: {"deviation": deviation} for nth, deviation in self._deviations.items()}
        told: dict[str, Any] = {"rows": fit.rows} | ({"ridge": self.ridge} if self.ridge else {})
        if self.by_silo:
            fits = SiloFits(*server.state["own"])
            for nth, figures in fits.figures(server.state["kept"].bool()).items():
                beside[nth] = {**beside.get(nth, {}), **figures}
            told["own_fits"] = fits.told(self._silos, fit.names)
        if float(server.state["grown"].max()) >= GROWN:
            told["separating"] = fit.names[int(server.state["grown"].argmax())]
        moments = moments_told(server.state, fit.names, self._deviations, self.given(len(fit.names)))
        return {"coefficients": fit.table(beside), **told, **moments}

    def measure(self, silo: Silo) -> Update:
        """Send how many numbers of each column have each exponent.

        Raises:
            InputError: there are too many rows for exact sums, or a number is missing or infinite.
        """
        if silo.examples > exact.MOST_ROWS:
            what = f"{silo.examples:,} training examples, and exact sums take {exact.MOST_ROWS:,} of a silo"
            raise InputError(f"{what}; cut it into more silos")
        for columns, _ in self.blocks(silo, torch.zeros((), dtype=torch.float64)):
            self.check_rows(columns)
        return self.measure_centred(silo, torch.zeros((), dtype=torch.float64))

    def check_rows(self, columns: Tensor) -> None:
        """Check a block of a silo's rows, shape [n, p].

        Raises:
            InputError: a column has numbers that it may not have.
        """
        if not (finite := columns.isfinite()).all():
            name = self._named(columns.shape[1])[int(finite.all(0).long().argmin())]
            what = "has a number that is missing or infinite; fill it in, or leave the row out"
            raise InputError(f"column '{name}' {what}")

    def measure_centred(self, silo: Silo, centre: Tensor) -> Update:
        """Send how many numbers of each column, less its centre, have each exponent."""
        blocks = (torch.cat([columns, y[:, None]], 1) for columns, y in self.blocks(silo, centre))
        return silo.update(
            exponents=summed(torch.as_tensor(sum(exact.exponent_counts(block) for block in blocks)))
        )

    def total(self, silo: Silo, tops: Tensor) -> Update:
        """Send the sums of the columns; see `ScoreSums` for tops."""
        two, none = tops.new_full((1,), 2.0), torch.zeros((), dtype=torch.float64)
        parts = (
            exact.products(columns[:, :1], columns, two, tops[:-1]) for columns, _ in self.blocks(silo, none)
        )
        return silo.update(totals=summed(exact.packed(torch.as_tensor(sum(parts)))))

    def describe(self, silo: Silo, beta: Tensor, tops: Tensor, centre: Tensor, kept: Tensor) -> Update:
        """Send the silo's own fit: an estimate and an error of each column.

        Args:
            beta: Coefficients of 0, but for those that are not fitted, shape [p].
            kept: 1 for each column that is fitted, else 0.
        """

        def sums_at(beta: Tensor) -> RowSums:
            sums = self.own_sums(silo, beta, tops, centre)
            check_finite(self.family, sums, None, self.ridge)
            return sums

        def step_from(sums: RowSums, beta: Tensor, before: Tensor | None) -> NewtonStep:
            now = {"beta": beta, "kept": kept, "centre": centre, "tops": tops}
            return self._step(sums, now, before)

        def start() -> Tensor:
            return torch.cat([beta.new_tensor([self.own_start(silo)]), beta[1:]])

        return silo.update(**own_fit(start, sums_at, step_from, kept.bool(), centre))

    def blocks(self, silo: Silo, centre: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the training examples in blocks, less the columns' centre, shape [p] or []; see `Blocks`."""
        for x, y in silo.split("train").in_order(exact.BLOCK, shared=True):
            yield columns_of(x, centre), self.outcome(y)

    def _named(self, p: int) -> tuple[str, ...]:
        return self._names if len(self._names) == p else (INTERCEPT, *(f"x{j}" for j in range(p - 1)))

    def _levels(self, p: int) -> list[list[int]]:
        """Return the columns of each variable's levels, in the order of the levels."""
        return [list(places) for places in levels_of(self._named(p)).values()]
