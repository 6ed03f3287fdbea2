"""The `[security]` table: masked sums, of which the server's program sees only the total."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class SecuritySettings(BaseModel):
    """`[security]`: updates are added up as whole numbers, with masks that cancel in the sum."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    masks: bool = True
    """Whether each worker masks its sum. The server's program then sees only the sum of all workers. Whoever
    starts all ranks can see more. No bit changes."""
    range: Annotated[float, Field(gt=0, le=2.0**40)] = 128.0
    """The largest magnitude of an element of an update. A silo with a larger element fails; if the sum has
    noise, the element is cut to this instead."""
    least: PositiveInt = 3
    """The least number of workers in a sum; a worker takes part in no sum of fewer."""
    colluding: Annotated[float, Field(ge=0, lt=1)] = 1 / 3
    """The share of workers and of a round's silos that may collude with the server. The others' noise must be
    enough, and two sums must share others."""

    @property
    def idle(self) -> list[str]:
        """Notes on keys without effect. They are not refused: masks are switched off to compare sums."""
        usual = SecuritySettings()
        given = [key for key in ("least", "colluding") if getattr(self, key) != getattr(usual, key)]
        why = "is of masks, and masks = false adds none"
        return [] if self.masks else [f"[security] {key} = {getattr(self, key):g}: {why}" for key in given]
