"""A step of Newton's method, and the checks that steps lead to finite coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mpifl.wings.analysis.regression.coefficients import inverted, separating
from mpifl.wings.analysis.regression.families import OutcomeModel
from mpifl.wings.analysis.regression.no_fit import NoFit, Reason
from mpifl.wings.analysis.regression.score_sums import RowSums

CERTAIN = 1e-6
"""A log-likelihood of a row, in magnitude, below which all outcomes are told for certain."""
SETTLED = 1e-8
"""Newton's decrement, twice the log-likelihood that the last step may gain, below which digits stand."""
MOVES = 0.1
"""A step that moves a row's linear predictor by so much, and gains nothing, leads to no finite estimate."""

GROWS = 1.3
"""How much a standard error grows in each step where there is no finite estimate: by the root of e, about."""
GROWN = 3
"""So many such steps without a break are no accident of a fit's first steps."""


class NewtonStep(NamedTuple):
    """What a step comes to.

    Attributes:
        beta: The coefficients after it, shape [p].
        step: What it added to them, shape [p].
        errors: The standard errors of the coefficients of the columns as they are, shape [p]; NaN for a
            column that is left out. They are those before the step, so that all belong together once steps
            are small.
        decrement: Newton's decrement.
        dispersion: The variance of the residuals; 1 where the family fixes it.
        likelihood: The log-likelihood before the step.
        examples: How many rows there are.
    """

    beta: Tensor
    step: Tensor
    errors: Tensor
    decrement: float
    dispersion: float
    likelihood: float
    examples: int = 0

    def grown(self, before: Mapping[str, Any], tops: Tensor) -> Tensor:
        """Return in how many steps without a break each coefficient and its error have grown, shape [p].

        Args:
            before: The same of the step before, `step` and `errors`; without them all is 0.
            tops: Powers of two above the magnitudes of the columns without their means, shape [p].
        """
        if "grown" not in before:
            return torch.zeros_like(self.beta)
        grows = self._moving(before["step"], tops) & (self.errors > GROWS * before["errors"])
        return torch.where(grows, before["grown"] + 1, 0.0)

    def _moving(self, before: Tensor, tops: Tensor) -> Tensor:
        """Return whether coefficients move on by much, after the step before; bool of shape [p]."""
        found = (self.step.abs() * tops > MOVES) & (self.step.abs() > before.abs() / 2)
        found[0] = False  # the intercept moves against a column
        return found

    def check_settling(
        self, family: OutcomeModel, before: Tensor | None, tops: Tensor, names: Sequence[str], ridge: float
    ) -> None:
        """Check that coefficients settle where the likelihood does.

        Where a column separates outcomes, each step adds as much to its coefficient as the one before, and
        the likelihood gains less and less.

        Args:
            before: The step before, shape [p].
            tops: Powers of two above the magnitudes of the columns without their means, shape [p].

        Raises:
            NoFit: one does not settle.
        """
        if not family.fixed_dispersion or ridge or before is None or self.decrement > SETTLED:
            return
        if (moving := self._moving(before, tops)).any():
            column = int(moving.long().argmax())
            raise NoFit(separating(names[column]), Reason.SEPARATES, column)


def newton_step(
    family: OutcomeModel,
    sums: RowSums,
    beta: Tensor,
    kept: Tensor,
    centre: Tensor,
    penalty: Tensor,
    damping: float,
    names: Sequence[str],
) -> NewtonStep:
    """Return the step from beta, shape [p].

    Args:
        family: The model of the outcome.
        sums: The sums at beta.
        kept: The columns that are fitted, bool of shape [p].
        centre: What the columns are less, shape [p].
        penalty: What each coefficient's square costs, shape [p].
        damping: What is added to the diagonal of the information.
        names: The columns' names.

    Raises:
        NoFit: there are too few rows, or a coefficient or an error does not exist.
    """
    information, score = sums.information + torch.diag(penalty), sums.score - penalty * beta
    if (free := sums.rows - int(kept.sum())) <= 0:
        what = f"{sums.rows} training examples for {len(beta)} coefficients"
        raise NoFit(f"{what}: errors need more examples than that; leave columns out", Reason.FEW_ROWS)
    if not family.fixed_dispersion and not sums.squares:
        what = "the outcome is the same everywhere, or columns give it exactly: nothing is left"
        raise NoFit(what, Reason.ALL_TOLD)
    inverse = inverted(information, kept, names)
    step = inverted(information + damping * torch.eye(len(beta)), kept, names) @ score
    back = _uncentring(centre)
    spread = (back @ inverse @ back.T).diag()
    dispersion = 1.0 if family.fixed_dispersion else sums.squares / free
    errors = torch.where(kept, (spread * dispersion).sqrt(), torch.nan)
    likelihood = family.likelihood(sums.likelihood, sums.rows, sums.squares, sums.log_weights)
    found = NewtonStep(beta + step, step, errors, float(step @ score), dispersion, likelihood=likelihood)
    return found._replace(examples=sums.rows)


def check_finite(family: OutcomeModel, sums: RowSums, before: float | None, ridge: float) -> None:
    """Check that the likelihood has a maximum that steps come nearer to.

    Args:
        before: The log-likelihood before the last step.

    Raises:
        NoFit: it has none.
    """
    if not family.fixed_dispersion or ridge:
        return
    weight = sums.rows if sums.weight is None else sums.weight
    if sums.likelihood > -CERTAIN * weight:
        what = "the columns tell every outcome, or all outcomes are the same, so no coefficient is finite"
        raise NoFit(f"{what}; leave out what separates them, or use [algorithm] ridge", Reason.ALL_TOLD)
    if before is not None and sums.likelihood < before - abs(before) / 2 - 1:
        what = f"the log-likelihood fell from {before:.6g} to {sums.likelihood:.6g}: steps are too long"
        told = f"{what}; use [algorithm] ridge or damping, or leave out what separates outcomes"
        raise NoFit(told, Reason.UNSETTLED)


def uncentred(beta: Tensor, centre: Tensor) -> Tensor:
    """Return the coefficients of the columns as they are, shape [p]."""
    return torch.cat([(beta[:1] - (beta * centre).sum()), beta[1:]])


def _uncentring(centre: Tensor) -> Tensor:
    """Return the matrix that gives the coefficients of the columns as they are, shape [p, p]."""
    back = torch.eye(len(centre), dtype=torch.float64)
    back[0] -= centre
    return back
