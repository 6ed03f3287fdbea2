"""The coordinator adds single silos' updates that sites hand over, as if it had trained these silos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.run.job import Job
from mpifl.sums import Aggregator
from mpifl.wings.compression import Codec, codec_of
from mpifl.wire import Combination, Header, Uniform, Update, summed, uniform

_MARKED: Mapping[Combination, Callable[[Tensor], Tensor | Uniform]] = {
    "weighted": lambda vector: vector,
    "uniform": uniform,
    "summed": summed,
}


@dataclass(frozen=True)
class HandedOver:
    """Adds updates of single silos.

    Attributes:
        codec: Decodes payloads; None if a vector travels as it is.
    """

    codec: Codec | None

    @classmethod
    def of(cls, job: Job) -> HandedOver:
        """Return what adds the updates of a job."""
        return cls(codec_of(job.compression, job.compression.upload))

    def added(
        self, aggregation: Aggregator, told: Header, vectors: Mapping[tuple[int, str], Tensor]
    ) -> Header:
        """Add the update of one silo, and return its header as the aggregator makes it.

        Args:
            told: The header of the site.
            vectors: By silo and name what was handed over; `check_singles` has checked its names.

        Raises:
            InputError: the update cannot be combined with others; nothing of it has been added.
            OSError, MemoryError: there is no memory left.
        """
        update = Update(told.weight)
        try:
            for name, about in told.vectors.items():
                vector = vectors[told.silo, name]
                if vector.dtype == torch.uint8:
                    update.payloads[name] = vector
                    vector = self._decoded(name, vector, about.length)
                if len(vector) != about.length:
                    raise ValueError(f"'{name}' has {len(vector)} elements, its header tells {about.length}")
                update.vectors[name] = _MARKED[about.combined](vector)
            return told.model_copy(update={"vectors": aggregation.accumulate(told.silo, update)})
        except ValueError as error:
            raise InputError(f"its update was refused: {error}") from None

    def _decoded(self, name: str, payload: Tensor, length: int) -> Tensor:
        if self.codec is None:
            raise ValueError(f"'{name}' is a payload, and the job has no [compression] upload")
        try:
            return self.codec.decode(payload, length)
        except ValueError as error:
            raise ValueError(f"[compression] upload: '{name}' {error}") from None


def check_singles(vectors: Mapping[tuple[int, str], Tensor], headers: Sequence[Header]) -> None:
    """Check that single updates are exactly those that headers tell of.

    Raises:
        ValueError: they are not.
    """
    told = {(header.silo, name) for header in headers for name in header.vectors}
    if odd := sorted(told ^ vectors.keys()):
        silo, name = odd[0]
        raise ValueError(f"its updates are not those that its headers tell of ('{name}' of silo {silo})")
