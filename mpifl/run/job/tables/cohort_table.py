"""The `[cohort]` table of a job: who takes part in a round, who must answer, and what silos weigh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from mpifl.common import InputError
from mpifl.run.job.tables.cohort_selection import DRAWN_BY_EXAMPLES, POISSON, WITHOUT_LOSSES, load_selection


class CohortTable(BaseModel):
    """`[cohort]`: which silos take part in a round, how many must answer, and what their updates weigh."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    fraction: Annotated[float, Field(ge=0, le=1)] = 1.0
    """C, the share of silos that take part in a round: max(C * K, 1) of K silos."""
    quorum: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of a round's silos that must answer, or the round is asked again."""
    deadline: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a rank that has not answered is left out of the round."""
    weights: Literal["examples", "uniform"] = "examples"
    """What a silo's update weighs in the mean: its training examples, or 1. By any other rule it is 1."""
    select: str = "uniform"
    """How silos are drawn: all alike, by p_k = n_k / n,
    by their last losses, each by itself in secret (poisson), or by your own "module:function"."""
    candidates: PositiveInt | None = None
    """Of power-of-choice: how many silos are drawn by p_k; those with the largest last losses take part."""

    @model_validator(mode="after")
    def _consistent(self) -> CohortTable:
        if self.select in WITHOUT_LOSSES and self.candidates is not None:
            to_do = f"leave it out with select = '{self.select}'"
            raise ValueError(f"candidates belongs to power-of-choice; {to_do}")
        if self.select == "power-of-choice" and self.candidates is None:
            needed = "candidates: how many silos are drawn to choose from"
            raise ValueError(f"select = 'power-of-choice' needs {needed}")
        return self

    @property
    def drawn_by(self) -> Literal["uniform", "examples"]:
        """By what silos count if those drawn count alike;
        for the user's own selection `weights` alone decides."""
        return "examples" if self.select in DRAWN_BY_EXAMPLES else "uniform"

    def total(self, sizes: Sequence[int]) -> float:
        """Return what all silos weigh in the objective:
        silo k n_k where it is drawn by examples or counted by them."""
        return float(sum(sizes) if "examples" in (self.drawn_by, self.weights) else len(sizes))

    def size(self, population: int) -> int:
        """Return how many silos of so many take part in a round: max(C * K, 1)."""
        return max(int(self.fraction * population + 1e-9), 1)

    def expected(self, population: int) -> float:
        """Return how many silos of so many are drawn on average."""
        return self.fraction * population if self.select == POISSON else float(self.size(population))

    def check(self, population: int) -> None:
        """See that there are candidates enough for a round, and silos enough for candidates.

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
        """See that there is such a selection.

        Args:
            source: Where the job comes from, for the error.

        Raises:
            InputError: there is none.
        """
        try:
            load_selection(self.select)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
