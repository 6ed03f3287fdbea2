"""The `[privacy]` table: what is protected, by how much noise, and by which accountant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

Multiplier = Annotated[float, Field(ge=0.01, le=1e6)]


class PrivacySettings(BaseModel):
    """`[privacy]`: differential privacy of each example, or of each silo."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    level: Literal["example", "silo"] = "example"
    """What is hidden up to epsilon: the presence of each example in the answers of its silo's training, or
    the presence of each silo in everything that the server releases."""
    noise_at: Literal["silo", "server", "sum"] = "silo"
    """Who draws the noise. "silo": each silo (level = "example"). "server": the trusted server (level =
    "silo"). "sum": each site a share, in a sum that `[security]` masks."""
    clip: PositiveFloat | Literal["adaptive"] | None = None
    """C, the largest L2 norm of an example's gradient or of a silo's update, needed but by `dptable`; longer
    ones are scaled down. "adaptive" follows the norms of silos' updates."""
    quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
    """For clip = "adaptive": the share of updates that should not be longer than C; the default is 0.5."""
    clip_start: PositiveFloat | None = None
    """For clip = "adaptive": the first C; the default is 0.1."""
    noise: Multiplier | None = None
    """The noise multiplier z: the noise of a sum of gradients or updates has standard deviation z * clip."""
    noise_of: dict[str, Multiplier] | None = None
    """The noise multiplier of each silo by its name, if each site draws its noise; in place of noise."""
    epsilon: PositiveFloat | None = None
    """The budget, in place of noise: the noise is the least with which all rounds stay below the budget."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """The delta of (epsilon, delta), at most 1 / the examples of the largest silo; of all silos for noise_at
    = "sum". For level = "silo": 1 / the silos."""
    accountant: Literal["pld", "rdp"] = "pld"
    """How epsilon is computed: by privacy loss distributions, or by Renyi divergences, whose epsilon is
    larger."""
    evaluate_unprotected: bool = False
    """Let silos score models on held-out examples, and report the share of clipped updates or gradients. No
    noise protects these figures."""

    @model_validator(mode="before")
    @classmethod
    def _usual_place(cls, table: Any) -> Any:
        of_silos = isinstance(table, dict) and table.get("level") == "silo"
        return {"noise_at": "server", **table} if of_silos else table

    @model_validator(mode="after")
    def _one_of_two(self) -> PrivacySettings:
        given = [key for key in ("noise", "noise_of", "epsilon") if getattr(self, key) is not None]
        if len(given) > 1 and "epsilon" in given:
            what = " and ".join(f"{key} = {getattr(self, key)}" for key in given)
            raise ValueError(f"{what} are given, and the one follows from the other; leave one of them out")
        if len(given) > 1:
            raise ValueError("takes noise, the same for all silos, or noise_of, one for each; not both")
        if not given:
            raise ValueError("needs noise, such as 1.1, or epsilon, such as 2.0")
        return self

    @model_validator(mode="after")
    def _fitting(self) -> PrivacySettings:
        if self.noise_of is not None and (self.level, self.noise_at) != ("example", "silo"):
            raise ValueError("noise_of: is for noise that each site draws for its own examples; use noise")
        place = {"silo": "server", "example": "silo"}[self.level]
        if self.noise_at not in (place, "sum"):
            what = f"level = '{self.level}' has its noise at the {place}, or in a masked sum"
            raise ValueError(f"noise_at = '{self.noise_at}': {what}; use '{place}' or 'sum'")
        if self.is_adaptive and self.noise_at == "sum":
            what = "the bits that it follows get no noise in the sum"
            raise ValueError(f"clip = 'adaptive': {what}; give a number, or use noise_at = 'server'")
        if self.is_adaptive and self.level == "example":
            raise ValueError("clip = 'adaptive': follows silos' updates, with level = 'silo'; give a number")
        for key in ("quantile", "clip_start"):
            if getattr(self, key) is not None and not self.is_adaptive:
                what = "goes with clip = 'adaptive'; leave it out"
                raise ValueError(f"{key} = {getattr(self, key):g}: {what}")
        return self

    @property
    def in_sum(self) -> bool:
        """Whether sites add their shares of noise to a masked sum."""
        return self.noise_at == "sum"

    @property
    def is_adaptive(self) -> bool:
        """Whether C follows the norms of silos' updates."""
        return self.clip == "adaptive"

    @property
    def norm(self) -> float:
        """C as the job gives it, or the first C if it is adaptive."""
        return self.clip if isinstance(self.clip, float) else self.clip_start or 0.1
