"""One rank's part of the weighted mean: a running sum for each named vector, in its node's shared memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from mpifl.sums.exact import ExactSum, is_partial_sum, window_of
from mpifl.sums.planning import PartialSum
from mpifl.sums.vector_checks import checked_peak, header_of
from mpifl.wire import Memory, Update, VectorHeader, combination, unmarked, wrong_length

FEW = 3
"""The most silos of a rank whose vectors stay unweighted: their memory is that of a sum and a vector."""


class LocalSums:
    """The exact sums of weight * vector over the silos of one rank; if the silos are few, their vectors."""

    def __init__(self, device: torch.device, memory: Memory) -> None:
        self._device, self._memory = device, memory
        self._sums: dict[str, ExactSum] = {}
        self._stayed: defaultdict[str, list[tuple[int, Tensor, float]]] = defaultdict(list)
        """Unweighted vectors by name: window, vector and weight of each."""
        self.expect(1)

    def expect(self, summands: int, here: int | None = None) -> None:
        """Forget the earlier sums, and be ready for new ones.

        Args:
            summands: The most updates that all ranks together will add.
            here: How many of them are this rank's. If they are few, their vectors stay unweighted here, and
                are read only once, when the mean is made.
        """
        self._sums.clear()
        self._stayed.clear()
        few = here is not None and here <= FEW
        self._lends = self._memory.empty if few else torch.empty
        self.summands, self._few = summands, few and self._device.type == "cpu"

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return memory for a vector: shared memory if the vector may stay unweighted."""
        return self._lends(length, dtype=dtype)

    def add(self, update: Update) -> dict[str, VectorHeader]:
        """Add one silo's update to this rank's sums and describe its vectors for the header.

        Raises:
            ValueError: a vector cannot be added; see `checked_peak`.
            OSError, MemoryError: there is no memory left, or no file for shared memory. After any error
                nothing has been added.
        """
        combined = {name: combination(value) for name, value in update.vectors.items()}
        vectors = {name: unmarked(value) for name, value in update.vectors.items()}
        weights = {n: update.weight if how == "weighted" else 1.0 for n, how in combined.items()}
        peaks = {n: self._peak(n, vector, weights[n]) for n, vector in vectors.items()}
        rooms = {n: self._room(n, vector, weights[n] * peaks[n]) for n, vector in vectors.items()}
        windows = {n: self._add(n, vector, weights[n], peaks[n], rooms[n]) for n, vector in vectors.items()}
        return {name: header_of(update, name, window) for name, window in windows.items()}

    def take(self, made: Mapping[tuple[str, int], tuple[Tensor, int]]) -> None:
        """Add sums of several updates that were made elsewhere, for the same number of summands in all.

        Args:
            made: By vector's name and window the sum, float64 on the CPU, shape [n], and how many updates it
                is of. The sums belong to this object from now on.

        Raises:
            ValueError: one of them cannot be such a sum. Nothing has been added.
        """
        for (name, window), (total, most) in made.items():
            if not is_partial_sum(total, window, self.summands, most):
                raise ValueError(f"its sum of '{name}' in window {window} is none of {most} updates")
            if name in self._sums and self._sums[name].length != len(total):
                raise ValueError(wrong_length(name, len(total), self._sums[name].length))
        for (name, window), (total, _) in made.items():
            sums = self._sums.setdefault(name, ExactSum(len(total), self.summands))
            fresh = window not in sums.windows
            sums.take(window, self._memory.move_to_shared_memory(total) if fresh else total)

    def _peak(self, name: str, vector: Tensor, weight: float) -> float:
        before = [len(vector) for _, vector, _ in self._stayed.get(name, [])[:1]]
        before += [self._sums[name].length] if name in self._sums else []
        return checked_peak(name, vector, weight, before[0] if before else None)

    def _room(self, name: str, vector: Tensor, peak: float) -> Tensor | None:
        """Return the memory that adding a vector needs, None if it needs none.

        Only this step may run out of memory, so it comes before anything is added.
        """
        window = window_of(peak)
        if window is None:
            return None
        if self._stays(vector):
            return self._memory.move_to_shared_memory(vector.contiguous())
        return None if name in self._sums and window in self._sums[name].windows else self._empty(vector)

    def _add(self, name: str, vector: Tensor, weight: float, peak: float, room: Tensor | None) -> int | None:
        if not self._stays(vector):
            sums = self._sums.setdefault(name, ExactSum(len(vector), self.summands))
            return sums.add(vector, weight, peak, room)
        window = window_of(weight * peak)
        if window is not None and room is not None:
            self._stayed[name].append((window, room, weight))
        return window

    def _stays(self, vector: Tensor) -> bool:
        """Return whether a vector stays unweighted; the ranks that add it up then apply the weight."""
        return self._few and vector.dtype == torch.float32

    def parts(self) -> list[PartialSum]:
        """Return this rank's sums and vectors: their windows, and where the ranks of its node find them."""
        self._to_host()
        handle = self._memory.handle
        stayed = [
            PartialSum(name=name, window=window, handle=handle(vector), weight=weight)
            for name, vectors in sorted(self._stayed.items())
            for window, vector, weight in vectors
        ]
        sums = [PartialSum(name=name, window=window, handle=handle(one)) for name, window, one in self.sums()]
        return stayed + sums

    def sums(self) -> Iterator[tuple[str, int, Tensor]]:
        """Yield each sum with its vector's name and its window."""
        for name, sums in sorted(self._sums.items()):
            for window, total in sorted(sums.windows.items()):
                yield name, window, total

    def own(self, name: str, window: int) -> list[Tensor]:
        """Return this rank's parts of a vector in a window, in the order of `parts`."""
        stayed = [vector for number, vector, _ in self._stayed.get(name, []) if number == window]
        return stayed + [total for n, number, total in self.sums() if (n, number) == (name, window)]

    def _empty(self, vector: Tensor) -> Tensor:
        if vector.is_cpu:
            return self._memory.empty(len(vector), torch.float64)
        return torch.empty(len(vector), dtype=torch.float64, device=vector.device)

    def _to_host(self) -> None:
        """Copy sums from a device to the node's shared memory."""
        for sums in self._sums.values():
            for window, total in sums.windows.items():
                if not total.is_cpu:
                    host = self._memory.empty_pinned(sums.length, torch.float64)
                    sums.windows[window] = host.copy_(total)
