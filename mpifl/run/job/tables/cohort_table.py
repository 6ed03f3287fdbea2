"""The `[cohort]` table of a job: which silos take part in a round, how many must answer, their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from mpifl.common import InputError
from mpifl.run.job.tables.cohort_selection import DRAWN_BY_EXAMPLES, POISSON, WITHOUT_LOSSES, load_selection

LATE_A, LATE_ROUNDS = 0.5, 10
"""How much a late sum counts, and how late it may be; FedBuff's paper has 1 / sqrt(1 + tau)."""


class CohortTable(BaseModel):
    """`[cohort]`: which silos take part in a round, how many must answer, and the weights of updates."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    fraction: Annotated[float, Field(ge=0, le=1)] = 1.0
    """C, the share of silos that take part in a round: max(C * K, 1) of K silos."""
    quorum: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of a round's silos that must answer; if fewer do, the round is tried again."""
    deadline: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a rank that has not answered is left out of the round."""
    weights: Literal["examples", "uniform"] = "examples"
    """The weight of a silo's update in the mean: its training examples, or 1. For any other rule it is 1."""
    select: str = "uniform"
    """How silos are drawn: with equal chances (uniform), by p_k = n_k / n (examples), by their last losses
    (power-of-choice), independently and in secret (poisson), or by your own "module:function"."""
    candidates: PositiveInt | None = None
    """For power-of-choice: how many silos are drawn by p_k; those with the largest last losses take part."""
    late: Literal["never", "next"] = "never"
    """Over sites: whether the sum of a site that answers after its round counts in the next round that is
    made (next), or never."""
    late_a: Annotated[float, Field(ge=0)] = LATE_A
    """FedBuff's a: a sum that counts tau rounds late is multiplied by (1 + tau)^-a; 0 leaves it."""
    late_rounds: PositiveInt = LATE_ROUNDS
    """How many rounds late a sum may count."""

    @model_validator(mode="after")
    def _consistent(self) -> CohortTable:
        if self.select in WITHOUT_LOSSES and self.candidates is not None:
            to_do = f"leave it out with select = '{self.select}'"
            raise ValueError(f"candidates belongs to power-of-choice; {to_do}")
        if self.select == "power-of-choice" and self.candidates is None:
            needed = "candidates: how many silos are drawn to choose from"
            raise ValueError(f"select = 'power-of-choice' needs {needed}")
        return self

    @model_validator(mode="after")
    def _who_is_late(self) -> CohortTable:
        if self.late != "never" and self.deadline is None:
            raise ValueError(f"late = '{self.late}' needs deadline: without one a round waits for all sites")
        if self.late == "never" and (self.late_a, self.late_rounds) != (LATE_A, LATE_ROUNDS):
            raise ValueError("late_a and late_rounds belong to late = 'next'; add it, or leave them out")
        return self

    @property
    def drawn_by(self) -> Literal["uniform", "examples"]:
        """The weights in the objective that the draw stands for, if drawn silos have equal weights.

        The user's own selection counts as uniform, so that only `weights` decides.
        """
        return "examples" if self.select in DRAWN_BY_EXAMPLES else "uniform"

    def total(self, sizes: Sequence[int]) -> float:
        """Return the sum of all silos' weights in the objective.

        The weight of silo k is n_k if silos are drawn or weighted by examples, else 1.

        Args:
            sizes: n_k of each silo.
        """
        return float(sum(sizes) if "examples" in (self.drawn_by, self.weights) else len(sizes))

    def size(self, population: int) -> int:
        """Return how many of `population` silos take part in a round: max(C * K, 1)."""
        return max(int(self.fraction * population + 1e-9), 1)

    def expected(self, population: int) -> float:
        """Return how many of `population` silos are drawn on average."""
        return self.fraction * population if self.select == POISSON else float(self.size(population))

    def check(self, population: int) -> None:
        """Check that there are enough candidates for a round, and enough silos for the candidates.

        Raises:
            InputError: there are not.
        """
        size = self.size(population)
        if self.candidates is not None and not size <= self.candidates <= population:
            raise InputError(
                f"[cohort] candidates = {self.candidates}: must be between {size}, the silos of a round, and "
                f"{population}, all that there are"
            )

    def check_selection(self, source: str) -> None:
        """Check that the selection exists.

        Args:
            source: The source of the job, for the error.

        Raises:
            InputError: there is no such selection.
        """
        try:
            load_selection(self.select)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
