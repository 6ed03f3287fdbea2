"""What every aggregator asks of a silo's vector, and how vectors are cut among the workers of a node."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from mpifl.common import BeyondRange, Diverged
from mpifl.sums.exact import peak_of
from mpifl.wire import DTYPES, LARGEST, Transport, Update, VectorHeader, combination, unmarked


def checked_peak(name: str, vector: Tensor, weight: float, length: int | None) -> float:
    """Return the largest magnitude of a silo's vector, if it may be combined with others.

    Args:
        name: The vector's.
        vector: The vector.
        weight: By which it is multiplied.
        length: That of other silos' vectors of the name, if there were any.

    Raises:
        ValueError: it is not flat, is of a dtype that may not travel, or has another length; it holds NaN or
            Inf (Diverged), or what its weight makes such (BeyondRange).
    """
    if vector.dim() != 1 or not vector.is_floating_point() or vector.dtype not in DTYPES.values():
        found = f"{vector.dtype} of shape {list(vector.shape)}"
        raise ValueError(f"'{name}' is {found}; send flat float32 or float64")
    if length is not None and len(vector) != length:
        raise ValueError(f"'{name}' has {len(vector)} elements, other silos sent {length}")
    peak = peak_of(vector)
    if not math.isfinite(peak):
        raise Diverged(f"'{name}' holds NaN or Inf; if training diverged, take a lower [local] lr")
    if not weight * peak < LARGEST:
        beyond = f"which a weight of {weight:g} takes beyond what can be summed"
        raise BeyondRange(f"'{name}' reaches {peak:g}, {beyond}")
    return peak


def header_of(update: Update, name: str, window: int | None) -> VectorHeader:
    """Describe a vector of an update that has been taken up, in a window of the exact sum if it is in one."""
    value = update.vectors[name]
    size = len(update.payloads[name]) if name in update.payloads else None
    how = combination(value)
    return VectorHeader(length=len(unmarked(value)), window=window, combined=how, bytes=size)


def slice_of(nth: int, workers: int, length: int, aligned: int) -> slice:
    """Return the part of a vector that the nth of some workers makes;
    parts begin at multiples of `aligned`."""
    width = -(-length // (workers * aligned)) * aligned
    return slice(min(nth * width, length), min((nth + 1) * width, length))


def refuse_noise(update: Update) -> None:
    """See that an update needs no noise in its sum, where nobody adds it.

    Raises:
        ValueError: it does.
    """
    if update.noise:
        raise ValueError(f"'{min(update.noise)}' is to have noise in its sum, which masked sums alone have")


def are_readable(transport: Transport, rank: int, lying: Iterable[tuple[int, int, torch.dtype]]) -> bool:
    """Return whether vectors of another rank of this node lie where it says: handle, length and dtype of
    each.

    Those of this rank, and of other nodes, are not looked for.
    """
    if rank == transport.rank or transport.nodes.of[rank] != transport.nodes.number:
        return True
    try:
        for handle, length, dtype in lying:
            transport.read(rank, handle, length, dtype)
    except OSError:
        return False
    return True
