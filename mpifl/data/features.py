"""What one example is, and whether arrays are such examples."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, FiniteFloat, Tag

from mpifl.common import ShardError
from mpifl.data.records import NAMED, ONE, Name, Record, few_arrays, one_or_named

MOST_NUMBERS = 1 << 28
"""Numbers of one example; a volume of 512 x 512 x 512 has half as many."""
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
    """What one example is: its shape and stored dtype, and how a model is to see it.

    A model receives float32 `x * scale + offset`; without a scale it receives integers as int64 and floats as
    float32.
    """

    shape: Shape
    dtype: Literal["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
    scale: FiniteFloat | None = None
    offset: FiniteFloat = 0.0


Inputs = Annotated[
    Annotated[Features, Tag(ONE)] | Annotated[dict[Name, Features], BeforeValidator(few_arrays), Tag(NAMED)],
    Discriminator(one_or_named),
]
"""What the inputs of one example are: an array, or several by name."""


class Form(Protocol):
    """What has the form of an array: one, or what a file says of its own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return [n, ...]."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the numbers."""
        ...


def check_features(where: str, x: Form, features: Features) -> None:
    """Refuse features of another shape or dtype than a federation's."""
    if tuple(x.shape[1:]) != features.shape:
        wanted = f"the federation has {list(features.shape)}; partition again"
        raise ShardError(f"{where}: features of shape {list(x.shape[1:])}, {wanted}")
    if x.dtype.name != features.dtype:
        wanted = f"the federation has {features.dtype}; partition again"
        raise ShardError(f"{where}: features of dtype {x.dtype.name}, {wanted}")
