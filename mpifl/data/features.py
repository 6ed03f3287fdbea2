"""The format of one example's inputs, and checks of arrays against it."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from mpifl.common import ShardError
from mpifl.data.shards import NAMED, ONE, Name, Record, few_arrays, one_or_named

MOST_NUMBERS = 1 << 28
"""The most numbers in one example; a volume of 512 x 512 x 512 has half as many."""
FEATURE_DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


def _holdable(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) > 31 or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"an example has {MOST_NUMBERS} numbers and 31 dimensions at most")
    return shape


Classes = Annotated[int, Field(gt=0, le=1 << 24)]
Shape = Annotated[
    tuple[Annotated[int, Field(gt=0, le=MOST_NUMBERS)], ...], Field(fail_fast=True), AfterValidator(_holdable)
]


class Features(Record):
    """The format of one input array of an example: its shape, its stored dtype, and its form for a model.

    A model receives float32 `x * scale + offset`; without a scale it receives integers as int64 and floats as
    float32. For ragged examples, the first number of the shape is the largest number of rows.
    """

    shape: Shape
    dtype: Literal["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
    scale: FiniteFloat | None = None
    offset: FiniteFloat = 0.0
    ragged: bool = False
    """Whether examples have unequal lengths."""
    fill: int | FiniteFloat = 0
    """The stored number that pads a ragged example in a batch, after its last row."""
    mask: Name | None = None
    """The name, in the model, of the mask of a batch of ragged examples; None makes no mask."""

    @model_serializer(mode="wrap")
    def _of_one_length(self, make: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys for ragged examples, so that other files stay the same to the byte."""
        of_ragged = () if self.ragged else ("ragged", "fill", "mask")
        return {key: value for key, value in make(self).items() if key not in of_ragged}

    @model_validator(mode="after")
    def _padding_fits(self) -> Features:
        if not self.ragged and (self.fill or self.mask):
            raise ValueError("fill and mask are of ragged arrays; this one is not")
        if self.ragged and not self.shape:
            raise ValueError("a ragged array has the shape [most rows, ...], not []")
        if self.ragged and self.dtype.startswith(("int", "uint")):
            limits = np.iinfo(self.dtype)
            if self.fill != int(self.fill) or not limits.min <= self.fill <= limits.max:
                raise ValueError(f"fill {self.fill} does not fit {self.dtype} features")
        return self


def check_masks(features: Any) -> None:
    """Check that each mask has a name that no input has, and that its array has a name; raise ValueError."""
    if not isinstance(features, dict):
        if features.mask is not None:
            raise ValueError(f"mask {features.mask} of an array without a name; name the array, too")
        return
    taken = set(features)
    for mask in (one.mask for one in features.values() if one.mask is not None):
        if mask in taken:
            raise ValueError(f"mask {mask}: another input has that name")
        taken.add(mask)


Inputs = Annotated[
    Annotated[Features, Tag(ONE)] | Annotated[dict[Name, Features], BeforeValidator(few_arrays), Tag(NAMED)],
    Discriminator(one_or_named),
]
"""The format of one example's inputs: an array, or several by name."""


class ArrayForm(Protocol):
    """A shape and a dtype, of an array or of a file's data set."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return [n, ...]."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the numbers."""
        ...


def check_features(where: str, x: ArrayForm, features: Features) -> None:
    """Refuse features whose shape or dtype differs from the federation's."""
    if tuple(x.shape[1:]) != features.shape:
        wanted = f"the federation has {list(features.shape)}; partition again"
        raise ShardError(f"{where}: features of shape {list(x.shape[1:])}, {wanted}")
    check_ragged(where, x, features.ragged)
    if x.dtype.name != features.dtype:
        wanted = f"the federation has {features.dtype}; partition again"
        raise ShardError(f"{where}: features of dtype {x.dtype.name}, {wanted}")


def check_ragged(where: str, found: ArrayForm, ragged: bool) -> None:
    """Refuse ragged examples in a federation with examples of one length, and the other way round."""
    if getattr(found, "ragged", False) != ragged:
        told = ["one length", "unequal lengths"]
        wanted = f"the federation has {told[ragged]}; partition again"
        raise ShardError(f"{where}: examples of {told[not ragged]}, {wanted}")
