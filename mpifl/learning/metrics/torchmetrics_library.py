"""Metrics of torchmetrics with states that add up (F1, recall, ...); undefined ones are NaN. Importing
torchmetrics takes seconds.

A mean over classes covers classes that have examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, classification

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.tasks import TaskFacts

Value = Callable[[Any, Tensor], Tensor]
"""(metric with its states, torchmetrics' numbers for each class) -> one number."""


def accuracy_of_labels(form: str, facts: TaskFacts) -> Metric:
    """Return the share of right answers over all labels of all examples."""
    return _metric("MultilabelAccuracy", facts, _of_any, average="micro")


def hamming(form: str, facts: TaskFacts) -> Metric:
    """Return the share of wrong answers over all labels of all examples."""
    return _metric("MultilabelHammingDistance", facts, _of_any, average="micro")


def f1(form: str, facts: TaskFacts) -> Metric:
    """Return the harmonic mean of precision and recall."""
    return _metric(f"{form}F1Score", facts, _of_present)


def fbeta(form: str, facts: TaskFacts, beta: float) -> Metric:
    """Return the F score in which recall counts beta times as much as precision."""
    return _metric(f"{form}FBetaScore", facts, _of_present, beta=float(beta))


def precision(form: str, facts: TaskFacts) -> Metric:
    """Return the share of positive answers that are right; 0 for a class that has targets but no answers."""
    return _metric(f"{form}Precision", facts, lambda m, each: _mean(each, m.tp + m.fp + m.fn))


def recall(form: str, facts: TaskFacts) -> Metric:
    """Return the share of positive targets that are answered as positive, the sensitivity."""
    return _metric(f"{form}Recall", facts, _of_present)


def specificity(form: str, facts: TaskFacts) -> Metric:
    """Return the share of negative targets that are answered as negative."""
    return _metric(f"{form}Specificity", facts, lambda m, each: _mean(each, m.tn + m.fp))


def balanced_accuracy(form: str, facts: TaskFacts) -> Metric:
    """Return the mean recall over classes."""
    return _metric(f"{form}Recall", facts, _of_yes_and_no if form == "Binary" else _of_present)


def matthews(form: str, facts: TaskFacts) -> Metric:
    """Return Matthews' correlation between answers and targets; 0 if all answers are one class."""
    return _metric(f"{form}ConfusionMatrix", facts, _of_counts(_correlation))


def cohen_kappa(form: str, facts: TaskFacts) -> Metric:
    """Return Cohen's kappa: agreement of answers and targets beyond chance."""
    return _metric(f"{form}ConfusionMatrix", facts, _of_counts(_kappa))


def mae(form: str, facts: TaskFacts) -> Metric:
    """Return the mean absolute error."""
    return MeanAbsoluteError().set_dtype(torch.float64)


def mse(form: str, facts: TaskFacts) -> Metric:
    """Return the mean squared error."""
    return MeanSquaredError().set_dtype(torch.float64)


def rmse(form: str, facts: TaskFacts) -> Metric:
    """Return the root of the mean squared error."""
    return MeanSquaredError(squared=False).set_dtype(torch.float64)


def _metric(name: str, facts: TaskFacts, value: Value, **arguments: Any) -> Metric:
    """Return a metric of torchmetrics whose numbers for each class `value` reduces to one."""
    kind = getattr(classification, name)
    sizes: dict[str, dict[str, Any]] = {"Multiclass": {"num_classes": facts.classes}}
    sizes["Multilabel"] = {"num_labels": facts.columns}
    of = next((size for form, size in sizes.items() if name.startswith(form)), {})
    if name.startswith("Binary"):
        arguments["threshold"] = facts.threshold
    if "num_labels" in of:
        arguments["ignore_index"] = facts.ignore
    if of and not name.endswith("ConfusionMatrix"):
        arguments.setdefault("average", "none")

    class Defined(kind):  # type: ignore[misc, valid-type]
        """The metric `kind` as one number, NaN if it is undefined."""

        def compute(self) -> Tensor:
            with _counts_in_float64(self):
                return value(self, super().compute())

    made: Metric = Defined(**of, **arguments, validate_args=False)
    return made


@contextmanager
def _counts_in_float64(metric: Any) -> Iterator[None]:
    """Hold right and wrong answers as float64 for a while: torchmetrics divides whole numbers in float32."""
    counts = {name: getattr(metric, name) for name in ("tp", "fp", "tn", "fn") if hasattr(metric, name)}
    vars(metric).update({name: count.double() for name, count in counts.items()})
    try:
        yield
    finally:
        vars(metric).update(counts)


def _mean(each: Tensor, defined: Tensor) -> Tensor:
    """Return the mean over classes where `defined` is above 0; NaN if there are none."""
    return torch.where(defined > 0, each, torch.nan).nanmean()


def _of_present(metric: Any, each: Tensor) -> Tensor:
    return _mean(each, metric.tp + metric.fn)


def _of_any(metric: Any, each: Tensor) -> Tensor:
    return _mean(each, metric.tp.sum() + metric.fp.sum() + metric.tn.sum() + metric.fn.sum())


def _of_yes_and_no(metric: Any, each: Tensor) -> Tensor:
    right, wrong = torch.cat([metric.tp, metric.tn]), torch.cat([metric.fn, metric.fp])
    return _mean(right / (right + wrong), right + wrong)


def _of_counts(formula: Callable[[int, list[int], list[int]], float]) -> Value:
    """Return a metric's value by a formula of its confusion matrix. The formula gets the number of right
    answers, and the numbers of targets and of answers of each class.

    These are Python integers, because a difference of such products would lose all digits of a float.
    """

    def value(metric: Any, confusion: Tensor) -> Tensor:
        targets, answers = confusion.sum(1).tolist(), confusion.sum(0).tolist()
        found = formula(int(confusion.trace()), targets, answers)
        return torch.tensor(found, dtype=torch.float64)

    return value


def _correlation(right: int, targets: list[int], answers: list[int]) -> float:
    """Return Matthews' correlation for several classes (Gorodkin 2004, eq. 8).

    It is NaN if all targets are of one class. If all answers are of one class it is 0, as in scikit-learn.
    """
    n = sum(targets)
    varied, called = (n * n - sum(count * count for count in of) for of in (targets, answers))
    if not varied:
        return math.nan
    return (n * right - _chance(targets, answers)) / math.sqrt(varied * called) if called else 0.0


def _kappa(right: int, targets: list[int], answers: list[int]) -> float:
    """Return Cohen's kappa (Cohen 1960); NaN if all targets and all answers are of the same class."""
    n, chance = sum(targets), _chance(targets, answers)
    return (n * right - chance) / (n * n - chance) if n * n > chance else math.nan


def _chance(targets: list[int], answers: list[int]) -> int:
    """Return n^2 times the share of answers that would be right by chance."""
    return sum(true * called for true, called in zip(targets, answers, strict=True))
