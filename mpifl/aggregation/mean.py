"""The weighted mean of the cohort's updates: the same bits in whatever order, on however many ranks, it is summed."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mpifl.aggregation import kernels
from mpifl.aggregation.exact import ExactSum, anchor_of, is_finite, peak_of, window_of
from mpifl.aggregation.kernels import Parts
from mpifl.common import RoundLost, ranks_named
from mpifl.wire import (
    DTYPES,
    LARGEST,
    Folded,
    Memory,
    Part,
    Piece,
    Transport,
    Uniform,
    Update,
    Verdict,
    Window,
    pieces_of,
    unmarked,
)

CHUNK = 1 << 19  # elements of float64 that travel between nodes at a time: 4 MiB
ALIGNED = 1 << 10  # elements to a multiple of which a vector is cut among the workers of a node


class WeightedMean:
    """Sum weight * vector over the silos: on each worker as its silos finish, then over the workers, then divide.

    A worker holds one running sum for each named vector, where its node's other ranks can read it. Inside a node each
    worker adds up its own slice of all sums; between nodes the leaders add up those. The server holds the mean.
    """

    def __init__(self, device: torch.device, memory: Memory) -> None:
        self._device, self._memory = device, memory
        self._sums: dict[str, ExactSum] = {}
        self._lone: dict[str, tuple[int, Tensor, float]] = {}
        self._means: dict[str, Tensor] = {}
        self._abandoned: list[Tensor] = []
        """Kept for ever: a rank that hung may still write there."""
        self._summands, self._alone = 1, False
        self.hanging: set[int] = set()
        """Ranks of the server's node that did not make their share of the last sum in time."""

    def begin(self, summands: int, *, alone: bool = False) -> None:
        """Forget the sums of the round before.

        Args:
            summands: How many updates will be added over all ranks, at most.
            alone: Whether one of them, at most, is this rank's, and all ranks read its memory: the node's sum is then
                made of the silo's vectors as they came.
        """
        self._sums.clear()
        self._lone.clear()
        self._means.clear()
        self._summands, self._alone = summands, alone and self._device.type == "cpu"

    def fold(self, update: Update) -> dict[str, Folded]:
        """Add one silo's update to this rank's sums and describe its vectors for the header.

        Raises:
            ValueError: a vector is not flat, is of a dtype that may not travel, has not the length of the other silos'
                vectors of its name, or holds NaN, Inf or what its weight makes such.
            OSError, MemoryError: there is no memory left for it, or no file that others could read it in. Whatever is
                raised, nothing has been added.
        """
        uniform = {name for name, value in update.vectors.items() if isinstance(value, Uniform)}
        vectors = {name: unmarked(value) for name, value in update.vectors.items()}
        weights = {name: 1.0 if name in uniform else update.weight for name in vectors}
        peaks = {name: self._checked_peak(name, vector, weights[name]) for name, vector in vectors.items()}
        rooms = {name: self._room(name, vector, weights[name] * peaks[name]) for name, vector in vectors.items()}
        folded = {}
        for name, vector in vectors.items():
            window = self._add(name, vector, weights[name], peaks[name], rooms[name])
            size = len(update.payloads[name]) if name in update.payloads else None
            folded[name] = Folded(length=len(vector), window=window, uniform=name in uniform, bytes=size)
        return folded

    def _room(self, name: str, vector: Tensor, peak: float) -> Tensor | None:
        """Return the memory that a vector takes when it is added, if it takes any: all of that which may fail."""
        window = window_of(peak)
        if window is None or (name in self._sums and window in self._sums[name].windows):
            return None
        return self._memory.adopt(vector.contiguous()) if self._stays(vector) else self._empty(len(vector))

    def _add(self, name: str, vector: Tensor, weight: float, peak: float, room: Tensor | None) -> int | None:
        if not self._stays(vector):
            return self._sums.setdefault(name, ExactSum(len(vector), self._summands)).add(vector, weight, peak, room)
        window = window_of(weight * peak)
        if window is not None and room is not None:
            self._lone[name] = window, room, weight
        return window

    def _stays(self, vector: Tensor) -> bool:
        """Whether a vector is left as it came, for those to weigh who add it up."""
        return self._alone and vector.dtype == torch.float32

    def parts(self) -> list[Part]:
        """Say in which windows this rank has sums, and where the ranks of its node find them."""
        self._to_host()
        handle = self._memory.handle
        lone = [
            Part(name=name, window=window, handle=handle(vector), weight=weight)
            for name, (window, vector, weight) in sorted(self._lone.items())
        ]
        return lone + [
            Part(name=name, window=window, handle=handle(total))
            for name, sums in sorted(self._sums.items())
            for window, total in sorted(sums.windows.items())
        ]

    def place(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Say, at the server, where the means are to be written; a share that is never made leaves NaN there."""
        self._means = {piece.name: self._memory.empty(piece.length, torch.float32) for piece in pieces}
        for mean in self._means.values():
            mean[::ALIGNED] = math.nan  # one in each share, whatever lay there before
        return [piece.model_copy(update={"mean": self._memory.handle(self._means[piece.name])}) for piece in pieces]

    def combine(self, transport: Transport, verdict: Verdict) -> dict[str, Tensor]:
        """Sum the pieces of the verdict over the ranks; return the means on the server, nothing elsewhere.

        A mean is NaN where a rank's part could not be read, or did not come.
        """
        workers = [rank for rank in transport.peers if rank in verdict.ranks]
        self.hanging.clear()
        if transport.rank not in (0, *verdict.ranks):
            return {}
        for piece in verdict.pieces:
            if not piece.windows:
                if transport.is_server:
                    self._means[piece.name].zero_()
            elif all(transport.nodes.of[rank] == 0 for window in piece.windows for rank in window.parts):
                self._combine_here(transport, piece, workers, verdict.serial)
                if transport.is_server:
                    self.hanging |= transport.await_done([w for w in workers if w not in self.hanging], verdict.serial)
                if self.hanging:
                    self._combine_alone(transport, piece)
            else:
                self._combine_nodes(transport, piece, workers, verdict.serial)
        means = {name: mean.to(self._device) for name, mean in self._means.items()}
        self._means = {}
        return means

    def _combine_here(self, transport: Transport, piece: Piece, workers: Sequence[int], serial: int) -> None:
        """All parts lie on the server's node: every worker there writes a slice of the mean."""
        if transport.rank in workers and transport.nodes.number == 0:
            mean = self._means.get(piece.name)
            if mean is None:
                mean = transport.read(0, piece.mean, piece.length, torch.float32)
            where = _slice(workers.index(transport.rank), len(workers), piece.length)
            windows = [parts.cut(where) for parts in self._parts_here(transport, piece)]
            kernels.mean(mean[where], windows, 1 / piece.total)
            transport.done(serial)

    def _combine_alone(self, transport: Transport, piece: Piece) -> None:
        """Write all of a mean at the server, where ranks that hang will not write to when they wake up."""
        self._abandoned.append(self._means[piece.name])
        mean = self._means[piece.name] = self._memory.empty(piece.length, torch.float32)
        windows = [parts.cut(slice(0, piece.length)) for parts in self._parts_here(transport, piece)]
        kernels.mean(mean, windows, 1 / piece.total)

    def _combine_nodes(self, transport: Transport, piece: Piece, workers: Sequence[int], serial: int) -> None:
        """Sum inside each node into its first part, every worker a slice; then over the leaders; the server divides."""
        parts = [parts.vectors for parts in self._parts_here(transport, piece)]
        if transport.rank in workers and any(parts):
            where = _slice(workers.index(transport.rank), len(workers), piece.length)
            for first, *others in filter(None, parts):
                for other in others:
                    first[where].add_(other[where])
            transport.done(serial)
        if not transport.nodes.leads:
            return
        if any(parts) and (hanging := transport.await_done(workers, serial, patient=True)):
            self.hanging |= hanging
            self._spoil(parts)  # shares are made in place, and can be made once only
        for where in pieces_of(piece.length, CHUNK):
            totals = [
                transport.sum(here[0][where] if here else _zeros(where), nodes)
                for here, nodes in zip(parts, _nodes(transport, piece), strict=True)
                if transport.nodes.number in nodes
            ]
            if transport.is_server:  # largest first, in a fixed order
                self._means[piece.name][where] = functools.reduce(torch.add, totals) * (1 / piece.total)

    def _parts_here(self, transport: Transport, piece: Piece) -> list[Parts]:
        """Return the parts of each window that lie on this node."""
        found = []
        for window in piece.windows:
            ranks = [rank for rank in transport.nodes.mine if rank in window.parts]
            vectors = [self._part(transport, piece, window, rank) for rank in ranks]
            weights = [window.weights.get(rank, 0.0) for rank in ranks]
            found.append(Parts(vectors, weights, anchor_of(window.number, self._summands)))
        return found

    def _spoil(self, parts: list[Sequence[Tensor]]) -> None:
        """Take sums that some ranks may still write to out of use, and put NaN in their place."""
        self._abandoned += [vector for vectors in parts for vector in vectors]
        parts[:] = [[torch.full_like(vectors[0], math.nan)] if vectors else [] for vectors in parts]

    def check(self, transport: Transport, pieces: Sequence[Piece], means: Mapping[str, Tensor]) -> None:
        """See, at the server, that what was added up is as finite as it was said to be.

        Raises:
            RoundLost: it is not; the suspected ranks are named.
        """
        for piece in pieces:
            if not is_finite(means[piece.name]):
                suspected = [transport.origins[rank] for rank in self._suspects(transport, piece)]
                raise RoundLost(f"the mean of '{piece.name}' is not finite; suspected: {ranks_named(suspected)}")

    def _suspects(self, transport: Transport, piece: Piece) -> list[int]:
        """Return the ranks of whose parts one, at least, must be what makes a mean not finite.

        Those of this node can be looked at. Others are named where these are sound.
        """
        ranks = sorted({rank for window in piece.windows for rank in window.parts})
        near = [rank for rank in ranks if transport.nodes.of[rank] == transport.nodes.number]
        spoiled = [rank for rank in near if not all(map(is_finite, self._parts_of(transport, piece, rank)))]
        return spoiled or [rank for rank in ranks if rank not in near] or ranks

    def _parts_of(self, transport: Transport, piece: Piece, rank: int) -> list[Tensor]:
        windows = [window for window in piece.windows if rank in window.parts]
        return [self._part(transport, piece, window, rank) for window in windows]

    def readable(self, transport: Transport, rank: int, parts: Sequence[Part], lengths: Mapping[str, int]) -> bool:
        """Whether the parts of a rank of this node can be read where it says that they lie."""
        if rank == transport.rank or transport.nodes.of[rank] != transport.nodes.number:
            return True
        try:
            for part in parts:
                transport.read(rank, part.handle, lengths[part.name], _dtype(part.weight > 0))
        except OSError:
            return False
        return True

    def _part(self, transport: Transport, piece: Piece, window: Window, rank: int) -> Tensor:
        if rank != transport.rank:
            dtype = _dtype(rank in window.weights)
            try:
                return transport.read(rank, window.parts[rank], piece.length, dtype)
            except OSError:
                return torch.full((piece.length,), math.nan, dtype=dtype)
        if rank in window.weights:
            return self._lone[piece.name][1]
        return self._sums[piece.name].windows[window.number]

    def _empty(self, length: int) -> Tensor:
        if self._device.type == "cpu":
            return self._memory.empty(length, torch.float64)
        return torch.empty(length, dtype=torch.float64, device=self._device)

    def _to_host(self) -> None:
        """Bring sums that were made on a device to where the node reads them."""
        for sums in self._sums.values():
            for window, total in sums.windows.items():
                if not total.is_cpu:
                    host = self._memory.pinned(self._memory.empty(sums.length, torch.float64))
                    sums.windows[window] = host.copy_(total)

    def _checked_peak(self, name: str, vector: Tensor, weight: float) -> float:
        """Return the largest magnitude of a vector that may be added."""
        if vector.dim() != 1 or not vector.is_floating_point() or vector.dtype not in DTYPES.values():
            raise ValueError(f"'{name}' is {vector.dtype} of shape {list(vector.shape)}; send flat float32 or float64")
        if name in self._sums and len(vector) != self._sums[name].length:
            raise ValueError(f"'{name}' has {len(vector)} elements, other silos sent {self._sums[name].length}")
        peak = peak_of(vector)
        if not math.isfinite(peak):
            raise ValueError(f"'{name}' holds NaN or Inf; if training diverged, take a lower [local] lr")
        if not weight * peak < LARGEST:
            raise ValueError(f"'{name}' reaches {peak:g}, which a weight of {weight:g} takes beyond what can be summed")
        return peak


def _dtype(lone: bool) -> torch.dtype:
    """Return the dtype of a part: a silo's vector as it came, or a sum."""
    return torch.float32 if lone else torch.float64


def _slice(nth: int, workers: int, length: int) -> slice:
    """Return the part of a vector that the nth of some workers adds up for its node."""
    width = -(-length // (workers * ALIGNED)) * ALIGNED
    return slice(min(nth * width, length), min((nth + 1) * width, length))


def _nodes(transport: Transport, piece: Piece) -> list[list[int]]:
    """Return the nodes that have a part of each window, and the server's."""
    return [sorted({0, *(transport.nodes.of[rank] for rank in window.parts)}) for window in piece.windows]


def _zeros(where: slice) -> Tensor:
    return torch.zeros(where.stop - where.start, dtype=torch.float64)
