"""The `[security]` table: sums that the server's program cannot look into."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class SecuritySettings(BaseModel):
    """`[security]`: updates are added up as whole numbers, under masks that cancel in the sum."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    masks: bool = True
    """Whether each worker masks its sum: the server's program sees that of all alone, who starts all ranks
    sees more. The bits are the same without."""
    range: Annotated[float, Field(gt=0, le=2.0**40)] = 128.0
    """The largest magnitude of an element of an update; a silo that goes beyond it fails, or is cut to it
    where the sum has noise."""
    least: PositiveInt = 3
    """A worker hands over no sum that fewer workers than this have a part in."""
    colluding: Annotated[float, Field(ge=0, lt=1)] = 1 / 3
    """The share of workers, and of the silos drawn for a round, that may side with the server: the others'
    noise is enough, and two sums have others in common."""
