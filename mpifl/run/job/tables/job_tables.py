"""The tables of a job that are the same for every algorithm: model, data, evaluate, checkpoint, tracking."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from mpifl.common import InputError, Table
from mpifl.silo.steps import EVALUATION_BATCH, BufferRule, EvaluationBatch, refuse_idle


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Model(BaseModel):
    """`[model]`: the model's name, its initial weights, and its own arguments."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    name: str
    """A built-in model, or the user's own as "package.module:factory"; its arguments are further keys."""
    weights: str | None = None
    """A safetensors file with the initial parameters."""
    strict: bool = True
    """Whether that file must have all parameters that are saved, and no others. If false, tensors that fit by
    name and shape are taken, and a line names the others."""
    save: Literal["all", "trained"] = "all"
    """Which parameters model.safetensors holds: all, or only trained ones, such as LoRA's adapters."""
    buffers: dict[str, BufferRule] = {}
    """Rules for buffers that training writes, by names or patterns: "min" or "max" over silos; "any" or "all"
    for flags; "reset" starts them anew in each training."""

    @model_validator(mode="after")
    def _reads_weights(self) -> Model:
        if self.weights is None:
            refuse_idle(self, ["strict"], "no file is read; give weights, or leave it out")
        return self

    @property
    def arguments(self) -> Table:
        """The keys that the model's factory takes."""
        return dict(self.model_extra or {})


class Data(_Table):
    """`[data]`: how the examples are changed that silos train on."""

    augment: str | None = None
    """Augmentation, drawn anew for each training batch: "flip", "crop" or "flip-crop" for images, or the
    user's own as "package.module:function"."""
    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Each image is turned about its centre by an angle drawn from -rotation to rotation, in degrees."""
    zoom: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] = [1.0, 1.0]
    """Each image is enlarged by a factor drawn between these two; below 1 it gets smaller."""
    shift: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Each image is moved by up to this share of its width and height."""
    brightness: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The values of each image are multiplied by a factor drawn from 1 - brightness to 1 + brightness."""
    contrast: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Distances of values from the image's mean are multiplied by a factor drawn likewise."""

    @property
    def warp(self) -> dict[str, Any]:
        """The keys that change images by numbers, as far as they do."""
        plain = Data()
        keys = ("rotation", "zoom", "shift", "brightness", "contrast")
        return {key: value for key in keys if (value := getattr(self, key)) != getattr(plain, key)}

    @model_validator(mode="before")
    @classmethod
    def _zoom_of_two(cls, given: Any) -> Any:
        zoom = given.get("zoom", [1, 1]) if isinstance(given, dict) else [1, 1]
        if not isinstance(zoom, list) or len(zoom) != 2:
            raise ValueError(f"zoom = {zoom}: it must be the least and the largest factor, as [0.9, 1.1]")
        return given

    @model_validator(mode="after")
    def _zoom_in_order(self) -> Data:
        if self.zoom[0] > self.zoom[1]:
            raise ValueError(f"zoom = {self.zoom}: the first must not be larger than the second")
        return self


class Evaluate(_Table):
    """`[evaluate]`: how often and where the model is scored, and the target for the task's main metric."""

    every: PositiveInt = 1
    """The model is scored after every so many rounds."""
    batch_size: EvaluationBatch = EVALUATION_BATCH
    """The most examples that are scored at a time; fewer if examples are large. "auto" halves the number if
    memory is short."""
    where: Literal["server", "workers"] = "server"
    """Who scores the server's test set. "workers" get it once, and the server trusts their figures."""
    behind: bool = False
    """Score the server's test set in a process of its own while the next round trains. Records, and an end by
    target or patience, come a round later."""
    silos: bool = True
    """Score the model at every silo that holds out a split."""
    target: float | None = None
    """The target for the main metric, on the test set, or without one on the silos' held-out examples."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """The same if the main metric is the accuracy; rounds, bytes and seconds to it are reported."""
    stop_at_target: bool = False
    """End the training when the target is reached."""
    split: Literal["valid"] | None = None
    """Score the silos' valid splits; test is then scored only once, at the end. The default is test, or valid
    if there is no test."""
    patience: PositiveInt | None = None
    """End the training after so many evaluations without a better main metric."""
    keep_best: bool | None = None
    """Leave the model with the best main metric as the run's, and the last one in last.safetensors. The
    default is true with patience, unless silos have models of their own."""

    @model_validator(mode="after")
    def _consistent(self) -> Evaluate:
        if self.target is not None and self.target_accuracy is not None:
            raise ValueError("target and target_accuracy are two names of one key; use one of them")
        if self.stop_at_target and self.wanted is None:
            needed = "target_accuracy, or target where another metric is the main one"
            raise ValueError(f"stop_at_target needs {needed}")
        if self.split is not None and not self.silos:
            raise ValueError("split: silos = false has no silo score it; leave one of them out")
        if self.behind and self.where == "workers":
            raise ValueError("behind: where = 'workers' takes the ranks that train; leave one of them out")
        if self.behind and self.split is not None:
            raise ValueError(
                "behind: with split the test set is scored once, at the end; leave one of them out"
            )
        return self

    def check(self, splits: Collection[str]) -> None:
        """Check that some silo has the chosen split.

        Args:
            splits: The splits that silos have.

        Raises:
            InputError: no silo has it.
        """
        if self.split is not None and self.split not in splits:
            what = f"split = '{self.split}': no silo has such a split"
            raise InputError(f"[evaluate] {what}; partition with --valid 0.1, or leave the key out")

    @property
    def elsewhere(self) -> tuple[bool, str]:
        """Whether another process than the server's scores its test set, and the key that asks."""
        key = "behind = true" if self.behind else f"where = '{self.where}'"
        return self.behind or self.where != "server", f"[evaluate] {key}"

    @property
    def keeps_best(self) -> bool:
        """Whether the best model is kept, unless silos have models of their own."""
        return self.patience is not None if self.keep_best is None else self.keep_best

    @property
    def wanted(self) -> float | None:
        """The target, by either of its two keys."""
        return self.target_accuracy if self.target is None else self.target

    @property
    def stops_at(self) -> float | None:
        """The target if the training ends at it, else None."""
        return self.wanted if self.stop_at_target else None


class Checkpoint(_Table):
    """`[checkpoint]`: how often checkpoints are written, how many are kept, and how."""

    every: PositiveInt = 10
    """Write a checkpoint after every so many rounds."""
    keep: PositiveInt = 3
    """How many of the latest checkpoints are kept."""
    background: bool = False
    """Write checkpoints while the next rounds train; a checkpoint counts when all ranks have written it."""
    mirror: bool = False
    """Let every rank keep the server's state after each round, in case the server dies."""


class Tracking(_Table):
    """`[tracking]`: which outputs and observers get the record of each round."""

    console: bool | Literal["always"] = True
    """Show progress: on a terminal a line each round; elsewhere at most 100 lines, with "always" all."""
    jsonl: bool = True
    """Write metrics.jsonl, one object for each round, into the run folder."""
    tensorboard: bool = False
    """Write TensorBoard event files into RUN/tensorboard."""
    mlflow: bool = False
    """Log to MLflow: to ./mlruns, or to MLFLOW_TRACKING_URI if it is set."""
    wandb: bool = False
    """Log to Weights & Biases; with WANDB_MODE=offline to RUN/wandb alone."""
    step_losses: NonNegativeInt = 0
    """Record each silo's mean training loss of every so many steps; 0 records none."""
    observers: list[str] = []
    """The user's own observers, each as "package.module:Class"."""
