"""The base class of tasks: a loss, metrics, and the outputs that a model must have."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor, nn

from mpifl.common import choices
from mpifl.data.shards import AnySpec
from mpifl.learning.metrics import Metric, MetricInfo
from mpifl.learning.tasks.losses import mean
from mpifl.learning.tasks.model_answers import tensor_of, told_of


class Task(BaseModel, ABC):
    """A task: the loss that trains a model and the metrics that judge it. Its fields are the keys of
    `[task]`.

    A batch is (x, y): inputs as the model takes them, and targets of shape [n, ...] as the shards hold them.
    Training minimises `objective`: `outputs`, then `mean_loss`. An evaluation computes `outputs` once, for
    `loss` and for the metrics, which get the results of `scored`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    logits: ClassVar[bool] = False
    """Whether its outputs are logits: a softmax over dimension 1 gives probabilities of classes."""
    answers: ClassVar[str] = "value"
    """The name of columns of predictions: "p" for probabilities."""

    generates: ClassVar[bool] = False
    """Whether its outputs are logits of the next token at each place, by which a text goes on."""
    aligned: ClassVar[bool] = False
    """Whether a ragged target has a row for each row of the input, if the input is one ragged array."""

    main: str | None = None
    """The metric for target, early stop, first chart and worst silo; by default the task's first.
    """

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor | int]:
        """Return the sum of a batch's losses, a scalar, and its divisor."""

    @abstractmethod
    def metrics(self) -> dict[str, Metric]:
        """Return new metrics by name, in the order of their importance."""

    def outputs(self, module: Any, x: Tensor | dict[str, Tensor]) -> Any:
        """Return the model's outputs: one forward pass for both loss and metrics.

        Named inputs become keyword arguments. Of a dict or a `ModelOutput` the tensor `logits` or `out` is
        taken, unless the task checks outputs by itself.
        """
        answer = module(**x) if isinstance(x, dict) else module(x)
        return tensor_of(answer) if self.unwraps else answer

    @property
    def unwraps(self) -> bool:
        """Whether the outputs are one tensor, which is taken from a model's dict."""
        return type(self).check_outputs is Task.check_outputs

    def predict(self, outputs: Tensor) -> Tensor:
        """Return predictions from outputs: probabilities, values or a risk; by default the outputs."""
        return outputs

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions and targets for the metrics; by default outputs and targets as they are."""
        return outputs, y

    def loss_by_formula(self, outputs: Tensor, y: Any) -> tuple[Tensor, Tensor] | None:
        """Return what `mean_loss` does and its gradient for the outputs, with autograd's bits; None without a
        formula."""
        return None

    def mean_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch, a scalar, which training minimises; 0 if nothing counts."""
        return mean(*self.loss(outputs, y))

    def weighted_objective(self, module: Any, x: Any, y: Tensor, weights: Tensor) -> Tensor:
        """Return the sum of examples' losses times their weights, shape [n], as a scalar; for tasks whose
        loss is a mean over examples."""
        singles = torch.func.vmap(lambda one, target: self.mean_loss(one.unsqueeze(0), target.unsqueeze(0)))
        losses: Tensor = singles(self.outputs(module, x), y)
        return (losses * weights).sum()

    def why_no_mean(self) -> str:
        """Return why a batch's loss is not the mean of its examples' losses; "" if it is."""
        return ""

    def objective(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a model on a batch, a scalar."""
        return self.mean_loss(self.outputs(module, x), y)

    @property
    def sees_outputs_alone(self) -> bool:
        """Whether its objective calls the model once and uses nothing else of it."""
        kind = type(self)
        return kind.objective is Task.objective and kind.outputs is Task.outputs

    def for_federation(self, spec: AnySpec) -> Task:
        """Return the task with the facts of the federation; called when a training is built.

        Raises:
            InputError: the task cannot learn such targets; the line says what to do.
        """
        return self

    def check(self, spec: AnySpec, module: nn.Module) -> None:
        """Check that the federation and the model have what this task needs.

        Raises:
            InputError: something is missing; the line says what to do.
        """

    def check_targets(self, split: str, y: Any) -> None:
        """Check that the task can learn a split's targets; called once for each split when a shard is opened.

        Args:
            split: The split's name: train, valid or test.
            y: The shard's array of shape [n, ...] (a `Ragged` for unequal lengths), or a dict of arrays by
                name.

        Raises:
            ValueError: it cannot; the text names the first wrong row, counted from 0.
        """

    def width(self, spec: AnySpec) -> int:
        """Return how many numbers a model must return for each target; a model's factory gets it as
        `classes`."""
        return spec.classes or 1

    def check_outputs(self, outputs: Any, examples: int, width: int) -> None:
        """Check that a model's outputs for some examples have the shape that loss and metrics need.

        Raises:
            ValueError: they have not; the text names both shapes.
        """
        if not isinstance(outputs, Tensor):
            raise ValueError(f"it answers with {told_of(outputs)}")
        if outputs.dim() < 2 or outputs.shape[0] != examples or outputs.shape[1] != width:
            wanted = f"[{examples}, {width}]"
            raise ValueError(f"it answers {examples} examples with shape {list(outputs.shape)}, not {wanted}")

    def of_all_silos(self) -> Task:
        """Return the task for sums over all silos' targets: those of one silo may be all alike."""
        return self

    def counting_answers(self) -> Task:
        """Return the task with counts of answers beside its metrics, where it knows such; else itself."""
        return self

    @property
    def scores_once(self) -> bool:
        """Whether an example adds at most one row to what `scored` returns."""
        return False

    @property
    def cut_off(self) -> float:
        """The probability above which the answer is yes, where it is yes or no."""
        return 0.5

    @property
    def of_answers(self) -> list[str]:
        """The metrics of answers of yes and no, above and below that; the others are of probabilities."""
        return []

    @property
    def choices(self) -> int:
        """The number of classes if an example has one label, else 0."""
        return 0

    @property
    def names(self) -> list[str]:
        """The names of its metrics, in their order."""
        return list(self.metrics())

    @cached_property
    def infos(self) -> dict[str, MetricInfo]:
        """The facts of each metric, by its name."""
        return {name: MetricInfo.of(name, metric) for name, metric in self.metrics().items()}

    @property
    def main_metric(self) -> MetricInfo:
        """The facts of the main metric."""
        return self.infos[self.main or next(iter(self.infos))]

    @model_validator(mode="after")
    def _metrics_have_names(self) -> Task:
        names = self.names
        if not names:
            raise ValueError("metrics() returned none; have it return one or more")
        if wrong := [name for name in names if name == "loss" or not re.fullmatch(r"\w+", name)]:
            raise ValueError(f"metrics() names one '{wrong[0]}'; use letters, digits and '_', and not 'loss'")
        if self.main is not None and self.main not in names:
            raise ValueError(
                f"main = '{self.main}': is not one of its metrics; {choices(self.main, names, 'use')}"
            )
        return self
