"""The `[aggregation]` table: how updates are combined to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from mpifl.common import choices


@dataclass(frozen=True)
class ByColumns:
    """What a rule of columns asks for.

    Attributes:
        tolerates: Whether it must know how many silos may be Byzantine, by the key `byzantine`.
    """

    tolerates: bool = False


@dataclass(frozen=True)
class ByWeights(ByColumns):
    """The keys and properties of a rule by weights.

    Attributes:
        keys: Its own keys.
        chooses: Whether it gives some silos the weight 0 by design.
        trains: Whether the server trains on public examples for it, as silos train on their own.
    """

    keys: tuple[str, ...] = ()
    chooses: bool = False
    trains: bool = False


BY_COLUMNS = {"median": ByColumns(), "trimmed": ByColumns(tolerates=True)}
"""The rules of columns, and what they ask for; `rule_of` goes by it."""
BY_WEIGHTS = {
    "krum": ByWeights(tolerates=True, chooses=True),
    "multikrum": ByWeights(tolerates=True, keys=("m",), chooses=True),
    "rfa": ByWeights(keys=("nu", "iterations")),
    "centered": ByWeights(keys=("tau", "iterations")),
    "fltrust": ByWeights(trains=True),
}
"""The rules by weights; a test compares them with the rules themselves."""
RULE_NAMES = ("mean", *BY_COLUMNS, *BY_WEIGHTS)
"""The rules of `[aggregation] rule`: the mean, rules of columns, and rules by weights."""
_TOLERATING = [name for name, kind in (BY_COLUMNS | BY_WEIGHTS).items() if kind.tolerates]
OF_RULES = {
    "m": "how many silos it takes the mean of",
    "tau": "how far from the last aggregate an update may be",
    "nu": "",
    "iterations": "",
}
"""Keys of rules by weights; those that a rule needs have their meaning, for the error."""


class AggregationSettings(BaseModel):
    """`[aggregation]`: the mean or another rule, and its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    rule: str = "mean"
    """The rule: mean; median or trimmed by columns; krum, multikrum, rfa, centered or fltrust by weights; or
    the user's own function of columns or class of weights, "package.module:name"."""
    byzantine: Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, lt=0.5)] | None = None
    """For trimmed, krum, multikrum and pre = "nnm": how many silos may be Byzantine, or their share."""
    pre: Literal["none", "nnm", "bucketing"] = "none"
    """A step before the rule: replace each update by the mean of its nearest neighbours ("nnm"), or take
    means of buckets of silos, drawn in each round ("bucketing")."""
    s: Annotated[int, Field(ge=2)] | None = None
    """For bucketing: silos in a bucket. The default is 2."""
    m: PositiveInt | None = None
    """For multikrum: how many silos it averages."""
    tau: PositiveFloat | None = None
    """For centered: the largest distance (L2 norm) from the last aggregate that an update may have."""
    nu: PositiveFloat | None = None
    """For rfa: an update closer than this to the median gets no more weight. The default is 1e-6."""
    iterations: Annotated[int, Field(gt=0, le=100_000)] | None = None
    """For rfa and centered: the most iterations. The defaults are 1000 and 1."""
    disk_buffer: str | None = None
    """For any rule but the mean: a folder that holds the silos' vectors, in place of memory."""
    clip: PositiveFloat | None = None
    """The largest L2 norm of an update; a longer update is scaled down to it."""

    @model_validator(mode="after")
    def _consistent(self) -> AggregationSettings:
        """Check that the keys go together, without importing the user's own rule."""
        if self.rule not in RULE_NAMES and not self._own:
            own = "your own 'package.module:name'"
            raise ValueError(
                f"rule = '{self.rule}': unknown; {choices(self.rule, RULE_NAMES, 'use')} or {own}"
            )
        if self.is_mean and self.pre != "none":
            raise ValueError(f"pre = '{self.pre}': goes with another rule than the mean")
        self._check_tolerate()
        for key, meaning in OF_RULES.items():
            self._check_key(key, meaning)
        if self.s is not None and self.pre != "bucketing":
            raise ValueError(f"s = {self.s}: goes with pre = 'bucketing', not with '{self.pre}'")
        if self.is_mean and self.disk_buffer is not None:
            why = "goes with a rule of columns or weights; the mean keeps no silo's vector"
            raise ValueError(f"disk_buffer = '{self.disk_buffer}': {why}")
        return self

    def _check_tolerate(self) -> None:
        needed = self.rule in _TOLERATING or self.pre == "nnm"
        if needed and self.byzantine is None:
            which = f"rule = '{self.rule}'" if self.rule in _TOLERATING else f"pre = '{self.pre}'"
            raise ValueError(f"{which} needs byzantine: how many silos may lie, or which share of them")
        if self.byzantine is not None and not needed and not self._own:
            goes = ", ".join(f"'{name}'" for name in _TOLERATING)
            what = f"goes with rule = {goes} or pre = 'nnm', not with '{self.rule}'"
            raise ValueError(f"byzantine = {self.byzantine}: {what}")

    def _check_key(self, key: str, meaning: str) -> None:
        given, takers = getattr(self, key), [name for name, kind in BY_WEIGHTS.items() if key in kind.keys]
        if given is None and meaning and self.rule in takers:
            raise ValueError(f"rule = '{self.rule}' needs {key}: {meaning}")
        if given is not None and self.rule not in takers:
            goes = " or ".join(f"'{name}'" for name in takers)
            raise ValueError(f"{key} = {given}: goes with rule = {goes}, not with '{self.rule}'")

    @property
    def is_mean(self) -> bool:
        """Whether the rule is the mean."""
        return self.rule == "mean"

    @property
    def trains_at_server(self) -> bool:
        """Whether the server trains the model on public examples."""
        return self.rule in BY_WEIGHTS and BY_WEIGHTS[self.rule].trains

    @property
    def _own(self) -> bool:
        return ":" in self.rule


def with_uniform_weights(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job's tables, with `[cohort] weights = "uniform"` if a rule replaces the mean.

    Weights that the job gives stay.
    """
    aggregation, cohort = job.get("aggregation"), job.get("cohort", {})
    if not (isinstance(aggregation, dict) and isinstance(cohort, dict)):
        return job
    if aggregation.get("rule", "mean") == "mean":
        return job
    return {**job, "cohort": {"weights": "uniform", **cohort}}
