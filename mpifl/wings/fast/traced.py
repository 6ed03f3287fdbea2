"""A step that runs machine code for batches of one shape, and another step for other batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from mpifl.data import rows
from mpifl.silo.steps import Batch, InPlace, Optimizer, Step, Training, along, by_autograd
from mpifl.wings.fast import compiled


class Traced(InPlace):
    """Runs machine code for batches with as many examples as the first batch.

    Args:
        t: The training.
        otherwise: Makes the step if no machine code can be made for the training.
    """

    def __init__(self, t: Training, otherwise: Callable[[Training], Step]) -> None:
        self._t, self._otherwise = t, otherwise
        self._compiled: compiled.CompiledStep | None = None
        self._other: Step | None = None

    def __call__(self, batches: Sequence[Batch], lr: float) -> None:
        """Take one step; on CUDA it may wait for more steps, to run as one graph."""
        other = self._other = self._other or self._begun(batches[0])
        if self._compiled is not None and rows(batches[0][1]) == self._compiled.size:
            self._compiled(batches[0], lr)
        else:
            self.finish()
            other(batches, lr)

    def _begun(self, batch: Batch) -> Step:
        t = self._t
        if (found := compiled.find(t, batch)) is None:
            return self._otherwise(t)
        self._compiled = found
        return along(t, by_autograd(t, found.total), found.optimizer)

    def finish(self) -> None:
        """Run the steps that wait."""
        if self._compiled is not None:
            self._compiled.finish()

    @property
    def total(self) -> Tensor:
        """The sum of the losses, each times its batch's number of examples; read it after a first step."""
        assert self._other is not None
        return self._other.total

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer that keeps state from step to step; None if there is none."""
        assert self._other is not None
        return self._other.optimizer
