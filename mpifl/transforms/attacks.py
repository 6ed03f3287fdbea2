"""The `[attack]` table: silos that lie on purpose, for tests and tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from mpifl.aggregation import FORGERIES, Forged, Forging, Rule, Weighing
from mpifl.common import InputError, rng
from mpifl.data import AnySpec
from mpifl.server import Server
from mpifl.silo import Silo
from mpifl.tasks import Task
from mpifl.transforms.backdoor import SUCCESS, Backdoor
from mpifl.transforms.base import Message, Transform
from mpifl.transforms.statistics import STATISTICS
from mpifl.wire import Purpose, Summed, Uniform, Update, unmarked

_BEFORE = "w before"
"""What a free rider keeps: the model that it was sent last."""
_OF_KINDS = {
    "std": ("gaussian",),
    "factor": ("scale", "backdoor"),
    "z": ("alie",),
    "epsilon": ("ipm",),
    "direction": ("min_max",),
    "keep_optimizer": ("label_flip", "sign_flip", "scale", "gaussian", "backdoor"),
    **dict.fromkeys(("target", "patch", "value", "share"), ("backdoor",)),
}


class AttackSettings(BaseModel):
    """`[attack]`: which silos lie, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: Literal[
        "none",
        "label_flip",
        "backdoor",
        "sign_flip",
        "gaussian",
        "scale",
        "free_rider",
        "alie",
        "ipm",
        "mimic",
        "min_max",
    ] = "none"
    """What they learn of (labels turned round, a backdoor), or send: the negative, noise, a multiple, how the
    model changed last, or what follows from all honest updates."""
    silos: list[Annotated[int, Field(ge=0)]] = []
    """The silos that lie, by number."""
    std: PositiveFloat | None = None
    """For gaussian: the standard deviation of each element; 1 unless given."""
    factor: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """The multiple: for scale 10 unless given, for backdoor 1."""
    z: Annotated[float, Field(ge=-100, le=100)] | None = None
    """For alie: how many standard deviations from the mean; the paper's unless given."""
    epsilon: PositiveFloat | None = None
    """For ipm: the part of the mean whose negative is sent; 0.1 unless given."""
    direction: Literal["std", "unit", "sign"] | None = None
    """For min_max: away from the mean along the standard deviations, the mean itself or its signs; std unless
    given."""
    target: Annotated[int, Field(ge=0)] | None = None
    """For backdoor: the class that patched examples are to be taken for; 0 unless given."""
    patch: PositiveInt | None = None
    """For backdoor: how many numbers it is long, at the end of the last two dimensions; 3 unless given."""
    value: float | None = None
    """For backdoor: what these numbers are, as a model sees them; 1 unless given."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """For backdoor: of a liar's examples, those with the patch; 0.5 unless given."""
    keep_optimizer: bool | None = None
    """For liars that train: false has their optimizers begin anew in each round, so that they have no worker
    momentum; else as `[local]` says."""

    @model_validator(mode="after")
    def _consistent(self) -> AttackSettings:
        for key, kinds in _OF_KINDS.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                goes = "' or '".join(kinds)
                what = f"goes with kind = '{goes}', not with '{self.kind}'"
                raise ValueError(f"{key} = {getattr(self, key)}: {what}")
        if (self.kind == "none") != (not self.silos):
            raise ValueError("name kind, what liars send, and silos, who they are; or leave both out")
        return self

    @property
    def warning(self) -> str:
        """What is said at each start."""
        if self.kind == "none":
            return ""
        who = ", ".join(map(str, sorted(self.silos)))
        return f"[attack] kind = '{self.kind}': SILOS {who} LIE ON PURPOSE, for tests and tables alone"

    @property
    def backdoor(self) -> Backdoor | None:
        """What liars teach a patch of, if they do."""
        if self.kind != "backdoor":
            return None
        value = 1.0 if self.value is None else self.value
        return Backdoor(self.target or 0, self.patch or 3, value, self.share or 0.5)

    def check(self, spec: AnySpec, task: Task, *, is_mean: bool) -> None:
        """See that there are these silos, and what they falsify.

        Raises:
            InputError: there are not.
        """
        key, silos = f"[attack] kind = '{self.kind}'", len(spec.silos)
        if beyond := [silo for silo in self.silos if silo >= silos]:
            what = f"there is no silo {beyond[0]}, the last is {silos - 1}"
            raise InputError(f"[attack] silos = {self.silos}: {what}")
        if self.kind == "label_flip" and spec.classes is None:
            raise InputError(f"{key}: the targets are no classes; take another kind")
        if self.backdoor and (why := self.backdoor.why_not(spec, task)):
            raise InputError(f"{key}: {why}; take another kind")
        if self.kind in FORGERIES and is_mean:
            why = "is written over single vectors, which the mean does not keep"
            raise InputError(f"{key}: {why}; take another [aggregation] rule")

    def transforms(self, seed: int, classes: int | None) -> list[Transform]:
        """Return what liars do at their silos, if they do."""
        if self.kind == "none" or self.kind in FORGERIES:
            return []
        sizes = {"gaussian": self.std or 1.0, "scale": self.factor or 10.0, "backdoor": self.factor or 1.0}
        size = sizes.get(self.kind, 1.0)
        anew = self.keep_optimizer is False
        return [Lying(self.kind, frozenset(self.silos), size, seed, classes or 0, self.backdoor, anew)]

    def forged(self, rule: Rule | Weighing | None) -> Rule | Weighing | Forged | None:
        """Return a rule before which liars' vectors are written over, if they are."""
        if rule is None or self.kind not in FORGERIES:
            return rule
        how = self.z, self.epsilon or 0.1, self.direction or "std"
        return Forged(rule, Forging(self.kind, frozenset(self.silos), *how))

    def figures(self, server: Server) -> dict[str, float]:
        """Return what is known of the model beside its metrics: how often the backdoor opens."""
        if self.backdoor is None or not server.judges:
            return {}
        return {SUCCESS: self.backdoor.success(server)}


