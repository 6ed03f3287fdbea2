"""Steps as CUDA graphs: one call starts all kernels of one or more steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mpifl.silo.steps import Batch
from mpifl.wings.fast.code_loading import Run

SIZES = (64, 8, 1)
"""The numbers of steps that a graph may have: an epoch of 100 steps takes 1 + 4 + 4 calls."""
MOST_BYTES = 16 << 20
"""The most bytes of batches for one graph, unless one batch has more. For large ones starts cost little."""


class Graphs:
    """A step as graphs of one or more steps, each with its own batch.

    A graph reads and writes the addresses with which it was recorded. So batches are copied into `_room`, and
    the step's other tensors keep their memory.

    Args:
        run: The step, a function of its tensors and the batch's.
        inputs: The step's tensors, which it changes in place.
        batch: An example of the batches that will come.
        record: Records a call as a graph; see `recorded`.
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
        """Add a step. It runs when there are enough steps for the largest graph, or at `finish`."""
        self._waiting.append(batch)
        if len(self._waiting) == self.sizes[0]:
            self.finish()

    def finish(self) -> None:
        """Run all steps that wait, in their order."""
        while self._waiting:
            size = next(size for size in self.sizes if size <= len(self._waiting))
            self._copy(self._waiting[:size])
            self._graph(size)()
            del self._waiting[:size]

    def restart(self) -> None:
        """Forget steps that wait, from a training that was broken off."""
        self._waiting.clear()

    def _graph(self, size: int) -> Callable[[], None]:
        """Return the graph of `size` steps. Recording runs some steps, which are undone."""
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
        """Copy batches to where graphs read them, by one operation for each of x and y."""
        for room, parts in zip(
            zip(*self._room[: len(batches)], strict=True), zip(*batches, strict=True), strict=True
        ):
            torch._foreach_copy_(list(room), list(parts))


def recorded(call: Callable[[], None]) -> Callable[[], None]:
    """Record a call as a CUDA graph on the current device. This runs the call some times."""
    _warm_up(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _warm_up(call: Callable[[], None]) -> None:
    """Run a call some times on another stream, as PyTorch requires before a capture."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
