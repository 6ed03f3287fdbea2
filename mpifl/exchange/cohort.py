"""The silos of a round, as an algorithm asks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from mpifl.algorithms import Work
from mpifl.exchange.admission import Expected, Knowledge
from mpifl.server import Server
from mpifl.transforms import Transform
from mpifl.wire import DTYPES, Mean, Request, Scalar, VectorSpec


class Asked(Protocol):
    """The federation, as far as a cohort knows it."""

    transforms: Sequence[Transform]
    knowledge: Knowledge

    def attempt(self, nth: int) -> int:
        """Return the stamp of an attempt at a round."""

    def reassignments(self, cohort: Sequence[int]) -> dict[int, int]:
        """Return {silo: rank} for silos of a cohort that another rank of their node should take."""

    def exchange(self, request: Request, vectors: Mapping[str, Tensor], expected: Expected) -> Mean | None:
        """Run one exchange."""


@dataclass
class Cohort:
    """The silos of a round; see `algorithms.base.Cohort`."""

    federation: Asked
    server: Server
    silos: list[int]
    population: int
    weight: float
    attempt: int = 0

    def mean(self, work: Work, /, **message: Tensor | Scalar) -> Mean:
        """Run `work` at every silo of the cohort with this message; return the weighted mean of the updates.

        Raises:
            RoundLost: too few silos answered.
        """
        transforms = self.federation.transforms
        expected = self.federation.knowledge.expected(self.server, work.__name__, self.silos, message)
        for transform in transforms:
            message = transform.request(self.server, message)
        mean = self._ask("work", work.__name__, expected, message)
        for transform in reversed(transforms):
            mean = transform.mean(self.server, mean)
        return mean

    def ask(self, verb: str, work: str = "", /, **message: Tensor | Scalar) -> Mean:
        """Make a request of any verb to these silos and return their answer as it is."""
        return self._ask(verb, work, Expected(), message)

    def _ask(self, verb: str, work: str, expected: Expected, message: Mapping[str, Tensor | Scalar]) -> Mean:
        vectors = {name: value.detach() for name, value in message.items() if isinstance(value, Tensor)}
        request = Request(
            verb=verb,  # type: ignore[arg-type]
            work=work,
            round=self.server.round,
            attempt=self.federation.attempt(self.attempt),
            cohort=self.silos,
            scalars={name: value for name, value in message.items() if not isinstance(value, Tensor)},
            vectors=[_spec(name, vector) for name, vector in vectors.items()],
            parameters=expected.parameters,
            lengths=dict(expected.lengths),
            homes=self.federation.reassignments(self.silos) if verb == "work" else {},
        )
        mean = self.federation.exchange(request, vectors, expected)
        assert mean is not None
        return mean


def _spec(name: str, vector: Tensor) -> VectorSpec:
    dtype = str(vector.dtype).removeprefix("torch.")
    if dtype not in DTYPES or vector.dim() != 1 or not vector.is_contiguous():
        raise TypeError(
            f"'{name}' is {dtype} of shape {list(vector.shape)}; vectors that travel are flat, of {list(DTYPES)}"
        )
    return VectorSpec(name=name, length=len(vector), dtype=dtype)
