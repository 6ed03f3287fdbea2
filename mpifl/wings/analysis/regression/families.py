"""Models of an outcome; of generalised linear ones what a row adds to score, information and likelihood."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from mpifl.wings.analysis.regression.no_fit import NoFit, Reason

VECTOR = 64
"""Numbers to which a function's input is filled up. Then none of them is at an end, where libraries may round
otherwise."""
NO_ESTIMATE = "no coefficient is finite; take rows with other outcomes, too, or leave this outcome"


class RowTerms(NamedTuple):
    """What each row of weight 1 adds, float64 of shape [n].

    Attributes:
        residual: y - mu.
        weight: The derivative of mu by eta.
        likelihood: The row's part of the log-likelihood, without what depends on the dispersion alone.
    """

    residual: Tensor
    weight: Tensor
    likelihood: Tensor


class Magnitudes(NamedTuple):
    """What magnitudes over all rows stay below.

    Attributes:
        eta: Linear predictors.
        y: Outcomes.
        mu: Means, where `reaches` has them measured; else 1.
    """

    eta: float
    y: float
    mu: float


class OutcomeModel:
    """What the table of coefficients has to know of a model of an outcome."""

    fixed_dispersion: ClassVar[bool]
    """Whether the variance follows from the mean; else it is estimated, and tests use Student's t."""
    intercept: ClassVar[bool] = True
    """Whether the model has an intercept."""
    ratio: ClassVar[str] = ""
    """What e to the power of a coefficient is called, if it has a meaning."""

    def likelihood(self, summed: float, rows: int, squares: float, log_weights: float) -> float:
        """Return the log-likelihood.

        Args:
            summed: The sum of the rows' parts, by weight.
            rows: How many rows there are.
            squares: The sum of squared residuals, by weight.
            log_weights: The sum of the logarithms of the weights.
        """
        return summed


class Family(OutcomeModel, ABC):
    """A distribution with its canonical link (McCullagh & Nelder 1989, section 2.2)."""

    reaches: ClassVar[bool] = False
    """Whether the largest mean is measured before sums are made: no bound on eta is near enough."""

    @abstractmethod
    def terms(self, eta: Tensor, y: Tensor) -> RowTerms:
        """Return what rows with linear predictors eta and outcomes y add."""

    @abstractmethod
    def bounds(self, most: Magnitudes) -> tuple[float, float, float]:
        """Return what residual, weight and likelihood of a row stay below."""

    def start(self, mean: float) -> float:
        """Return the intercept to begin from, where the outcome has a mean.

        Raises:
            NoFit: no intercept is finite, since all outcomes are the same.
        """
        return 0.0


class Gaussian(Family):
    """A normal outcome with one variance: linear regression. Rows of weight w have the variance over w."""

    fixed_dispersion = False

    def terms(self, eta: Tensor, y: Tensor) -> RowTerms:
        """Return what rows add."""
        return RowTerms(y - eta, torch.ones_like(eta), torch.zeros_like(eta))

    def bounds(self, most: Magnitudes) -> tuple[float, float, float]:
        """Return what a row's terms stay below."""
        return most.eta + most.y, 1.0, 1.0

    def likelihood(self, summed: float, rows: int, squares: float, log_weights: float) -> float:
        """Return the log-likelihood at the variance that makes it largest."""
        return -rows / 2 * (math.log(2 * math.pi * squares / rows) + 1) + log_weights / 2


class Binomial(Family):
    """Yes or no, with the logit link: logistic regression."""

    fixed_dispersion = True
    ratio = "odds_ratio"

    def terms(self, eta: Tensor, y: Tensor) -> RowTerms:
        """Return what rows add."""
        size = len(eta)
        small = torch.exp(-_filled(eta).abs())
        above = (1 / (1 + small))[:size]
        mu = torch.where(eta >= 0, above, 1 - above)
        softplus = eta.clamp(min=0) + torch.log1p(small)[:size]
        return RowTerms(y - mu, mu * (1 - mu), y * eta - softplus)

    def bounds(self, most: Magnitudes) -> tuple[float, float, float]:
        """Return what a row's terms stay below."""
        return 1.0, 0.25, most.eta + 1.0

    def start(self, mean: float) -> float:
        """Return 0, unless all outcomes are the same."""
        if mean in (0.0, 1.0):
            raise NoFit(f"all outcomes are the same, {mean:g}, so {NO_ESTIMATE}", Reason.ONE_OUTCOME)
        return 0.0


class Poisson(Family):
    """Counts, with the logarithm as link: Poisson regression."""

    fixed_dispersion = True
    ratio = "rate_ratio"
    reaches = True

    def terms(self, eta: Tensor, y: Tensor) -> RowTerms:
        """Return what rows add."""
        mu = wide_exp(eta)
        factorials = torch.lgamma(_filled(y) + 1)[: len(y)]
        return RowTerms(y - mu, mu, y * eta - mu - factorials)

    def bounds(self, most: Magnitudes) -> tuple[float, float, float]:
        """Return what a row's terms stay below."""
        apart = most.mu + most.y
        return apart, most.mu, most.y * most.eta + apart + math.lgamma(most.y + 1)

    def start(self, mean: float) -> float:
        """Return the logarithm of the mean: with centred columns, steps from there are not too long."""
        if mean == 0:
            raise NoFit(f"all counts are 0, so {NO_ESTIMATE}", Reason.ONE_OUTCOME)
        return math.log(mean)


class ProportionalHazards(OutcomeModel):
    """A time until an event, whose hazard is the baseline's times e to the power of the linear predictor."""

    fixed_dispersion = True
    intercept = False
    ratio = "hazard_ratio"


FAMILIES: dict[str, Family] = {"regression": Gaussian(), "binary": Binomial(), "counts": Poisson()}
"""The family of each task."""


def wide_exp(numbers: Tensor) -> Tensor:
    """Return e to the power of numbers, shape [n]; the bits do not depend on a number's place."""
    return torch.exp(_filled(numbers))[: len(numbers)]


def wide_log(numbers: Tensor) -> Tensor:
    """Return the logarithms of numbers above 0, shape [n]; the bits do not depend on a number's place."""
    return torch.log(_filled(numbers))[: len(numbers)]


def _filled(numbers: Tensor) -> Tensor:
    found = torch.zeros(-(-len(numbers) // VECTOR) * VECTOR, dtype=torch.float64)
    found[: len(numbers)] = numbers
    return found
