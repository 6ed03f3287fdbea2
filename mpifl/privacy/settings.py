"""The `[privacy]` table: what is protected, by how much noise, and how that is counted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator


class PrivacySettings(BaseModel):
    """`[privacy]`: differential privacy of each example, by noise that its own site draws."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    level: Literal["example"] = "example"
    """Whose presence is hidden: that of each example, in all that its silo answers."""
    clip: PositiveFloat
    """The L2 norm C that the gradient of one example is scaled down to where it is longer."""
    noise: Annotated[float, Field(ge=0.01, le=1e6)] | None = None
    """The noise multiplier z: the noise of a step's sum of gradients has the deviation z * clip."""
    epsilon: PositiveFloat | None = None
    """The budget, in place of noise: each silo takes the least noise with which all rounds stay below it."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """The delta of (epsilon, delta); at most 1 / the examples of the largest silo."""
    accountant: Literal["pld", "rdp"] = "pld"
    """How epsilon is counted: by privacy loss distributions, or by Renyi divergences, which say more."""
    evaluate_unprotected: bool = False
    """Let silos score models on what they hold out; such figures are protected by nothing."""

    @model_validator(mode="after")
    def _one_of_two(self) -> PrivacySettings:
        if self.noise is not None and self.epsilon is not None:
            raise ValueError("takes noise or epsilon, not both: the one follows from the other")
        if self.noise is None and self.epsilon is None:
            raise ValueError("needs noise, such as 1.1, or epsilon, such as 2.0")
        return self
