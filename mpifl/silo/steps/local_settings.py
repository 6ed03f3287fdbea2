"""The `[local]` table of a job: how a silo trains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from mpifl.silo.steps.local_fits import LOCAL
from mpifl.silo.steps.schedule import RateSchedule, Shape

if TYPE_CHECKING:  # a job is looked at without paying for torch
    import torch

BufferRule: TypeAlias = Literal["any", "all", "min", "max", "reset"]
"""What becomes of a buffer that training writes, where it is not averaged."""
LARGEST = 1e30
"""Of a factor: what it multiplies is float32, which ends at 3e38."""
LARGEST_BATCH = 2**31
"""Examples that no round's batch is to exceed."""
OWN_WORK = {"epochs", "steps", "epochs_by_silo", "straggler_chance"}
"""Keys of `[local]` by which silos may do unequal work with one and the same step."""
EVALUATION_BATCH = 1000
"""Examples of a pass over all of a silo's, whose size is of no consequence but for memory."""
EvaluationBatch: TypeAlias = PositiveInt | Literal["auto"]
"""Examples that are scored at a time; "auto" are as many as memory takes."""


def nearest(number: float) -> int:
    """Return the nearest whole number; of two as near, the larger."""
    return math.floor(number + 0.5)


def _grown(begun: float, by: float, times: int) -> float:
    """Return the logarithm of what has been multiplied so many times, which does not overflow."""
    return math.log(begun) + times * math.log(by)


