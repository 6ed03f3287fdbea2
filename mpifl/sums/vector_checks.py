"""Checks that every aggregator makes of a silo's vector, and the slices of vectors for a node's workers."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from mpifl.common import BeyondRange, Diverged
from mpifl.sums.exact import peak_of
from mpifl.wire import DTYPES, LARGEST, Transport, Update, VectorHeader, combination, unmarked


def checked_peak(name: str, vector: Tensor, weight: float, length: int | None) -> float:
    """Return the largest magnitude of a silo's vector, if it can be combined with others.

    Args:
        name: The name of the vector.
        weight: The weight that it is multiplied by.
        length: The length of other silos' vectors of this name, None if there are none yet.

    Raises:
        ValueError: the vector is not flat, has a dtype that may not travel, or another length; Diverged if it
            holds NaN or Inf; BeyondRange if it is too large with its weight.
    """
    if vector.dim() != 1 or not vector.is_floating_point() or vector.dtype not in DTYPES.values():
        found = f"{vector.dtype} of shape {list(vector.shape)}"
        raise ValueError(f"'{name}' is {found}; send flat float32 or float64")
    if length is not None and len(vector) != length:
        raise ValueError(f"'{name}' has {len(vector)} elements, other silos sent {length}")
    peak = peak_of(vector)
    if not math.isfinite(peak):
        raise Diverged(f"'{name}' holds NaN or Inf; if training diverged, use a lower [local] lr")
    if not weight * peak < LARGEST:
        beyond = f"which a weight of {weight:g} takes beyond what can be summed"
        raise BeyondRange(f"'{name}' reaches {peak:g}, {beyond}")
    return peak


def header_of(update: Update, name: str, window: int | None) -> VectorHeader:
    """Return the header of a vector that has been added.

    Args:
        name: The name of the vector.
        window: The vector's window of the exact sum; None if it has none.
    """
    value = update.vectors[name]
    size = len(update.payloads[name]) if name in update.payloads else None
    how = combination(value)
    return VectorHeader(length=len(unmarked(value)), window=window, combined=how, bytes=size)


def slice_of(nth: int, workers: int, length: int, aligned: int) -> slice:
    """Return the slice of a vector that the nth worker makes; slices begin at multiples of `aligned`."""
    width = -(-length // (workers * aligned)) * aligned
    return slice(min(nth * width, length), min((nth + 1) * width, length))


def refuse_noise(update: Update) -> None:
    """Refuse an update that needs noise in its sum, since this aggregator adds none.

    Raises:
        ValueError: the update needs noise.
    """
    if update.noise:
        raise ValueError(f"'{min(update.noise)}' is to have noise in its sum, which masked sums alone have")


def are_readable(transport: Transport, rank: int, lying: Iterable[tuple[int, int, torch.dtype]]) -> bool:
    """Return whether this rank can read the vectors that another rank of its node reports.

    Vectors of this rank and of other nodes count as readable without a look.

    Args:
        rank: The rank that reports.
        lying: The handle, length and dtype of each vector.
    """
    if rank == transport.rank or transport.nodes.of[rank] != transport.nodes.number:
        return True
    try:
        for handle, length, dtype in lying:
            transport.read(rank, handle, length, dtype)
    except OSError:
        return False
    return True
