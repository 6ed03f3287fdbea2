"""The tables of a job that are the same for every algorithm: model, data, evaluate, checkpoint, tracking."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from mpifl.common import InputError, Table
from mpifl.silo.steps import EVALUATION_BATCH, BufferRule, EvaluationBatch


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Model(BaseModel):
    """`[model]`: which one, the weights it starts from, and its own arguments."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    name: str
    """A built-in model, or the user's own as "package.module:factory"; its arguments stand beside it."""
    weights: str | None = None
    """A safetensors file of parameters to start from."""
    strict: bool = True
    """Whether that file must have all parameters and no others; if not, what fits by name and shape is taken,
    and a line says what was left out."""
    save: Literal["all", "trained"] = "all"
    """What model.safetensors holds: all parameters, or those that are trained, such as LoRA's adapters."""
    buffers: dict[str, BufferRule] = {}
    """What becomes of buffers that training writes, by names or patterns: "min" and "max" over silos; flags
    by "any" and "all"; "reset" begins them anew in each training."""

    @property
    def arguments(self) -> Table:
        """The keys that the model's factory takes."""
        return dict(self.model_extra or {})


class Data(_Table):
    """`[data]`: what is done to the examples that silos train on."""

    augment: str | None = None
    """"flip", "crop" or "flip-crop" of images, or the user's own as "package.module:function"; drawn anew for
    each batch of training."""


class Evaluate(_Table):
    """`[evaluate]`: how often, and the value of the task's main metric that the user waits for."""

    every: PositiveInt = 1
    """Score the model after every so many rounds."""
    batch_size: EvaluationBatch = EVALUATION_BATCH
    """The most examples that are scored at a time; of large ones fewer are. "auto" halves them where memory
    is short."""
    where: Literal["server", "workers"] = "server"
    """Who scores the server's test set; "workers" are sent it, once, and their figures are believed."""
    silos: bool = True
    """Score the model at every silo that holds out a split."""
    target: float | None = None
    """The value of the main metric to wait for, on the test set, or else on what the silos hold out."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """The same where the main metric is the accuracy; rounds, bytes and seconds to it are reported."""
    stop_at_target: bool = False
    """End the training when the target is reached."""
    split: Literal["valid"] | None = None
    """Judge by the silos' valid splits; test is scored once, at the end. By default test, else valid."""
    patience: PositiveInt | None = None
    """End the training after so many evaluations without a better main metric."""
    keep_best: bool = False
    """Keep the model with the best main metric in best.safetensors, beside that of the end."""

    @model_validator(mode="after")
    def _consistent(self) -> Evaluate:
        if self.target is not None and self.target_accuracy is not None:
            raise ValueError("target and target_accuracy are two names of one key; take one of them")
        if self.stop_at_target and self.wanted is None:
            needed = "target_accuracy, or target where another metric is the main one"
            raise ValueError(f"stop_at_target needs {needed}")
        if self.split is not None and not self.silos:
            raise ValueError("split: silos = false has no silo score it; leave one of them out")
        return self

    def check(self, splits: Collection[str]) -> None:
        """See that a silo has the split to judge by.

        Args:
            splits: Those that there are.

        Raises:
            InputError: none has it.
        """
        if self.split is not None and self.split not in splits:
            what = f"split = '{self.split}': no silo has such a split"
            raise InputError(f"[evaluate] {what}; partition with --valid 0.1, or leave the key out")

    @property
    def wanted(self) -> float | None:
        """The target, by whichever key it is given."""
        return self.target_accuracy if self.target is None else self.target

    @property
    def stops_at(self) -> float | None:
        """The target where the training ends at it."""
        return self.wanted if self.stop_at_target else None


class Checkpoint(_Table):
    """`[checkpoint]`: how often, how many are kept, and what for."""

    every: PositiveInt = 10
    """Write a checkpoint after every so many rounds."""
    keep: PositiveInt = 3
    """How many checkpoints are kept, the latest."""
    background: bool = False
    """Write it while the next rounds train; it counts when all ranks have written it."""
    mirror: bool = False
    """Let every rank keep the server's state after each round, in case the server dies."""


class Tracking(_Table):
    """`[tracking]`: who is told of each round."""

    console: bool | Literal["always"] = True
    """Show progress on a terminal; "always" prints plain lines elsewhere, too."""
    jsonl: bool = True
    """Write metrics.jsonl, an object a round, into the run folder."""
    tensorboard: bool = False
    """Write TensorBoard event files into RUN/tensorboard."""
    mlflow: bool = False
    """Log to MLflow: to ./mlruns, or where MLFLOW_TRACKING_URI says."""
    observers: list[str] = []
    """Observers of the user's own, each "package.module:Class"."""
