"""Models of an outcome; of generalised linear ones what a row adds to score, information and likelihood."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

VECTOR = 64
"""Numbers to which a function's input is filled up. Then none of them is at an end, where libraries may round
otherwise."""


class RowTerms(NamedTuple):
    """What each row adds, float64 of shape [n].

    Attributes:
        residual: y - mu.
        weight: The derivative of mu by eta.
        likelihood: The row's part of the log-likelihood that depends on eta.
    """

    residual: Tensor
    weight: Tensor
    likelihood: Tensor


class OutcomeModel:
    """What the table of coefficients has to know of a model of an outcome."""

    fixed_dispersion: ClassVar[bool]
    """Whether the variance follows from the mean; else it is estimated, and tests use Student's t."""
    intercept: ClassVar[bool] = True
    """Whether the model has an intercept."""
    ratio: ClassVar[str] = ""
    """What e to the power of a coefficient is called, if it has a meaning."""

    def likelihood(self, summed: float, rows: int, squares: float) -> float:
        """Return the log-likelihood.

        Args:
            summed: The sum of the rows' parts.
            rows: How many rows there are.
            squares: The sum of squared residuals.
        """
        return summed


class Family(OutcomeModel, ABC):
    """A distribution with its canonical link (McCullagh & Nelder 1989, section 2.2)."""

    @abstractmethod
    def terms(self, eta: Tensor, y: Tensor) -> RowTerms:
        """Return what rows with linear predictors eta and outcomes y add."""

    @abstractmethod
    def bounds(self, eta: float, y: float) -> tuple[float, float, float]:
        """Return what residual, weight and likelihood of a row stay below, where |eta| and |y| do not exceed
        the arguments."""


class Gaussian(Family):
    """A normal outcome with one variance: linear regression."""

    fixed_dispersion = False

    def terms(self, eta: Tensor, y: Tensor) -> RowTerms:
        """Return what rows add."""
        return RowTerms(y - eta, torch.ones_like(eta), torch.zeros_like(eta))

    def bounds(self, eta: float, y: float) -> tuple[float, float, float]:
        """Return what a row's terms stay below."""
        return eta + y, 1.0, 1.0

    def likelihood(self, summed: float, rows: int, squares: float) -> float:
        """Return the log-likelihood at the variance that makes it largest."""
        return -rows / 2 * (math.log(2 * math.pi * squares / rows) + 1)


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

    def bounds(self, eta: float, y: float) -> tuple[float, float, float]:
        """Return what a row's terms stay below."""
        return 1.0, 0.25, eta + 1.0


class ProportionalHazards(OutcomeModel):
    """A time until an event, whose hazard is the baseline's times e to the power of the linear predictor."""

    fixed_dispersion = True
    intercept = False
    ratio = "hazard_ratio"


FAMILIES: dict[str, Family] = {"regression": Gaussian(), "binary": Binomial()}
"""The family of each task."""


def wide_exp(numbers: Tensor) -> Tensor:
    """Return e to the power of numbers, shape [n]; the bits do not depend on a number's place."""
    return torch.exp(_filled(numbers))[: len(numbers)]


def _filled(numbers: Tensor) -> Tensor:
    found = torch.zeros(-(-len(numbers) // VECTOR) * VECTOR, dtype=torch.float64)
    found[: len(numbers)] = numbers
    return found
