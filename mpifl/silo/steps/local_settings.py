"""The `[local]` table of a job: how a silo trains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from mpifl.silo.steps.local_fits import LOCAL, refuse_idle
from mpifl.silo.steps.schedule import RateSchedule, Shape

if TYPE_CHECKING:  # a job can be read without importing torch
    import torch

BufferRule: TypeAlias = Literal["any", "all", "min", "max", "reset"]
"""How a buffer that training writes is combined, if it is not averaged."""
LARGEST = 1e30
"""The largest factor: it multiplies float32 numbers, which end at 3e38."""
LARGEST_BATCH = 2**31
"""The most examples that a round's batch may have."""
OWN_WORK = {"epochs", "steps", "epochs_by_silo", "straggler_chance"}
"""Keys of `[local]` that give silos unequal work without a change of the step."""
EVALUATION_BATCH = 1000
"""Examples in a batch of a pass over all of a silo's examples. The size matters for memory only."""
EvaluationBatch: TypeAlias = PositiveInt | Literal["auto"]
"""Examples that are scored at a time; "auto" is as many as fit in memory."""


def nearest(number: float) -> int:
    """Return the nearest whole number; halves are rounded up."""
    return math.floor(number + 0.5)


def _grown(begun: float, by: float, times: int) -> float:
    """Return log(begun * by^times), which does not overflow."""
    return math.log(begun) + times * math.log(by)


