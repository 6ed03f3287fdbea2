"""Generalised linear models by Newton's method, from exact sums over all silos' examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import PrivateAttr
from torch import Tensor

from mpifl.algorithms import Cohort, Server
from mpifl.common import InputError, choices
from mpifl.data.shards import AnySpec
from mpifl.silo import Silo
from mpifl.wings.analysis import exact_products as exact, kind_of
from mpifl.wings.analysis.regression.families import FAMILIES, Family, wide_exp
from mpifl.wings.analysis.regression.newton_fit import NewtonFit
from mpifl.wings.analysis.regression.score_sums import RowSums, ScoreSums, predictor, reach_of
from mpifl.wire import Update, summed


class Newton(NewtonFit):
    """Fisher scoring for a generalised linear model with its canonical link, which is Newton's method
    (McCullagh & Nelder 1989, section 2.5).

    Silo k sends its part of the score X^T (y - mu) and of the information X^T V X. Their sums over silos are
    exact, so all bits are those of one silo with all rows. The server solves for the step. Columns that
    follow from the columns before them are left out, as R's `glm` does, and so is each category's first
    level. The task says the family: `binary` is logistic regression, `regression` is linear regression,
    `counts` is Poisson regression. The model is `logreg`.
    """

    tasks: ClassVar[tuple[str, ...]] = tuple(FAMILIES)
    elsewhere: ClassVar[str] = "; survival has [algorithm] name = 'cox'"

    offset: str = ""
    """A column that is added to the linear predictor with a coefficient of 1, such as the logarithm of
    person-years."""
    weights: str = ""
    """A column of numbers above 0 that says how much each row counts. It is no part of the model."""

    _given: dict[int, float] = PrivateAttr({})
    """By column: the coefficient that is not fitted."""
    _weights: int | None = PrivateAttr(None)

    def for_federation(self, spec: AnySpec) -> Newton:
        """Return the algorithm with the names of the federation's columns.

        Raises:
            InputError: the outcome has no family here, there is no such offset, or there are no such weights.
        """
        self._check_classes(getattr(spec, "classes", None))
        found = super().for_federation(spec)
        assert isinstance(found, Newton)
        names = found._named(1 + getattr(spec.features, "shape", (0,))[0])
        places = {key: found._place(key, names) for key in ("offset", "weights") if getattr(self, key)}
        if len({*places.values()}) < len(places):
            what = "is the offset, too; name another column, or leave one of them out"
            raise InputError(f"[algorithm] weights = '{self.weights}': {what}")
        coefficients = {"offset": 1.0, "weights": 0.0}
        found._given = {place: coefficients[key] for key, place in places.items()}
        found._weights = places.get("weights")
        return found

    def _check_classes(self, classes: int | None) -> None:
        """Refuse classes that the task does not take. The task itself would name tasks that no family has.

        Raises:
            InputError: it does not take them.
        """
        kind = kind_of(self.task)
        if classes is None or kind not in self.tasks or (kind == "binary" and classes == 2):
            return
        told = f"takes {getattr(self.task, 'takes', '')}; the shards have class numbers, of {classes} classes"
        numbers = 'for numbers give the label kind = "numeric" in its spec'
        alike = 'where sites code yes and no otherwise, write classes = [["0", "no"], ["1", "yes"]] there'
        use = "for two classes use [task] name = 'binary'" if classes == 2 else alike
        raise InputError(f"[task] name = '{kind}': {told}; {numbers}; {use}")

    def _place(self, key: str, names: tuple[str, ...]) -> int:
        """Return the place of the column that a key names."""
        given, where = getattr(self, key), f"[algorithm] {key} = '{getattr(self, key)}'"
        if given not in names[1:]:
            raise InputError(f"{where}: no column is called so; {choices(given, names[1:], 'use')}")
        if (place := names.index(given)) in self._deviations:
            what = 'the shards have it standardised; make them with standardise = "none" for this column'
            raise InputError(f"{where}: {what}")
        return place

    @property
    def family(self) -> Family:
        """The model of the outcome."""
        return FAMILIES[kind_of(self.task)]

    def outcome(self, y: Any) -> Tensor:
        """Return outcomes as one column, float64 of shape [n]."""
        found: Tensor = y.double().reshape(len(y))
        return found

    def given(self, p: int) -> dict[int, float]:
        """Return the coefficients that are not fitted: 1 of the offset, and 0 of the weights."""
        return self._given

    def check_rows(self, columns: Tensor) -> None:
        """Check that numbers are finite, and weights above 0."""
        super().check_rows(columns)
        if self._weights is not None and not (columns[:, self._weights] > 0).all():
            what = "has a weight that is not above 0; leave such rows out, or correct it"
            raise InputError(f"column '{self.weights}' {what}")

    def lengths(self, server: Server) -> dict[str, int]:
        """Return the lengths of the sums."""
        found = super().lengths(server) | {"products": ScoreSums.words(len(server.state["beta"]))}
        reach = {"reach": exact.EXPONENTS} if self.family.reaches else {}
        return found | {"outcomes": exact.words_of(2), **reach}

    def told(self, server: Server) -> dict[str, Any]:
        """Return the table of coefficients, and what is no part of it."""
        both = {"offset": self.offset, "row_weights": self.weights}
        keys = {key: column for key, column in both.items() if column}
        return found | keys if (found := super().told(server)) else {}

    def _measured(self, cohort: Cohort, p: int) -> dict[str, Tensor]:
        """Return what the columns have in common; the intercept begins by the mean of all outcomes."""
        found = super()._measured(cohort, p)
        mean = cohort.mean(self.total_outcomes, top=found["tops"][-1:])
        words = self.of_all(cohort, mean, "outcomes")
        found["beta"][0] = self.family.start(_mean_of(words, found["tops"][-1:]))
        return found

    def row_sums(self, cohort: Cohort, state: Mapping[str, Any]) -> RowSums:
        """Ask for the sums over all silos' rows at the coefficients of a state."""
        beta, tops, centre = (state[key] for key in ("beta", "tops", "centre"))
        asked, reach = {"beta": beta, "centre": centre}, tops.new_ones(1)
        if self.family.reaches:
            reach = reach_of(self.of_all(cohort, cohort.mean(self.reach, **asked), "reach"))
        mean = cohort.mean(self.add_up, **asked, tops=tops, top=reach)
        return self._score_sums(beta, tops, reach).unpacked(self.of_all(cohort, mean, "products"))

    def own_sums(self, silo: Silo, beta: Tensor, tops: Tensor, centre: Tensor) -> RowSums:
        """Return the sums over a silo's rows alone."""
        reach = reach_of(self._reached(silo, beta, centre)) if self.family.reaches else tops.new_ones(1)
        sums = self._score_sums(beta, tops, reach)
        return sums.unpacked(sums.of(self.blocks(silo, centre)))

    def own_start(self, silo: Silo) -> float:
        """Return the intercept by the mean of a silo's outcomes."""
        y = [self.outcome(y) for _, y in silo.split("train").in_order(exact.BLOCK, shared=True)]
        return self.family.start(float(torch.cat(y).mean()))

    def _score_sums(self, beta: Tensor, tops: Tensor, reach: Tensor) -> ScoreSums:
        return ScoreSums(self.family, beta, tops, float(reach), self._weights)

    def total_outcomes(self, silo: Silo, top: Tensor) -> Update:
        """Send how many rows there are, and the sum of their outcomes, which stay below a power of two."""
        two = top.new_full((1,), 2.0)
        parts = (
            exact.products(torch.ones_like(y)[:, None], _with_ones(y), two, torch.cat([two, top]))
            for y in (self.outcome(y) for _, y in silo.split("train").in_order(exact.BLOCK, shared=True))
        )
        return silo.update(outcomes=summed(exact.packed(torch.as_tensor(sum(parts)))))

    def reach(self, silo: Silo, beta: Tensor, centre: Tensor) -> Update:
        """Send how many means have each power of two."""
        return silo.update(reach=summed(self._reached(silo, beta, centre)))

    def _reached(self, silo: Silo, beta: Tensor, centre: Tensor) -> Tensor:
        means = (wide_exp(predictor(columns, beta))[:, None] for columns, _ in self.blocks(silo, centre))
        return torch.as_tensor(sum(map(exact.exponent_counts, means)))

    def add_up(self, silo: Silo, beta: Tensor, centre: Tensor, tops: Tensor, top: Tensor) -> Update:
        """Send the silo's sums at the coefficients beta, shape [p].

        Args:
            tops: Powers of two above the magnitudes of columns and outcomes, shape [p + 1].
            top: One above all means, shape [1].
        """
        sums = self._score_sums(beta, tops, top)
        return silo.update(products=summed(sums.of(self.blocks(silo, centre))))


def _with_ones(y: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(y), y], 1)


def _mean_of(words: Tensor, top: Tensor) -> float:
    two = top.new_full((1,), 2.0)
    rows, outcomes = exact.unpacked(words, two, torch.cat([two, top]))[0].tolist()
    return float(outcomes / rows)
