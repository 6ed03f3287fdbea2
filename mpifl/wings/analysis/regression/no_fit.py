"""Why rows have no finite fit, as the two numbers that a silo can send."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import torch
from torch import Tensor

from mpifl.common import InputError


class Reason(IntEnum):
    """Why a silo's own fit is not finite. A silo sends it, below 0, as the error of each column."""

    UNTOLD = 1
    SEPARATES = 2
    FOLLOWS = 3
    FEW_ROWS = 4
    ONE_OUTCOME = 5
    ALL_TOLD = 6
    UNSETTLED = 7
    NO_EVENT = 8


WORDS = {
    Reason.SEPARATES: "column '{column}' separates its outcomes",
    Reason.FOLLOWS: "column '{column}' is constant in its rows, or follows from the columns before it",
    Reason.FEW_ROWS: "it has no more rows than coefficients",
    Reason.ONE_OUTCOME: "its outcomes are all the same",
    Reason.ALL_TOLD: "its columns tell every outcome",
    Reason.UNSETTLED: "its coefficients do not settle",
    Reason.NO_EVENT: "it has no event",
}


class NoFit(InputError):
    """Rows have no finite fit.

    Attributes:
        reason: Why.
        column: The column that the reason names, by its place; 0 where it names none.
    """

    def __init__(self, told: str, reason: Reason, column: int = 0) -> None:
        super().__init__(told)
        self.reason, self.column = reason, column

    def numbers(self, p: int) -> tuple[Tensor, Tensor]:
        """Return what a silo sends in place of estimates and errors, both of shape [p]."""
        return (torch.arange(p) == self.column).double(), torch.full((p,), -float(self.reason))


def words_of(estimates: Tensor, errors: Tensor, names: Sequence[str]) -> str:
    """Say why by the numbers that a silo has sent, of shape [p]; "" where it does not tell."""
    known = -float(errors[0]) in [float(one) for one in Reason]
    told = WORDS.get(Reason(-int(errors[0])), "") if known else ""
    return told.format(column=names[int(estimates.argmax())])
