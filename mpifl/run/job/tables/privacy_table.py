"""The `[privacy]` table: what is protected, by how much noise, and how that is counted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

Multiplier = Annotated[float, Field(ge=0.01, le=1e6)]


class PrivacySettings(BaseModel):
    """`[privacy]`: differential privacy of each example, or of each silo."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    level: Literal["example", "silo"] = "example"
    """Whose presence is hidden up to epsilon: each example's, in what its silo's training answers, or each
    silo's, in what the server lets out."""
    noise_at: Literal["silo", "server", "sum"] = "silo"
    """Who draws the noise: silo, by level = "example"; server, which must be trusted, by "silo"; sum: all
    sites, each a share, of a sum that `[security]` masks."""
    clip: PositiveFloat | Literal["adaptive"]
    """The L2 norm C to which a longer gradient of one example, or update of one silo, is scaled down;
    "adaptive" follows the silos' updates."""
    quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of clip = "adaptive": the share of updates that are not longer than C; 0.5 unless given."""
    clip_start: PositiveFloat | None = None
    """Of clip = "adaptive": the first C; 0.1 unless given."""
    noise: Multiplier | None = None
    """The noise multiplier z: the noise of a sum of gradients, or of updates, has the deviation z * clip."""
    noise_of: dict[str, Multiplier] | None = None
    """The same for each silo by its name, where each site draws its noise; in place of noise."""
    epsilon: PositiveFloat | None = None
    """The budget, in place of noise: the least noise is taken with which all rounds stay below it."""
    delta: Annotated[float, Field(gt=0, lt=1)]
    """The delta of (epsilon, delta); at most 1 / the examples of the largest silo (of all silos, for noise
    in a sum), or 1 / the silos."""
    accountant: Literal["pld", "rdp"] = "pld"
    """How epsilon is counted: by privacy loss distributions, or by Renyi divergences, which say more."""
    evaluate_unprotected: bool = False
    """Let silos score models on what they hold out, and tell the share of updates or gradients that they
    clipped; such figures are protected by nothing."""

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
            raise ValueError("noise_of: is for noise that each site draws for its own examples; take noise")
        place = {"silo": "server", "example": "silo"}[self.level]
        if self.noise_at not in (place, "sum"):
            what = f"level = '{self.level}' has its noise at the {place}, or in a masked sum"
            raise ValueError(f"noise_at = '{self.noise_at}': {what}; take '{place}' or 'sum'")
        if self.is_adaptive and self.noise_at == "sum":
            what = "the bits that it follows get no noise in the sum"
            raise ValueError(f"clip = 'adaptive': {what}; give a number, or take noise_at = 'server'")
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
        """Whether C follows the norms of updates."""
        return self.clip == "adaptive"

    @property
    def norm(self) -> float:
        """C: as it is given, or the first."""
        return self.clip if isinstance(self.clip, float) else self.clip_start or 0.1
