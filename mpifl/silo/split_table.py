"""The `[split]` table of a job: a network that is split between silos with columns and the holder of
labels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mpifl.common import Table

Cut = Annotated[int, Field(ge=1, le=1 << 24)]


class SplitSettings(BaseModel):
    """The `[split]` table: each silo's bottom makes a line of numbers of each row; the top, at the holder
    of the labels, makes outputs of the merged lines."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    cut_width: Cut | list[Cut]
    """How many numbers a silo's bottom makes of a row; a list has one for each silo."""
    merge: Literal["concat", "sum"] = "concat"
    """How lines become one: one behind another, or added up."""
    top: Literal["none"] | Table = {"name": "mlp", "hidden": []}
    """The model at the holder of the labels, over merged lines; "none" adds a bias to their sum."""
    protect: Literal["none", "max-norm", "label-dp"] = "none"
    """What keeps labels from silos that are sent gradients: "max-norm" hides their lengths by noise, and
    guarantees nothing; "label-dp" trains on labels that are randomised once."""
    epsilon: Annotated[float, Field(gt=0, le=30)] | None = None
    """Of label-dp: a label is told e^epsilon times as likely as it is than as any other."""
    bottoms: dict[Annotated[str, Field(pattern=r"^(0|[1-9]\d{0,8})$")], Table] = {}
    """Models of single silos in place of `[model]`, by the silo's number."""

    @model_validator(mode="after")
    def _consistent(self) -> SplitSettings:
        if self.merge == "sum" and isinstance(self.cut_width, list) and len(set(self.cut_width)) > 1:
            raise ValueError(
                f"merge = 'sum' adds lines up, and cut_width = {self.cut_width} are unequal; take 'concat'"
            )
        if self.top == "none" and self.merge != "sum":
            raise ValueError("top = 'none' takes the sum of lines as outputs; take merge = 'sum', or a top")
        if self.protect == "label-dp" and self.epsilon is None:
            raise ValueError("protect = 'label-dp' needs epsilon, by which labels are randomised")
        if self.protect != "label-dp" and self.epsilon is not None:
            raise ValueError(f"epsilon = {self.epsilon:g} is of label-dp; take protect = 'label-dp'")
        return self

    def widths(self, silos: int) -> list[int]:
        """Return the width of each silo's lines.

        Raises:
            ValueError: `cut_width` is a list of another length.
        """
        if isinstance(self.cut_width, int):
            return [self.cut_width] * silos
        if len(self.cut_width) != silos:
            what = f"cut_width has {len(self.cut_width)} numbers, there are {silos} silos"
            raise ValueError(f"{what}; give one each, or one number for all")
        return self.cut_width

    def merged(self, silos: int) -> int:
        """Return the width of merged lines."""
        widths = self.widths(silos)
        return sum(widths) if self.merge == "concat" else widths[0]


UNSPLIT = SplitSettings(cut_width=1)
"""Stands where silos have all columns."""
