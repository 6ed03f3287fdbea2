"""What every task is: a loss, metrics, and what a model has to answer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor, nn

from mpifl.common import choices
from mpifl.learning.metrics import Metric, MetricInfo
from mpifl.learning.tasks.federation_view import Shards as Shards
from mpifl.learning.tasks.losses import mean


class Task(BaseModel, ABC):
    """What is learned, by which loss, and judged by which metrics: the keys of `[task]` and nothing else.

    A batch is (x, y): inputs as the model takes them, and targets of shape [n, ...] as the shards hold them.
    `objective` is what training minimises: `outputs`, then `mean_loss`. An evaluation takes `outputs` once,
    for `loss` and for the metrics, which are updated with what `scored` returns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    logits: ClassVar[bool] = False
    """Whether its outputs are logits, of which a softmax over dimension 1 makes probabilities of classes."""
    answers: ClassVar[str] = "value"
    """What columns of predictions are called: "p" where they are probabilities."""

    aligned: ClassVar[bool] = False
    """Whether a ragged target has a row for each row of the input, where that is one ragged array."""

    main: str | None = None
    """The metric that target, early stop, first chart and worst silo are about; by default the task's first.
    """

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor | int]:
        """Return the sum of the losses of a batch, a scalar, and how many were summed up."""

    @abstractmethod
    def metrics(self) -> dict[str, Metric]:
        """Return new metrics by name, in the order of their importance."""

    def outputs(self, module: Any, x: Tensor | dict[str, Tensor]) -> Any:
        """Return what the model answers: one forward pass that serves both loss and metrics.

        Inputs with names are given to it by these.
        """
        return module(**x) if isinstance(x, dict) else module(x)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return what outputs say of the examples: probabilities, values, a risk; by default the outputs."""
        return outputs

    def scored(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions and targets, as metrics are updated with them;
        by default outputs and targets as they are."""
        return outputs, y

    def mean_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch, a scalar: what training minimises; 0 where nothing counts."""
        return mean(*self.loss(outputs, y))

    def weighted_objective(self, module: Any, x: Any, y: Tensor, weights: Tensor) -> Tensor:
        """Return the sum of a model's losses of examples times their weights, shape [n], a scalar; for tasks
        whose loss is a mean over examples."""
        singles = torch.func.vmap(lambda one, target: self.mean_loss(one.unsqueeze(0), target.unsqueeze(0)))
        losses: Tensor = singles(self.outputs(module, x), y)
        return (losses * weights).sum()

    def why_no_mean(self) -> str:
        """Say why a batch's loss is no mean of its examples' losses; "" if it is."""
        return ""

    def objective(self, module: Any, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a model on a batch, a scalar."""
        return self.mean_loss(self.outputs(module, x), y)

    @property
    def sees_outputs_alone(self) -> bool:
        """Whether its objective asks the model once, for outputs, and sees nothing else of it."""
        kind = type(self)
        return kind.objective is Task.objective and kind.outputs is Task.outputs

    def for_federation(self, spec: Shards) -> Task:
        """Return the task with what it must know of the federation; asked once, where a training is built.

        Raises:
            InputError: the targets are none that it can learn; the line says what would do.
        """
        return self

    def check(self, spec: Shards, module: nn.Module) -> None:
        """See that the federation and the model have what this task needs.

        Raises:
            InputError: they have not; the line says what would do.
        """

    def check_targets(self, split: str, y: Any) -> None:
        """See that it can learn a split's targets; asked once for each, where a shard is opened.

        Args:
            split: Its name: train, valid, test.
            y: An array of shape [n, ...] as the shard holds it (a `Ragged` of unequal lengths), or a dict of
                them by name.

        Raises:
            ValueError: it cannot; the text names the first row that is wrong, counted from 0.
        """

    def width(self, spec: Shards) -> int:
        """Return how many numbers a model answers for each target:
        a model's factory is given it as `classes`."""
        return spec.classes or 1

    def check_outputs(self, outputs: Any, examples: int, width: int) -> None:
        """See that a model's outputs for some examples have the shape that loss and metrics take.

        Raises:
            ValueError: they have not; the text says both shapes.
        """
        if not isinstance(outputs, Tensor):
            raise ValueError(f"it answers with {type(outputs).__name__}, not a tensor of logits")
        if outputs.dim() < 2 or outputs.shape[0] != examples or outputs.shape[1] != width:
            wanted = f"[{examples}, {width}]"
            raise ValueError(f"it answers {examples} examples with shape {list(outputs.shape)}, not {wanted}")

    @property
    def choices(self) -> int:
        """Of how many classes the one label of an example is; 0 where a target is no such label."""
        return 0

    @property
    def names(self) -> list[str]:
        """The names of its metrics, in their order."""
        return list(self.metrics())

    @cached_property
    def infos(self) -> dict[str, MetricInfo]:
        """What is to be known of each metric, by its name."""
        return {name: MetricInfo.of(name, metric) for name, metric in self.metrics().items()}

    @property
    def main_metric(self) -> MetricInfo:
        """What is to be known of the main metric."""
        return self.infos[self.main or next(iter(self.infos))]

    @model_validator(mode="after")
    def _metrics_have_names(self) -> Task:
        names = self.names
        if not names:
            raise ValueError("metrics() returned none; have it return one or more")
        if wrong := [name for name in names if name == "loss" or not re.fullmatch(r"\w+", name)]:
            raise ValueError(
                f"metrics() names one '{wrong[0]}'; take letters, digits and '_', and not 'loss'"
            )
        if self.main is not None and self.main not in names:
            raise ValueError(
                f"main = '{self.main}': is none of its metrics; {choices(self.main, names, 'take')}"
            )
        return self
