"""The weighted mean of the cohort's updates: the same bits in whatever order, on however many ranks, it is summed."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mpifl.aggregation.exact import LARGEST, ExactSum, peak_of
from mpifl.messages import DTYPES, Folded, Piece, Uniform, Update, Verdict
from mpifl.transport import Transport, pieces_of

CHUNK = 1 << 19
"""Elements of float64 that travel at a time: 4 MiB."""


class WeightedMean:
    """Sum weight * vector over the silos: on each worker as its silos finish, then over the workers, then divide.

    A worker holds one running sum for each named vector, the server one piece of it at a time and the mean.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[str, ExactSum] = {}
        self._summands = 1

    def begin(self, summands: int) -> None:
        """Forget the sums of the round before; up to `summands` updates will be added over all ranks."""
        self._sums.clear()
        self._summands = summands

    def fold(self, update: Update) -> dict[str, Folded]:
        """Add one silo's update to this rank's sums and describe its vectors for the header.

        Raises:
            ValueError: a vector is not flat, is of a dtype that may not travel, has not the length of the other silos'
                vectors of its name, or holds NaN, Inf or what its weight makes such. Nothing has been added then.
        """
        uniform = {name for name, value in update.vectors.items() if isinstance(value, Uniform)}
        vectors = {
            name: value.vector if isinstance(value, Uniform) else value for name, value in update.vectors.items()
        }
        weights = {name: 1.0 if name in uniform else update.weight for name in vectors}
        peaks = {name: self._checked_peak(name, vector, weights[name]) for name, vector in vectors.items()}
        folded = {}
        for name, vector in vectors.items():
            sums = self._sums.setdefault(name, ExactSum(len(vector), self._summands, self._device))
            window = sums.add(vector, weights[name], peaks[name])
            size = len(update.payloads[name]) if name in update.payloads else None
            folded[name] = Folded(length=len(vector), window=window, uniform=name in uniform, bytes=size)
        return folded

    def combine(self, transport: Transport, verdict: Verdict, totals: Mapping[str, float]) -> dict[str, Tensor]:
        """Sum the pieces of the verdict over the ranks; on the server, divide by `totals` and return the means."""
        by_name = itertools.groupby(verdict.pieces, key=lambda piece: piece.name)
        return {name: self._combine(transport, list(windows), totals.get(name, 1.0)) for name, windows in by_name}

    def _combine(self, transport: Transport, pieces: list[Piece], total: float) -> Tensor:
        name, length = pieces[0].name, pieces[0].length
        mean = torch.zeros(length if transport.is_server else 0, dtype=torch.float32, device=self._device)
        windows = [piece.window for piece in pieces if piece.window is not None]
        for where in pieces_of(length, CHUNK) if windows else ():
            summed = [transport.sum(self._part(name, window, where)) for window in windows]
            if transport.is_server:
                chunk = functools.reduce(torch.add, summed)  # largest first, in a fixed order
                mean[where] = (chunk / total).to(self._device)
        return mean

    def _part(self, name: str, window: int, where: slice) -> Tensor:
        sums = self._sums.get(name)
        if sums is None or window not in sums.windows:
            return torch.zeros(where.stop - where.start, dtype=torch.float64)
        return sums.windows[window][where]

    def _checked_peak(self, name: str, vector: Tensor, weight: float) -> float:
        """Return the largest magnitude of a vector that may be added."""
        if vector.dim() != 1 or not vector.is_floating_point() or vector.dtype not in DTYPES.values():
            raise ValueError(f"'{name}' is {vector.dtype} of shape {list(vector.shape)}; send flat float32 or float64")
        if name in self._sums and len(vector) != self._sums[name].length:
            raise ValueError(f"'{name}' has {len(vector)} elements, other silos sent {self._sums[name].length}")
        peak = peak_of(vector)
        if not math.isfinite(peak):
            raise ValueError(f"'{name}' holds NaN or Inf")
        if not weight * peak < LARGEST:
            raise ValueError(f"'{name}' reaches {peak:g}, which a weight of {weight:g} takes beyond what can be summed")
        return peak
