"""Made-up examples of the shards' shapes, as a shard would hold them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from mpifl.common import rng
from mpifl.data import Aims, Features, Inputs, Ragged, Targets, each
from mpifl.data.shards import seen_as

Aim: TypeAlias = tuple[int | None, Aims | None]
"""The federation's number of classes, and its format of targets."""


def made_up(
    features: Inputs, aim: Aim, rows: int, seed: int, places: tuple[int, ...] = ()
) -> tuple[Any, Any, Any]:
    """Return inputs and targets of made-up examples, and the form in which a model receives the targets.

    Float inputs are drawn from 0 to 1. Whole numbers that a model receives as such are 0, since any model has
    a token 0. The target of row k is class k, or 1 if targets are values.

    Args:
        features: The format of an example.
        aim: The format of its target.
        rows: The number of examples.
        seed: The seed of the draws.
        places: The shape of an example's class numbers, if `aim` does not give it.
    """
    draw = rng.numpy_stream(seed, "made-up examples")
    classes, targets = aim
    x = each(lambda one: _ragged(_inputs(one, rows, draw), one), features)
    y: Any
    if isinstance(targets, dict):
        y = {name: _ragged(_aims(one.classes, one, rows), one) for name, one in targets.items()}
    else:
        y = _aims(classes, targets, rows, places)
        y = y if targets is None else _ragged(y, targets)
    return x, y, seen_as(classes, targets)


def _inputs(one: Features, rows: int, draw: np.random.Generator) -> np.ndarray:
    size = (rows, *one.shape)
    if one.dtype.startswith("float"):
        return draw.random(size).astype(one.dtype)
    if one.scale is None:
        return np.zeros(size, one.dtype)
    return draw.integers(0, 127, size, endpoint=True).astype(one.dtype)


def _aims(classes: int | None, one: Targets | None, rows: int, places: tuple[int, ...] = ()) -> np.ndarray:
    size = (rows, *(one.shape if one is not None else places))
    dtype = np.dtype("int64" if one is None else one.dtype)
    if classes is None:
        return np.ones(size, dtype)
    numbers = (np.arange(rows) % classes).reshape(-1, *(1 for _ in size[1:]))
    return np.broadcast_to(numbers, size).astype(dtype)


def _ragged(array: np.ndarray, one: Features | Targets) -> Any:
    """Return an array as a shard holds it; ragged examples all get the same length."""
    if not one.ragged:
        return array
    padding = {"fill": one.fill, "mask": one.mask} if isinstance(one, Features) else {"fill": one.padding}
    return Ragged.of([*array], **padding)