class LocalTraining(BaseModel):
    """The `[local]` table of a job: the optimizer, the amount of work and the batches of a silo's round."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    filled_in: ClassVar[dict[str, Any]] = {"epochs": 1}
    """The values of keys that are left out, if they differ from the fields' defaults."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """The optimizer of a silo's steps."""
    lr: Annotated[float, Field(gt=0, le=LARGEST)] = 0.1
    """The learning rate; also the step size of FedSGD and the h of FSVRG."""
    lr_decay: Annotated[float, Field(gt=0)] = 1.0
    """The learning rate of round t is lr * lr_decay^t."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The momentum of sgd."""
    nesterov: bool = False
    """Use Nesterov's momentum."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """The decay of the first moment, of adam and adamw."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """The decay of the second moment, of adam and adamw."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment, of adam and adamw."""
    weight_decay: Annotated[float, Field(ge=0, le=LARGEST)] = 0.0
    """This factor times the parameters is added to the gradient; adamw decays the parameters themselves."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Scale a step's gradient down to this L2 norm if it is longer."""
    schedule: Shape = "constant"
    """How the learning rate changes after the warm-up; "linear" and "cosine" end at 0."""
    warmup: NonNegativeInt = 0
    """The number of steps in which the learning rate grows to lr."""
    schedule_rounds: PositiveInt = 1
    """How many rounds the schedule spans; 1: it starts anew each round. More than 1 needs steps."""
    keep_optimizer_state: bool = False
    """Start from the optimizer's moments of the silo's last round, instead of zeros."""
    epochs: PositiveInt | None = None
    """Passes over a silo's examples in a round; 1 unless steps or epochs_by_silo is given."""
    epochs_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The epochs of round t are epochs * epochs_decay^t, to the nearest whole number; also for
    epochs_by_silo."""
    steps: PositiveInt | None = None
    """Number of optimizer steps in a round, instead of epochs."""
    batch_size: PositiveInt | Literal["full"] = 10
    """Examples in a batch; "full" is all of the silo's."""
    batch_growth: Annotated[float, Field(ge=1)] = 1.0
    """The batch of round t has batch_size * batch_growth^t examples, to the nearest whole number."""
    accumulate_batches: PositiveInt = 1
    """How many batches make one step. It equals a step over all of them, in the memory of one."""
    drop_last: bool = False
    """Leave out an epoch's last batch if it is smaller; BatchNorm cannot train on a batch of one example.
    """
    straggler_chance: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The chance that a silo does only a part of its epochs or steps in a round. The part is drawn from 1 to
    all."""
    deadline: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a silo stops training and answers; bits then depend on the clock."""
    epochs_by_silo: list[PositiveInt] | None = None
    """Epochs of silo 0, 1, 2, ..., instead of epochs; the list repeats if there are more silos."""
    compile: bool = False
    """Compile the whole step to machine code where possible; it equals the plain step up to rounding."""
    batch_silos: bool = False
    """Take the steps of several silos of a rank as one where possible; it equals the plain way up to
    rounding."""
    silos_per_step: Annotated[int, Field(ge=2, le=1024)] = 16
    """How many silos one batched step covers; a smaller group is padded."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """The precision of forward and backward passes. All but fp32 need a GPU; parameters stay float32."""

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
            if getattr(self, key) != type(self).model_fields[key].default:  # a resolved job has the defaults
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
            raise ValueError(
                "schedule_rounds above 1 counts steps, of which all silos need the same number; give steps"
            )
        if self.schedule_rounds > 1 and self.straggler_chance:
            raise ValueError(
                "schedule_rounds above 1 counts steps, and straggler_chance takes fewer; leave one out"
            )
        for way in ("usual", *(way for way in ("compile", "batch_silos") if getattr(self, way))):
            if why := LOCAL.why_not(way, self):
                raise ValueError(why)
        if not self.batch_silos and self.silos_per_step != type(self).model_fields["silos_per_step"].default:
            raise ValueError("silos_per_step is of batched steps; use batch_silos = true, or leave it out")
        if self.keep_optimizer_state and self.optimizer == "sgd" and not self.momentum:
            raise ValueError("keep_optimizer_state: sgd without momentum has nothing to keep; leave it out")
        return self

    @model_validator(mode="after")
    def _all_have_effect(self) -> LocalTraining:
        if self.batch_size == "full":
            what = "all of a silo's examples are one batch, and none is smaller"
            refuse_idle(self, ["drop_last"], f"{what}; give batch_size a number, or leave it out")
        if self.constant_rate:
            what = "spans a schedule or a warm-up, and there is none"
            refuse_idle(self, ["schedule_rounds"], f"{what}; give schedule or warmup, or leave it out")
        return self

    def at_round(self, round: int) -> LocalTraining:
        """Return these settings with the learning rate, epochs and batch size of a round, counted from 0."""
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
        """Return these settings with exactly this many epochs or steps, in every round and at every silo."""
        length = {"epochs": epochs, "steps": steps, "epochs_by_silo": None}
        return self.model_copy(update={**length, "epochs_decay": 1.0, "straggler_chance": 0.0})

    def check_rounds(self, rounds: int) -> None:
        """Check that every round has a usable learning rate, a step and a batch.

        Raises:
            ValueError: a round has not; the line says what to do.
        """
        last, size = rounds - 1, self.batch_size
        epochs = min(self.epochs_by_silo or [self.epochs or 1])
        if self.lr_decay > 1 and _grown(self.lr, self.lr_decay, last) > math.log(LARGEST):
            what = f"a learning rate above {LARGEST:g}; use at most 1"
            raise ValueError(f"[local] lr_decay = {self.lr_decay:g}: round {rounds} has {what}")
        if self.epochs_decay < 1 and _grown(epochs, self.epochs_decay, last) < math.log(0.5):
            few = f"{epochs * self.epochs_decay**last:.2g} epochs, which leaves less than one step"
            what = f"{few}; use more epochs, fewer rounds or a larger epochs_decay"
            raise ValueError(f"[local] epochs_decay = {self.epochs_decay:g}: round {rounds} has {what}")
        if size != "full" and _grown(size, self.batch_growth, last) > math.log(LARGEST_BATCH):
            what = f"a batch above {LARGEST_BATCH:g} examples; use a smaller batch_growth, or 'full'"
            raise ValueError(f"[local] batch_growth = {self.batch_growth:g}: round {rounds} has {what}")

    def of_silo(self, silo: int, generator: torch.Generator) -> LocalTraining:
        """Return the settings of one silo: its own epochs, cut short if it is a straggler."""
        settings = self
        if self.epochs_by_silo is not None:
            settings = settings.model_copy(
                update={"epochs": self.epochs_by_silo[silo % len(self.epochs_by_silo)]}
            )
        return settings._cut_short(generator) if self.straggler_chance else settings

    def _cut_short(self, generator: torch.Generator) -> LocalTraining:
        """Draw whether a silo is a straggler, and how much work it does."""
        import torch

        if float(torch.rand((), generator=generator)) >= self.straggler_chance:
            return self
        unit, whole = ("epochs", self.epochs) if self.epochs else ("steps", self.steps or 1)
        return self.model_copy(update={unit: int(torch.randint(1, whole + 1, (), generator=generator))})

    @property
    def full(self) -> bool:
        """Whether passes store their numbers as float32."""
        return self.precision in ("fp32", "tf32")

    @property
    def one_step(self) -> bool:
        """Whether these settings say that a schedule is of one step, whatever silos hold."""
        full = self.batch_size == "full" and self.epochs == 1
        return self.schedule_rounds == 1 and (self.steps == 1 or full)

    @property
    def constant_rate(self) -> bool:
        """Whether all steps of a round have the same learning rate."""
        return self.schedule == "constant" and not self.warmup

    def rates(self, round: int) -> dict[str, float]:
        """Return what a record tells of the learning rate in a round, counted from 0: of its first step, and
        of its last where `steps` says which that is. Nothing where the job leaves it as it is."""
        if self.constant_rate and self.lr_decay == 1:
            return {}
        schedule = self.at_round(round).schedule_of(round, self.steps or 1)
        first = {"learning_rate": schedule.lr(0)}
        return {**first, "learning_rate_last": schedule.lr(self.steps - 1)} if self.steps else first

    def schedule_of(self, round: int, steps: int) -> RateSchedule:
        """Return the learning rates of a round, counted from 0, in which a silo takes `steps` steps."""
        done = round % self.schedule_rounds * steps
        return RateSchedule(self.schedule, self.warmup, steps * self.schedule_rounds, done, self.lr)
