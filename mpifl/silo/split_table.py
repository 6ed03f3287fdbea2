"""The `[split]` table of a job: a network split between silos with columns and the holder of the labels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mpifl.common import Table

Cut = Annotated[int, Field(ge=1, le=1 << 24)]


class SplitSettings(BaseModel):
    """The `[split]` table. Each silo's bottom computes activations from its rows. The top, at the holder of
    the labels, computes outputs from the merged activations."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    cut_width: Cut | list[Cut]
    """How many activations a silo's bottom computes for a row; a list has one number for each silo."""
    merge: Literal["concat", "sum"] = "concat"
    """How the bottoms' activations are combined: concatenated or summed."""
    top: Literal["none"] | Table = {"name": "mlp", "hidden": []}
    """The model at the holder of the labels, over the merged activations; "none" only adds a bias to their
    sum."""
    protect: Literal["none", "max-norm", "label-dp"] = "none"
    """How labels are hidden from silos that receive gradients. "max-norm" hides the gradients' lengths by
    noise, without a guarantee. "label-dp" trains on labels that are randomised once."""
    epsilon: Annotated[float, Field(gt=0, le=30)] | None = None
    """The epsilon of label-dp: the true label is e^epsilon times as likely to be reported as any other
    label."""
    bottoms: dict[Annotated[str, Field(pattern=r"^(0|[1-9]\d{0,8})$")], Table] = {}
    """Models that replace `[model]` at single silos, by the silo's number."""

    @model_validator(mode="after")
    def _consistent(self) -> SplitSettings:
        if self.merge == "sum" and isinstance(self.cut_width, list) and len(set(self.cut_width)) > 1:
            raise ValueError(
                f"merge = 'sum' adds lines up, and cut_width = {self.cut_width} are unequal; use 'concat'"
            )
        if self.top == "none" and self.merge != "sum":
            raise ValueError("top = 'none' takes the sum of lines as outputs; use merge = 'sum', or a top")
        if self.protect == "label-dp" and self.epsilon is None:
            raise ValueError("protect = 'label-dp' needs epsilon, by which labels are randomised")
        if self.protect != "label-dp" and self.epsilon is not None:
            raise ValueError(f"epsilon = {self.epsilon:g} is of label-dp; use protect = 'label-dp'")
        return self

    def widths(self, silos: int) -> list[int]:
        """Return how many activations each silo's bottom computes for a row.

        Raises:
            ValueError: `cut_width` is a list whose length is not `silos`.
        """
        if isinstance(self.cut_width, int):
            return [self.cut_width] * silos
        if len(self.cut_width) != silos:
            what = f"cut_width has {len(self.cut_width)} numbers, there are {silos} silos"
            raise ValueError(f"{what}; give one each, or one number for all")
        return self.cut_width

    def merged(self, silos: int) -> int:
        """Return the width of the merged activations."""
        widths = self.widths(silos)
        return sum(widths) if self.merge == "concat" else widths[0]


UNSPLIT = SplitSettings(cut_width=1)
"""The placeholder for jobs whose silos have all columns."""