@dataclass(frozen=True)
class Lying(Transform):
    """Have some silos falsify their examples or their updates; running statistics stay as they are.

    Attributes:
        kind: How.
        silos: Which.
        size: The standard deviation of noise, or the multiple.
        seed: The job's, from which noise is drawn.
        classes: Of labels.
        backdoor: For the kind of that name.
        anew: Whether their optimizers begin anew in each round.
    """

    kind: str
    silos: Collection[int]
    size: float
    seed: int
    classes: int
    backdoor: Backdoor | None = None
    anew: bool = False

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Turn labels round, y to classes - 1 - y, poison examples, or remember the model."""
        if silo.id in self.silos and purpose == "training":
            if self.anew:
                silo.forget_optimizer()
            if self.kind == "label_flip":
                silo.relabel(lambda y: self.classes - 1 - y)
            if self.backdoor is not None:
                self.backdoor.teach(silo, self.seed)
            if self.kind == "free_rider" and isinstance(message.get("w"), Tensor):
                silo.received[_BEFORE] = message["w"]
        return message

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Falsify all vectors of the update but statistics and sums."""
        learned = self.kind == "label_flip" or (self.kind == "backdoor" and self.size == 1.0)
        if silo.id not in self.silos or purpose != "training" or learned:
            return update
        for name, value in update.vectors.items():
            if name != STATISTICS and not isinstance(value, Summed):
                lie = self._lie(silo, name, unmarked(value))
                update.vectors[name] = Uniform(lie) if isinstance(value, Uniform) else lie
        if _BEFORE in silo.received:
            silo.keep(**{_BEFORE: silo.received[_BEFORE].clone()})
        return update

    def _lie(self, silo: Silo, name: str, vector: Tensor) -> Tensor:
        if self.kind == "sign_flip":
            return -vector
        if self.kind in ("scale", "backdoor"):
            return vector * self.size
        if self.kind == "gaussian":
            draw = rng.torch_stream(self.seed, f"attack on {name}", silo.id, silo.round)
            noise = torch.empty(len(vector)).normal_(0.0, self.size, generator=draw)
            return noise.to(vector.device)
        before, now = silo.state.get(_BEFORE), silo.received.get(_BEFORE)
        if before is None or now is None or len(now) != len(vector):
            return torch.zeros_like(vector)
        step: Tensor = now - before
        return step
