"""The cohort: the silos of a round, to which an algorithm makes its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mpifl.algorithms import Lead, Server, Work
from mpifl.common import RoundLost
from mpifl.exchange.server_side.admission import ExpectedUpdates
from mpifl.exchange.server_side.outcome import Outcome
from mpifl.transforms import norm_of
from mpifl.wire import DTYPES, Compute, Converse, Mean, Request, Scalar, VectorSpec

if TYPE_CHECKING:
    from mpifl.exchange import Federation


@dataclass
class ServerCohort:
    """The silos of a round; see `mpifl.algorithms.Cohort`."""

    federation: Federation
    server: Server
    silos: list[int]
    population: int
    weight: float
    attempt: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    """The `train_loss` of each silo's last update that counted."""
    update_norm: float | None = None
    """The L2 norm of the last mean `delta`, as the server uses it: after masks, noise and codecs."""

    def mean(self, work: Work, /, **message: Tensor | Scalar) -> Mean:
        """Run `work` at every silo of the cohort with this message; return the weighted mean of the updates.

        Raises:
            RoundLost: too few silos answered.
        """
        transforms = self.federation.transforms
        purpose = self.federation.knowledge.algorithm.purpose(work.__name__)
        knowledge, name = self.federation.knowledge, work.__name__
        silos = knowledge.asked(self.server.round, name, self.silos)
        expected = knowledge.expected(self.server, name, silos, message)
        for transform in transforms:
            message = transform.request(self.server, message, purpose)
        filled = not silos and any(transform.fills for transform in transforms)
        mean = Mean({}, {}, {}) if filled else self._compute(name, silos, message, expected).mean()
        self.losses |= {k: float(one["train_loss"]) for k, one in mean.silos.items() if "train_loss" in one}
        for transform in reversed(transforms):
            mean = transform.mean(self.server, mean, purpose)
        if "delta" in mean.vectors:
            self.update_norm = float(f"{norm_of([mean.vectors['delta']]):.6g}")  # on any threads
        return mean

    def of(self, silos: Sequence[int]) -> ServerCohort:
        """Return the cohort of these silos, for a further request in the same attempt at the round."""
        return self.federation.cohort(silos, self.server, self.attempt)

    def dialogue(self, part: Work, lead: Lead, /, **message: Tensor | Scalar) -> Mean:
        """Run `part` at every silo while it exchanges messages with the server; return the updates' mean.

        Args:
            part: The client method.
            lead: Leads the dialogue at the server.
            **message: The message with which the dialogue begins.

        Raises:
            RoundLost: a silo or the server ended the dialogue early.
        """
        rows = max(max(self.federation.knowledge.examples[silo].values()) for silo in self.silos)
        name, longest = part.__name__, lead.begin(rows)
        weights = {silo: self.federation.knowledge.weight(name, silo) for silo in self.silos}
        vectors, scalars = _parted(message)
        try:
            asked: dict[str, Any] = {"work": name, "longest": longest, "scalars": scalars}
            outcome = self._exchange(Converse, vectors, ExpectedUpdates(weights), lead=lead, **asked)
        except RoundLost:
            if lead.error is not None:
                raise lead.error from None
            raise
        if lead.error is not None:
            raise lead.error
        return outcome.mean()

    def _compute(
        self, work: str, silos: list[int], message: Mapping[str, Tensor | Scalar], expected: ExpectedUpdates
    ) -> Outcome:
        vectors, scalars = _parted(message)
        return self._exchange(
            Compute,
            vectors,
            expected,
            work=work,
            scalars=scalars,
            parameters=expected.parameters,
            lengths=dict(expected.lengths),
            sent=expected.sent,
            cohort=silos,
            assignment=self.federation.reassignments(silos),
        )

    def ask(
        self, kind: type[Request], vectors: Mapping[str, Tensor] | None = None, /, **fields: Any
    ) -> Outcome:
        """Make a request of any kind, with the kind's own fields, to these silos; return the outcome."""
        return self._exchange(kind, vectors or {}, ExpectedUpdates(), **fields)

    def _exchange(
        self,
        kind: type[Request],
        vectors: Mapping[str, Tensor],
        expected: ExpectedUpdates,
        *,
        lead: Lead | None = None,
        **fields: Any,
    ) -> Outcome:
        request = kind(
            round=self.server.round,
            attempt=self.federation.attempt(self.attempt),
            vectors=[_spec(name, vector) for name, vector in vectors.items()],
            **{"cohort": self.silos, **fields},
        )
        outcome = self.federation.exchange(request, vectors, expected, lead)
        assert outcome is not None
        return outcome


def _parted(message: Mapping[str, Tensor | Scalar]) -> tuple[dict[str, Tensor], dict[str, Scalar]]:
    """Return the vectors of a message, and its scalars."""
    vectors = {name: value.detach() for name, value in message.items() if isinstance(value, Tensor)}
    scalars = {name: value for name, value in message.items() if not isinstance(value, Tensor)}
    return vectors, scalars


def _spec(name: str, vector: Tensor) -> VectorSpec:
    dtype = str(vector.dtype).removeprefix("torch.")
    if dtype not in DTYPES or vector.dim() != 1 or not vector.is_contiguous():
        found = f"{dtype} of shape {list(vector.shape)}"
        raise TypeError(f"'{name}' is {found}; vectors that travel are flat, of {list(DTYPES)}")
    return VectorSpec(name=name, length=len(vector), dtype=dtype)
