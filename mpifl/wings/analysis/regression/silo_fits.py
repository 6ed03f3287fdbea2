"""Each silo's own fit beside the one of all rows, and how far silos' coefficients part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.wings.analysis.regression.coefficients import independent
from mpifl.wings.analysis.regression.newton_step import NewtonStep, uncentred
from mpifl.wings.analysis.regression.no_fit import NoFit, Reason, words_of
from mpifl.wings.analysis.regression.score_sums import RowSums
from mpifl.wire import Mean

MOST_STEPS = 60
ALL_DIGITS = 1e-18
"""Newton's decrement below which another step changes no digit that is told."""


class CoefficientSpread(NamedTuple):
    """How far silos' coefficients part (Higgins & Thompson 2002, "Quantifying heterogeneity in a
    meta-analysis", section 2).

    Attributes:
        fixed: The fixed-effect estimate: the mean of the silos', by the inverse of their variances.
        fixed_error: Its standard error.
        q: Cochran's Q.
        q_p: How likely a Q as large is where all silos have one coefficient.
        i2: The share of the spread between silos that is not by chance.
    """

    fixed: float
    fixed_error: float
    q: float
    q_p: float
    i2: float

    @classmethod
    def of(cls, estimates: Tensor, errors: Tensor) -> CoefficientSpread:
        """Return it for two silos or more, from estimates and standard errors of shape [k]."""
        from scipy import stats

        weights = errors.square().reciprocal()
        fixed = float((weights * estimates).sum() / weights.sum())
        q, free = float((weights * (estimates - fixed).square()).sum()), len(estimates) - 1
        i2 = max(0.0, (q - free) / q) if q else 0.0
        return cls(fixed, float(weights.sum().rsqrt()), q, float(stats.chi2.sf(q, free)), i2)


@dataclass(frozen=True)
class SiloFits:
    """The silos' own fits.

    Attributes:
        estimates: float64 of shape [silos, p].
        errors: Their standard errors; below 0 throughout for a silo without a finite fit, see `Reason`.
    """

    estimates: Tensor
    errors: Tensor

    @classmethod
    def of(cls, mean: Mean, p: int) -> SiloFits:
        """Return what all silos have sent."""
        columns = [
            [[*mean.of_silos(f"{kind}_{nth}").values()] for nth in range(p)] for kind in ("estimate", "error")
        ]
        estimates, errors = torch.tensor(columns, dtype=torch.float64).transpose(1, 2)
        return cls(estimates, errors)

    @property
    def finite(self) -> Tensor:
        """Whether each silo has a fit, bool of shape [silos]."""
        return (self.errors >= 0).all(1)

    def figures(self, kept: Tensor) -> dict[int, dict[str, Any]]:
        """Return what is told of each fitted column, by its place.

        Args:
            kept: The columns that are fitted, bool of shape [p].
        """
        found, there = dict[int, dict[str, Any]](), self.finite
        for nth in kept.nonzero().flatten().tolist():
            estimates, errors = self.estimates[there, nth], self.errors[there, nth]
            both = zip(estimates.tolist(), errors.tolist(), strict=True)
            found[nth] = {"silos": [{"estimate": one, "error": error} for one, error in both]}
            if len(estimates) > 1:
                found[nth] |= CoefficientSpread.of(estimates, errors)._asdict()
        return found

    def told(self, silos: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
        """Return the names of the silos that have a finite fit, of the others, and why these have none."""
        both = list(zip(silos, self.finite.tolist(), strict=True))
        words = [words_of(*of, columns) for of in zip(self.estimates, self.errors, strict=True)]
        why = {name: one for (name, there), one in zip(both, words, strict=True) if one and not there}
        told = {
            "silos": [name for name, there in both if there],
            "left_out": [name for name, there in both if not there],
        }
        return told | ({"reasons": why} if why else {})


def own_fit(
    start: Callable[[], Tensor],
    sums_at: Callable[[Tensor], RowSums],
    step_from: Callable[[RowSums, Tensor, Tensor | None], NewtonStep],
    kept: Tensor,
    centre: Tensor,
) -> dict[str, float]:
    """Fit a silo's rows alone; return an estimate and an error of each column as numbers to send.

    Args:
        start: Returns the coefficients to begin from, shape [p].
        sums_at: Returns the silo's sums at coefficients.
        step_from: Returns the step from sums at coefficients, after the step before.
        kept: The columns that are fitted, bool of shape [p].
        centre: What the columns are less, shape [p].
    """
    p = len(kept)
    try:
        found = _settled(start(), sums_at, step_from, kept)
        estimates, errors = uncentred(found.beta, centre), found.errors.nan_to_num(0.0)
    except InputError as why:
        none = why if isinstance(why, NoFit) else NoFit(str(why), Reason.UNTOLD)
        estimates, errors = none.numbers(p)
    told = {"estimate": estimates.tolist(), "error": errors.tolist()}
    return {f"{kind}_{nth}": values[nth] for kind, values in told.items() for nth in range(p)}


def _settled(
    beta: Tensor,
    sums_at: Callable[[Tensor], RowSums],
    step_from: Callable[[RowSums, Tensor, Tensor | None], NewtonStep],
    kept: Tensor,
) -> NewtonStep:
    """Return the last step of the fit.

    Raises:
        NoFit: it does not settle, or a column that is fitted follows here from others.
    """
    before: Tensor | None = None
    for _ in range(MOST_STEPS):
        sums = sums_at(beta)
        if before is None:
            _check_independent(sums, kept)
        found = step_from(sums, beta, before)
        if not math.isfinite(found.decrement):
            break
        if found.decrement <= ALL_DIGITS:
            return found
        beta, before = found.beta, found.step
    raise NoFit("coefficients do not settle", Reason.UNSETTLED)


def _check_independent(sums: RowSums, kept: Tensor) -> None:
    """Check that a silo's rows are more than its coefficients, and that no column follows from others.

    Raises:
        NoFit: they are too few, or one does.
    """
    if sums.rows <= int(kept.sum()):
        raise NoFit("there are too few rows", Reason.FEW_ROWS)
    places = kept.nonzero().flatten()
    if not (free := independent(sums.information[kept][:, kept])).all():
        column = int(places[int(free.long().argmin())])
        raise NoFit("a column follows from others", Reason.FOLLOWS, column)
