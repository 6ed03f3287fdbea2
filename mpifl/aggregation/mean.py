"""The weighted mean of the cohort's updates: the same bits in whatever order, on however many ranks, it is summed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from mpifl.aggregation.exact import LARGEST, ExactSum, peak_of
from mpifl.messages import DTYPES, Folded, Header, Piece, Uniform, Update, Verdict
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
            folded[name] = Folded(length=len(vector), window=window, uniform=name in uniform)
        return folded

    def combine(self, transport: Transport, verdict: Verdict, totals: Mapping[str, float]) -> dict[str, Tensor]:
        """Sum the pieces of the verdict over the ranks; on the server, divide by `totals` and return the means."""
        by_name = itertools.groupby(verdict.pieces, key=lambda piece: piece.name)
        return {name: self._combine(transport, list(windows), totals.get(name, 1.0)) for name, windows in by_name}

    def _combine(self, transport: Transport, windows: list[Piece], total: float) -> Tensor:
        name, length = windows[0].name, windows[0].length
        mean = torch.empty(length if transport.is_server else 0, dtype=torch.float32, device=self._device)
        for where in pieces_of(length, CHUNK):
            summed = [transport.sum(self._part(name, piece.window, where)) for piece in windows]
            if transport.is_server:
                chunk = summed[0]
                for lower in summed[1:]:
                    chunk += lower
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


def plan(headers: Iterable[Header]) -> tuple[list[Piece], dict[str, float]]:
    """Plan what travels for the accepted headers: the pieces, and each vector's total weight.

    Raises:
        ValueError: two silos' vectors of one name differ in length.
    """
    lengths: dict[str, int] = {}
    windows: dict[str, set[int]] = {}
    totals: dict[str, list[float]] = {}
    for header in headers:
        for name, folded in header.vectors.items():
            if lengths.setdefault(name, folded.length) != folded.length:
                raise ValueError(
                    f"silo {header.silo}: '{name}' has {folded.length} elements, others sent {lengths[name]}"
                )
            totals.setdefault(name, []).append(1.0 if folded.uniform else header.weight)
            windows.setdefault(name, set()).update(() if folded.window is None else (folded.window,))
    pieces = [
        Piece(name=name, length=lengths[name], window=window)
        for name in sorted(lengths)
        for window in sorted(windows[name], reverse=True) or [0]
    ]
    return pieces, {name: math.fsum(weights) for name, weights in totals.items()}
