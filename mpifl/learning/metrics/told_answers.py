"""What a model answered to some examples, as `metrics.jsonl` and `mpifl evaluate --json` tell it."""

from __future__ import annotations

from itertools import accumulate
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
AnswerColumn: TypeAlias = list[tuple[Share, Count, Count]]
"""From the lowest probability of yes up: the mean probability of some examples, how many are yes, and no."""
Point: TypeAlias = tuple[float, float]
COUNTED = "answer counts"
"""The name of the counts of answers among a task's metrics."""
MOST_CLASSES = 20
"""Classes of which answers are counted by class."""
MOST_COLUMNS = 10
"""Classes that are told each against all others; more are told together."""
BINS = 10
"""Points of a calibration curve: of about as many examples each."""


class ToldAnswers(BaseModel):
    """The answers of a model to some examples.

    Attributes:
        intervals: By metric its 95 % interval, as far as a method for it is known.
        within: By metric of counts how far its value may be from that of all single examples.
        commonest: The share of examples in the commonest class: the accuracy of always that answer.
        of_training: Whether that share is of training rows, since nobody has counted these.
        columns: For yes, or for each class against all others. One of more classes is of all of them.
        areas: The area under the ROC curve of each column; none where classes are told together.
        precisions: The average precision of each column; none where classes are told together.
        confusion: The examples of each class (a row) by the class that was answered.
        threshold: The probability above which yes was answered.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    intervals: dict[str, Point] = {}
    within: dict[str, float] = {}
    commonest: Share | None = None
    of_training: bool = False
    columns: list[AnswerColumn] = []
    areas: list[Share | None] = []
    precisions: list[Share | None] = []
    confusion: list[list[Count]] = []
    threshold: Share = 0.5


def read_answers(told: object) -> dict[str, ToldAnswers]:
    """Return answers by whose rows they are to; none if they are not as this program writes them."""
    try:
        given = told.items() if isinstance(told, dict) else ()
        return {str(rows): ToldAnswers.model_validate(of) for rows, of in given}
    except ValueError:
        return {}


def roc(column: AnswerColumn) -> list[Point]:
    """Return the false positive rate and the true positive rate of each threshold, the highest first."""
    yes, no = _from_the_top(column)
    return [(n / no[-1], y / yes[-1]) for y, n in zip(yes, no, strict=True)] if yes[-1] and no[-1] else []


def precision_recall(column: AnswerColumn) -> list[Point]:
    """Return the recall and the precision of each threshold, the highest first."""
    yes, no = _from_the_top(column)
    return [(y / yes[-1], y / (y + n)) for y, n in zip(yes, no, strict=True) if y + n] if yes[-1] else []


def calibration(column: AnswerColumn) -> list[tuple[float, float, int]]:
    """Return the mean probability, the share of yes and the examples of each of BINS bins, which have about
    as many examples."""
    total, before = sum(yes + no for _, yes, no in column), 0
    sums: dict[int, list[float]] = {}
    for p, yes, no in column:
        many = yes + no
        if many:
            found = sums.setdefault(min(int(BINS * (before + many / 2) / total), BINS - 1), [0.0, 0.0, 0.0])
            for nth, more in enumerate((p * many, yes, many)):
                found[nth] += more
        before += many
    return [(p / many, yes / many, int(many)) for p, yes, many in sums.values()]


def base_rate(column: AnswerColumn) -> float | None:
    """Return the share of yes; None of no examples."""
    yes, no = _from_the_top(column)
    return yes[-1] / (yes[-1] + no[-1]) if yes[-1] + no[-1] else None


def _from_the_top(column: AnswerColumn) -> tuple[list[int], list[int]]:
    """Return how many of yes, and of no, lie above each threshold, the highest first."""
    down = column[::-1]
    yes, no = accumulate(one[1] for one in down), accumulate(one[2] for one in down)
    return [0, *yes], [0, *no]