class LocalTraining(BaseModel):
    """The `[local]` table of a job: the optimizer,
    how far and in which batches a silo trains in one round."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    filled_in: ClassVar[dict[str, Any]] = {"epochs": 1}
    """What keys are that nobody has given, where it is not their default."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """The optimizer of a silo's steps."""
    lr: Annotated[float, Field(gt=0, le=LARGEST)] = 0.1
    """The learning rate; the step size of FedSGD and the h of FSVRG, too."""
    lr_decay: Annotated[float, Field(gt=0)] = 1.0
    """The learning rate of round t is lr * lr_decay^t."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The momentum of sgd."""
    nesterov: bool = False
    """Take Nesterov's momentum."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """The decay of the first moment, of adam and adamw."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """The decay of the second moment, of adam and adamw."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment, of adam and adamw."""
    weight_decay: Annotated[float, Field(ge=0, le=LARGEST)] = 0.0
    """The factor of the parameters that is added to the gradient; adamw decays the parameters themselves."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Scale the gradient of a step down to this L2 norm where it is longer."""
    schedule: Shape = "constant"
    """How the learning rate goes on after the warm-up; "linear" and "cosine" end at 0."""
    warmup: NonNegativeInt = 0
    """Steps over which the learning rate grows to lr."""
    schedule_rounds: PositiveInt = 1
    """How many rounds the schedule spans; 1: each round begins it anew. More of them need steps."""
    keep_optimizer_state: bool = False
    """Go on with the optimizer's moments of the silo's last round, in place of zeros."""
    epochs: PositiveInt | None = None
    """Passes over a silo's examples in a round; 1 unless steps or epochs_by_silo is given."""
    epochs_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The epochs of round t are epochs * epochs_decay^t, to the nearest whole number; epochs_by_silo, too."""
    steps: PositiveInt | None = None
    """Number of optimizer steps in a round, in place of epochs."""
    batch_size: PositiveInt | Literal["full"] = 10
    """Examples in a batch; "full" is all of the silo's."""
    batch_growth: Annotated[float, Field(ge=1)] = 1.0
    """The batch of round t has batch_size * batch_growth^t examples, to the nearest whole number."""
    accumulate_batches: PositiveInt = 1
    """How many batches make one step. It equals a step over all of them, in the memory of one."""
    drop_last: bool = False
    """Leave out an epoch's last batch where it is smaller; BatchNorm cannot train on a batch of one example.
    """
    straggler_chance: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The chance that a silo does only a part of its epochs or steps in a round, drawn from 1 to all."""
    deadline: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a silo answers with what it has done; bits then depend on the clock."""
    epochs_by_silo: list[PositiveInt] | None = None
    """Epochs of silo 0, 1, 2, ..., in place of epochs; the list repeats where there are more silos."""
    compile: bool = False
    """Compile the whole step to machine code where that can be done; it equals the plain step to rounding."""
    batch_silos: bool = False
    """Take the steps of several silos of a rank as one where that can be done; it equals the plain way to
    rounding."""
    silos_per_step: Annotated[int, Field(ge=2, le=1024)] = 16
    """How many silos one batched step covers; a smaller group is padded."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """What forward and backward passes compute in; all but fp32 need a GPU, and parameters stay float32."""

    @model_validator(mode="before")
    @classmethod
    def _one_epoch(cls, given: Any) -> Any:
        if isinstance(given, dict) and all(
            given.get(k) is None for k in ("steps", "epochs", "epochs_by_silo")
        ):
            return {**given, **cls.filled_in}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> LocalTraining:
        given = [key for key in ("epochs", "epochs_by_silo", "steps") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"takes {given[0]} or {given[1]}, not both")
        if self.optimizer != "sgd" and self.momentum:
            raise ValueError(f"momentum belongs to sgd; {self.optimizer} takes beta1 and beta2")
        for key in ("beta1", "beta2", "epsilon") if self.optimizer == "sgd" else ():
            if getattr(self, key) != type(self).model_fields[key].default:  # which a resolved job has
                raise ValueError(f"{key} belongs to adam and adamw; sgd takes momentum")
        if self.accumulate_batches > 1 and self.batch_size == "full":
            raise ValueError(
                "accumulate_batches adds up batches, and 'full' is one; give batch_size a number"
            )
        if self.batch_growth > 1 and self.batch_size == "full":
            raise ValueError("batch_growth: a batch of all examples does not grow; give batch_size a number")
        if self.epochs_decay < 1 and self.steps is not None:
            raise ValueError("epochs_decay is of epochs, and steps are given; give epochs or epochs_by_silo")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum above 0")
        if self.schedule_rounds > 1 and self.steps is None:
            raise ValueError("schedule_rounds above 1 counts steps, as all silos take alike; give steps")
        if self.schedule_rounds > 1 and self.straggler_chance:
            raise ValueError(
                "schedule_rounds above 1 counts steps, and straggler_chance takes fewer; leave one out"
            )
        for way in ("usual", *(way for way in ("compile", "batch_silos") if getattr(self, way))):
            if why := LOCAL.why_not(way, self):
                raise ValueError(why)
        if not self.batch_silos and self.silos_per_step != type(self).model_fields["silos_per_step"].default:
            raise ValueError("silos_per_step is of batched steps; take batch_silos = true, or leave it out")
        if self.keep_optimizer_state and self.optimizer == "sgd" and not self.momentum:
            raise ValueError("keep_optimizer_state: sgd without momentum has nothing to keep; leave it out")
        return self

    def at_round(self, round: int) -> LocalTraining:
        """Return these settings with the learning rate, epochs and batches of a round, counted from 0."""
        changed: dict[str, Any] = {}
        if self.lr_decay != 1:
            changed["lr"] = self.lr * self.lr_decay**round
        if self.epochs_decay != 1:
            by = self.epochs_decay**round
            changed["epochs"] = self.epochs and nearest(self.epochs * by)
            changed["epochs_by_silo"] = self.epochs_by_silo and [
                nearest(epochs * by) for epochs in self.epochs_by_silo
            ]
        if self.batch_growth != 1 and self.batch_size != "full":
            changed["batch_size"] = nearest(self.batch_size * self.batch_growth**round)
        return self.model_copy(update=changed) if changed else self

    def lasting(self, *, epochs: int | None = None, steps: int | None = None) -> LocalTraining:
        """Return these settings for just so many epochs or steps, in every round and at every silo."""
        length = {"epochs": epochs, "steps": steps, "epochs_by_silo": None}
        return self.model_copy(update={**length, "epochs_decay": 1.0, "straggler_chance": 0.0})

    def check_rounds(self, rounds: int) -> None:
        """See that every round has a learning rate, a step and a batch.

        Raises:
            ValueError: one has not; the line says what would do.
        """
        last, size = rounds - 1, self.batch_size
        epochs = min(self.epochs_by_silo or [self.epochs or 1])
        if self.lr_decay > 1 and _grown(self.lr, self.lr_decay, last) > math.log(LARGEST):
            what = f"a learning rate above {LARGEST:g}; take at most 1"
            raise ValueError(f"[local] lr_decay = {self.lr_decay:g}: round {rounds} has {what}")
        if self.epochs_decay < 1 and _grown(epochs, self.epochs_decay, last) < math.log(0.5):
            few = f"{epochs * self.epochs_decay**last:.2g} epochs, which leaves less than one step"
            what = f"{few}; take more epochs, fewer rounds or a larger epochs_decay"
            raise ValueError(f"[local] epochs_decay = {self.epochs_decay:g}: round {rounds} has {what}")
        if size != "full" and _grown(size, self.batch_growth, last) > math.log(LARGEST_BATCH):
            what = f"a batch above {LARGEST_BATCH:g} examples; take a smaller batch_growth, or 'full'"
            raise ValueError(f"[local] batch_growth = {self.batch_growth:g}: round {rounds} has {what}")

    def of_silo(self, silo: int, generator: torch.Generator) -> LocalTraining:
        """Return the settings of one silo: the work that it is given, or what it gets done as a straggler."""
        settings = self
        if self.epochs_by_silo is not None:
            settings = settings.model_copy(
                update={"epochs": self.epochs_by_silo[silo % len(self.epochs_by_silo)]}
            )
        return settings._cut_short(generator) if self.straggler_chance else settings

    def _cut_short(self, generator: torch.Generator) -> LocalTraining:
        """Draw whether a silo is a straggler, and what it gets done."""
        import torch

        if float(torch.rand((), generator=generator)) >= self.straggler_chance:
            return self
        unit, whole = ("epochs", self.epochs) if self.epochs else ("steps", self.steps or 1)
        return self.model_copy(update={unit: int(torch.randint(1, whole + 1, (), generator=generator))})

    @property
    def full(self) -> bool:
        """Whether all numbers of a pass are float32."""
        return self.precision in ("fp32", "tf32")

    @property
    def constant_rate(self) -> bool:
        """Whether all steps of a round have one learning rate."""
        return self.schedule == "constant" and not self.warmup

    def schedule_of(self, round: int, steps: int) -> RateSchedule:
        """Return the learning rates of a round, counted from 0, in which a silo takes so many steps."""
        done = round % self.schedule_rounds * steps
        return RateSchedule(self.schedule, self.warmup, steps * self.schedule_rounds, done, self.lr)
