"""The table of coefficients: estimates, standard errors, tests and intervals."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mpifl.wings.analysis.regression.families import OutcomeModel
from mpifl.wings.analysis.regression.no_fit import NoFit, Reason

LARGEST = 700.0
"""The largest exponent of a float."""
LEVEL = 0.95
ALIASED = 1e-9
"""A column follows from those before it if less than this share of its squares is left after them."""


@dataclass(frozen=True)
class Fit:
    """A fitted model.

    Attributes:
        names: The columns; the intercept is the first.
        estimates: One coefficient for each, float64; 0 for a column that is left out.
        errors: Their standard errors; NaN for a column that is left out.
        likelihood: The log-likelihood.
        rows: How many examples there are.
        family: The model of the outcome.
        dispersion: The variance of the residuals; 1 where the family fixes it.
        against: For each column of a level, the column of the level that it is compared with.
        given: The columns whose coefficients are not fitted.
    """

    names: Sequence[str]
    estimates: Tensor
    errors: Tensor
    likelihood: float
    rows: int
    family: OutcomeModel
    dispersion: float
    against: Mapping[int, int] = field(default_factory=dict)
    given: Collection[int] = ()

    @property
    def parameters(self) -> int:
        """How many coefficients were fitted."""
        return int(self.errors.isfinite().sum())

    def table(self, beside: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return a row for each fitted column: name, estimate, standard error, statistic, p and 95 %
        interval. A level also has the column that it is compared with, which is left out.

        The statistic is z, or Student's t with `rows - parameters` degrees of freedom where the dispersion is
        estimated.

        Args:
            beside: What else is told of a column.
        """
        from scipy import stats

        free = self.rows - self.parameters
        of = stats.norm() if self.family.fixed_dispersion else stats.t(free)
        told = (nth for nth in range(not self.family.intercept, len(self.names)) if nth not in self.given)
        return [{"name": self.names[nth], **self._row(nth, of), **beside.get(nth, {})} for nth in told]

    def _row(self, nth: int, of: Any) -> dict[str, Any]:
        """Return what is told of a column, by the distribution of its statistic."""
        estimate, error = float(self.estimates[nth]), float(self.errors[nth])
        if not math.isfinite(error):
            return {"left_out": True, **({"reference": True} if nth in self.against.values() else {})}
        statistic, wide = estimate / error if error else math.inf, float(of.ppf((1 + LEVEL) / 2))
        row = {"estimate": estimate, "error": error, "statistic": statistic}
        row["p"] = 2 * float(of.sf(abs(statistic)))
        if self.family.ratio:
            row[self.family.ratio] = math.exp(min(estimate, LARGEST))
        ends = {"low": estimate - wide * error, "high": estimate + wide * error}
        row |= ends
        if self.family.ratio:
            row |= {f"ratio_{end}": math.exp(min(value, LARGEST)) for end, value in ends.items()}
        return row | ({"against": self.names[self.against[nth]]} if nth in self.against else {})

    def figures(self) -> dict[str, float]:
        """Return log-likelihood and Akaike's criterion, as a round's figures."""
        many = self.parameters + (not self.family.fixed_dispersion)
        return {"log_likelihood": self.likelihood, "aic": 2 * many - 2 * self.likelihood}


def independent(information: Tensor, levels: Sequence[Sequence[int]] = ()) -> Tensor:
    """Return which columns do not follow from those before them, bool of shape [p].

    The first level of a variable that occurs is left out, as R does it: levels are looked through from the
    last to the first, and one that follows from the others is then the first.

    Args:
        information: The sums of products of all pairs of columns, shape [p, p].
        levels: The columns of each variable's levels, in the order of the levels.
    """
    order = torch.arange(len(information))
    for one in levels:
        order[list(one)] = torch.tensor(one[::-1])
    scale = information.diag().sqrt()
    unit = information / torch.outer(scale, scale).clamp(min=torch.finfo(torch.float64).tiny)
    unit, taken = unit[order][:, order], scale[order] > 0
    for _ in range(int(taken.sum())):
        places = taken.nonzero().flatten()
        root, failed = torch.linalg.cholesky_ex(unit[places][:, places])
        rest = root.diag().square()
        rest[int(failed) - 1 if int(failed) else len(rest) :] = 0.0
        dependent = (rest < ALIASED).nonzero().flatten()
        if not len(dependent):
            break
        taken[places[dependent[0]]] = False
    kept = torch.empty_like(taken)
    kept[order] = taken
    return kept


def compared_with(information: Tensor, kept: Tensor, levels: Sequence[Sequence[int]]) -> Tensor:
    """Return which left-out columns are what the other levels of their variable are compared with, bool of
    shape [p]: the first of a variable that occurs.

    Args:
        information: The sums of products of all pairs of columns, shape [p, p].
        kept: The columns that are not left out, bool of shape [p].
        levels: The columns of each variable's levels, in the order of the levels.
    """
    found = torch.zeros_like(kept)
    for places in levels:
        occurring = [nth for nth in places if information[nth, nth] > 0]
        if len(occurring) > 1 and (left_out := [nth for nth in occurring if not kept[nth]]):
            found[left_out[0]] = True
    return found


def against_of(compared: Tensor, levels: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return for each column of a level the one that it is compared with.

    Args:
        compared: What `compared_with` found, shape [p].
        levels: The columns of each variable's levels, in the order of the levels.
    """
    found = dict[int, int]()
    for places in levels:
        for base in (nth for nth in places if compared[nth]):
            found |= {nth: base for nth in places if nth != base}
    return found


def inverted(information: Tensor, kept: Tensor, names: Sequence[str]) -> Tensor:
    """Return the inverse of the information over the kept columns, with zeros for the others, shape [p, p].

    Raises:
        NoFit: the information is not positive definite.
    """
    places = kept.nonzero().flatten()
    part = information[places][:, places]
    scale = part.diag().clamp(min=torch.finfo(torch.float64).tiny).rsqrt()
    root, failed = torch.linalg.cholesky_ex(part * torch.outer(scale, scale))
    if int(failed):
        column = int(places[int(failed) - 1])
        raise NoFit(separating(names[column]), Reason.SEPARATES, column)
    found = torch.zeros_like(information)
    found[places[:, None], places] = torch.cholesky_inverse(root) * torch.outer(scale, scale)
    return found


def separating(name: str) -> str:
    """Return the line on a column whose coefficient grows without end."""
    what = f"column '{name}': its coefficient has no finite estimate, since it separates the outcomes"
    return f"{what}; leave the column out, or use [algorithm] ridge"
