"""The `[aggregation]` table: how updates become one."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, model_validator

from mpifl.aggregation.rules import NAMES, Rule, rule_of


class AggregationSettings(BaseModel):
    """`[aggregation]`: the mean, or a rule of columns, and what goes with it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    rule: str = "mean"
    """mean, median, trimmed, or the user's own function of columns, "package.module:function"."""
    tolerate: PositiveInt | None = None
    """For trimmed: how many silos are left out at each end of a column."""
    spill: str | None = None
    """The folder where a rule of columns keeps the silos' vectors, in place of memory."""
    clip: PositiveFloat | None = None
    """Largest L2 norm of an update; one that is longer is scaled down to it."""

    @model_validator(mode="after")
    def _consistent(self) -> AggregationSettings:
        """See that the keys fit each other; the user's function is not imported for that."""
        rule, tolerate = self.rule, self.tolerate
        if rule not in NAMES and ":" not in rule:
            own = "your own 'package.module:function'"
            raise ValueError(f"rule = '{rule}': none such; take {', '.join(NAMES)} or {own}")
        if rule == "trimmed" and tolerate is None:
            raise ValueError("rule = 'trimmed' needs tolerate: how many silos to leave out at each end")
        if rule != "trimmed" and tolerate is not None:
            raise ValueError(f"tolerate = {tolerate}: goes with rule = 'trimmed', not with '{rule}'")
        if self.is_mean and self.spill is not None:
            why = "goes with a rule of columns; the mean keeps no silo's vector"
            raise ValueError(f"spill = '{self.spill}': {why}")
        return self

    @property
    def is_mean(self) -> bool:
        """Whether updates are averaged, and not combined by a rule of columns."""
        return self.rule == "mean"

    def check(self, weights: str, up: str) -> None:
        """See that the rule goes with `[cohort] weights` and `[compression] up`.

        Raises:
            ValueError: it does not.
        """
        if not self.is_mean and weights != "uniform":
            alike = f"by [aggregation] rule = '{self.rule}' silos count alike"
            why = "since a silo could claim any number of examples; take 'uniform', or leave it out"
            raise ValueError(f"[cohort] weights = '{weights}': {alike}, {why}")
        if not self.is_mean and up in ("qsgd", "topk"):
            why = f"[aggregation] rule = '{self.rule}' compares single elements, which it draws or leaves out"
            raise ValueError(f"[compression] up = '{up}': {why}; take 'bfloat16', 'float16' or 'none'")

    def build(self) -> Rule | None:
        """Return the rule of columns, or None for the mean.

        Raises:
            InputError: there is no such function.
        """
        return rule_of(self.rule, self.tolerate)


def with_uniform_weights(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job's tables, with `[cohort] weights = "uniform"` where a rule of columns has no weights."""
    aggregation, cohort = job.get("aggregation"), job.get("cohort", {})
    if not (isinstance(aggregation, dict) and isinstance(cohort, dict)):
        return job
    if aggregation.get("rule", "mean") == "mean":
        return job
    return {**job, "cohort": {"weights": "uniform", **cohort}}
