"""Families of generalised linear models: what a row adds to score, information and likelihood."""

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


class Family(ABC):
    """A distribution with its canonical link (McCullagh & Nelder 1989, section 2.2)."""

    fixed_dispersion: ClassVar[bool]
    """Whether the variance follows from the mean; else it is estimated, and tests use Student's t."""
    ratio: ClassVar[str] = ""
    """What e to the power of a coefficient is called, if it has a meaning."""

    @abstractmethod
    def terms(self, eta: Tensor, y: Tensor) -> RowTerms:
        """Return what rows with linear predictors eta and outcomes y add."""

    @abstractmethod
    def bounds(self, eta: float, y: float) -> tuple[float, float, float]:
        """Return what residual, weight and likelihood of a row stay below, where |eta| and |y| do not exceed
        the arguments."""

    @abstractmethod
    def likelihood(self, summed: float, rows: int, squares: float) -> float:
        """Return the log-likelihood.

        Args:
            summed: The sum of the rows' parts.
            rows: How many rows there are.
            squares: The sum of squared residuals.
        """


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
        filled = torch.zeros(-(-size // VECTOR) * VECTOR, dtype=torch.float64)
        filled[:size] = eta
        small = torch.exp(-filled.abs())
        above = (1 / (1 + small))[:size]
        mu = torch.where(eta >= 0, above, 1 - above)
        softplus = eta.clamp(min=0) + torch.log1p(small)[:size]
        return RowTerms(y - mu, mu * (1 - mu), y * eta - softplus)

    def bounds(self, eta: float, y: float) -> tuple[float, float, float]:
        """Return what a row's terms stay below."""
        return 1.0, 0.25, eta + 1.0

    def likelihood(self, summed: float, rows: int, squares: float) -> float:
        """Return the log-likelihood."""
        return summed


FAMILIES: dict[str, Family] = {"regression": Gaussian(), "binary": Binomial()}
"""The family of each task."""
