"""Steps as CUDA graphs: all kernels of a step, or of many, are started by one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mpifl.silo.steps import Batch
from mpifl.wings.fast.code_loading import Run

SIZES = (64, 8, 1)
"""Steps of one graph: an epoch of 100 is started by 1 + 4 + 4 calls."""
MOST_BYTES = 16 << 20
"""Batches that lie ready for one graph, unless one alone is larger: with large ones, starting is little."""


class Graphs:
    """A step as graphs, each of as many steps as its batches are.

    A graph reads and writes at the addresses that it was recorded with. So batches are copied into `room`,
    and what else a step works on stays where it is.

    Args:
        run: The step, a function of the tensors that it works on and the batch's.
        inputs: What it works on, changed in place.
        batch: Like all that it will be given.
        record: Makes a call a graph; see `recorded`.
    """

    def __init__(
        self,
        run: Run,
        inputs: list[Tensor],
        batch: Batch,
        record: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        self._run, self._inputs, self._record = run, inputs, record
        most = MOST_BYTES // max(sum(part.nbytes for part in batch), 1)
        self.sizes = [size for size in SIZES if size <= max(most, 1)]
        self._room = [[torch.empty_like(part) for part in batch] for _ in range(self.sizes[0])]
        self._graphs: dict[int, Callable[[], None]] = {}
        self._waiting: list[Batch] = []
        self._copy([batch])
        self._graph(1)

    def __call__(self, batch: Batch) -> None:
        """Take a step, when there are enough for a graph or `finish` is called."""
        self._waiting.append(batch)
        if len(self._waiting) == self.sizes[0]:
            self.finish()

    def finish(self) -> None:
        """Take all steps that wait, in their order."""
        while self._waiting:
            size = next(size for size in self.sizes if size <= len(self._waiting))
            self._copy(self._waiting[:size])
            self._graph(size)()
            del self._waiting[:size]

    def restart(self) -> None:
        """Forget what waits, of a training that was broken off."""
        self._waiting.clear()

    def _graph(self, size: int) -> Callable[[], None]:
        """Return the graph of so many steps; recording it takes some, which are undone."""
        if size not in self._graphs:
            before = [tensor.clone() for tensor in self._inputs]
            self._graphs[size] = self._record(lambda: self._steps(size))
            for tensor, value in zip(self._inputs, before, strict=True):
                tensor.copy_(value)
        return self._graphs[size]

    def _steps(self, size: int) -> None:
        for batch in self._room[:size]:
            self._run([*self._inputs, *batch])

    def _copy(self, batches: Sequence[Batch]) -> None:
        """Bring batches to where graphs read them, by an operation for each of x and y."""
        for room, parts in zip(
            zip(*self._room[: len(batches)], strict=True), zip(*batches, strict=True), strict=True
        ):
            torch._foreach_copy_(list(room), list(parts))


def recorded(call: Callable[[], None]) -> Callable[[], None]:
    """Return a call as a CUDA graph on the current device; it has been run some times when this returns."""
    _warm_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _warm_up(call: Callable[[], None]) -> None:
    """Run a call some times beside the current stream, as a capture wants it done before."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
