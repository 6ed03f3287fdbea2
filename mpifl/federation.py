"""The exchange between the server and the silos: one function that all ranks run alike, in two beats.

First the request goes out and each rank does the work of its silos; small headers come back and the server's verdict
says whose updates count. Only then do vectors move, so that a silo that failed breaks no collective.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mpifl import interrupts
from mpifl.aggregation.plan import fitting, headers_of, plan
from mpifl.algorithms.base import Work
from mpifl.errors import RoundLost
from mpifl.messages import DTYPES, Header, Mean, Piece, Report, Request, Scalar, VectorSpec, Verdict
from mpifl.server import Server
from mpifl.transforms import Transform
from mpifl.transport import Transport
from mpifl.worker import Worker

RANKS_SHOWN = 64
"""Workers whose seconds are kept one by one."""


@dataclass
class Ledger:
    """What exchanges have cost since it was last emptied; bytes are those between the server and the silos."""

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_of_silo: Counter[int] = field(default_factory=Counter)
    """Of both, what each silo received and sent."""
    seconds_training: float = 0.0
    """Of the slowest rank."""
    seconds_waiting: float = 0.0
    """Mean over the workers of how long they waited for the slowest."""
    seconds_communication: float = 0.0
    rank_seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    """Of each worker, for at most `RANKS_SHOWN` of them: how long it trained and waited for the slowest."""
    faults: dict[int, str] = field(default_factory=dict)


class Federation:
    """All silos, reached through the exchange."""

    def __init__(
        self,
        transport: Transport,
        worker: Worker,
        transforms: Sequence[Transform],
        placed: Mapping[int, Sequence[int]],
        quorum: float,
        device: torch.device,
    ) -> None:
        self.transport = transport
        self.population = sum(len(silos) for silos in placed.values())
        self.ledger = Ledger()
        self._worker, self._transforms, self._quorum, self._device = worker, transforms, quorum, device
        self.about: dict[int, dict[str, str]] = {}
        """What each worker said of itself when it opened its shards."""
        self.placed = {rank: set(silos) for rank, silos in placed.items()}
        worker.rank = transport.rank
        self._worked: dict[int, tuple[float, int]] = {}
        self._received: dict[str, Tensor] = {}

    def adopt(self, server: Server) -> None:
        """Move the server's vectors to where the ranks of its node read them, so that asking copies nothing."""
        for name, value in server.state.items():
            if isinstance(value, Tensor) and value.is_cpu and value.dim() == 1:
                server.state[name] = self.transport.memory.adopt(value)

    def cohort(self, silos: Sequence[int], server: Server, attempt: int = 0) -> Cohort:
        """Return the cohort of these silos for the server's current round."""
        return Cohort(self, server, list(silos), self.population, attempt)

    def everyone(self, server: Server) -> Cohort:
        """Return the cohort of all silos."""
        return self.cohort(range(self.population), server)

    def seconds_of(self, silo: int) -> float | None:
        """Return how long a silo's work took on average, None while it has not been asked."""
        total, times = self._worked.get(silo, (0.0, 0))
        return total / times if times else None

    def move(self, server: Server, homes: Mapping[int, int], states: Mapping[int, str]) -> dict[int, str]:
        """Have other ranks host some silos, whose state they read from the checkpoint of the server's round.

        Args:
            server: Rank 0's.
            homes: The rank that is to host each of the silos.
            states: The sha256 of each silo's file in the checkpoint, for silos that keep state.

        Returns:
            Why silos stay where they are, if they cannot move.
        """
        files: dict[str, Scalar] = {str(silo): states[silo] for silo in homes if silo in states}
        request = Request(verb="host", round=server.round, cohort=sorted(homes), scalars=files, homes=dict(homes))
        mean = self.exchange(request)
        assert mean is not None
        for silo in mean.silos:
            for silos in self.placed.values():
                silos.discard(silo)
            self.placed[homes[silo]].add(silo)
        return mean.faults

    def serve(self) -> None:
        """Answer the server's requests until it says stop; for all ranks but the server's."""
        while self.exchange() is not None:
            pass

    def stop(self) -> None:
        """Let the other ranks leave `serve`."""
        self.transport.tell(Request(verb="stop").encode())

    def exchange(self, request: Request | None = None, vectors: Mapping[str, Tensor] | None = None) -> Mean | None:
        """Run one exchange; the server gives a request and gets the mean. None is returned when it is to stop.

        Raises:
            RoundLost: on the server only, when too few silos answered.
        """
        began = time.perf_counter()
        request, message = self._request(request, dict(vectors or {}))
        if request.verb == "stop":
            return None
        report = self._worker.answer(request, message).model_copy(update={"interrupted": interrupts.pending()})
        reports = fitting(self._gather(request, report))
        headers = headers_of(reports)
        verdict = self._judge(request, reports, headers)
        vectors = self._worker.aggregation.combine(self.transport, verdict)
        self._worker.settle(request, verdict)
        if self.transport.is_server and request.verb == "work":
            self._account(request, headers, verdict, reports, time.perf_counter() - began)
        return self._mean(verdict, headers, vectors)

    def _request(self, request: Request | None, vectors: dict[str, Tensor]) -> tuple[Request, dict[str, Tensor]]:
        request = Request.model_validate_json(self.transport.tell(request.encode() if request else None))
        return request, {spec.name: self._spread(spec, vectors.get(spec.name)) for spec in request.vectors}

    def _spread(self, spec: VectorSpec, vector: Tensor | None) -> Tensor:
        """Send a vector from the server to all ranks; return it where this rank's silos read it."""
        self._received.pop(spec.name, None)  # what was received last may be written over now
        given = None if vector is None else vector.cpu()
        here = self._received[spec.name] = self.transport.spread(given, spec.length, DTYPES[spec.dtype])
        if self._device.type == "cpu":
            return here
        return self.transport.memory.pinned(here).to(self._device, non_blocking=True)

    def _gather(self, request: Request, report: Report) -> dict[int, Report]:
        """Bring the reports of all ranks to the server, each as it comes."""
        reports = {self.transport.rank: report}
        if not self.transport.is_server:
            self.transport.report(report.encode())
            return reports
        for rank, record in self.transport.reports():
            reports[rank] = self._hosted(request, rank, Report.model_validate_json(record))
            if reports[rank].interrupted:
                interrupts.note()
        self.about |= {rank: r.about for rank, r in reports.items() if r.about}
        return reports

    def _hosted(self, request: Request, rank: int, report: Report) -> Report:
        """Leave out what a rank says of silos that are not its own."""
        own = {silo for silo, home in request.homes.items() if home == rank} or self.placed.get(rank, set())
        return report.model_copy(update={"headers": [header for header in report.headers if header.silo in own]})

    def _judge(self, request: Request, reports: Mapping[int, Report], headers: list[Header]) -> Verdict:
        """Decide, at the server, whose updates count, and tell all ranks."""
        verdict = Verdict()
        if self.transport.is_server:
            pieces = plan(reports)
            lost = self._reason_to_lose(request, headers, pieces) if request.verb == "work" else None
            accepted = [] if lost else [header.silo for header in headers if header.fault is None]
            placed = [] if lost else self._worker.aggregation.place(pieces)
            verdict = Verdict(lost=lost, accepted=accepted, pieces=placed)
        return Verdict.model_validate_json(self.transport.tell(verdict.encode() if self.transport.is_server else None))

    def _reason_to_lose(self, request: Request, headers: list[Header], pieces: Sequence[Piece]) -> str | None:
        faults = [f"silo {header.silo}: {header.fault}" for header in headers if header.fault is not None]
        answered, asked = len(headers) - len(faults), len(request.cohort)
        if answered < max(math.ceil(self._quorum * asked - 1e-9), 1):
            return f"{answered} of {asked} silos answered ({'; '.join(faults[:3])})"
        weightless = [piece.name for piece in pieces if piece.total == 0]
        return f"all updates weigh 0 in the mean of '{weightless[0]}'" if weightless else None

    def _mean(self, verdict: Verdict, headers: list[Header], vectors: dict[str, Tensor]) -> Mean:
        if verdict.lost and self.transport.is_server:
            raise RoundLost(verdict.lost)
        faults = {header.silo: header.fault for header in headers if header.fault is not None}
        good = [header for header in headers if header.fault is None]
        return Mean(vectors, _averages(good), {header.silo: header.scalars for header in good}, faults)

    def _account(
        self, request: Request, headers: list[Header], verdict: Verdict, reports: dict[int, Report], seconds: float
    ) -> None:
        ledger, size = self.ledger, len(request.cohort)
        down = len(request.encode()) + sum(v.length * DTYPES[v.dtype].itemsize for v in request.vectors)
        accepted = set(verdict.accepted)
        ledger.bytes_sent += size * down
        up = {header.silo: len(header.encode()) for header in headers}
        up |= {header.silo: up[header.silo] + _size(header) for header in headers if header.silo in accepted}
        ledger.bytes_received += sum(up.values())
        ledger.bytes_of_silo.update({silo: down + up.get(silo, 0) for silo in request.cohort})
        ledger.faults.update({header.silo: header.fault for header in headers if header.fault is not None})
        for header in headers:
            total, times = self._worked.get(header.silo, (0.0, 0))
            self._worked[header.silo] = total + header.seconds, times + (header.fault is None)
        works = [reports[rank].seconds for rank in self.transport.workers]
        for rank, seconds_of_rank in zip(self.transport.workers[:RANKS_SHOWN], works, strict=False):
            spent = ledger.rank_seconds.setdefault(rank, {"training": 0.0, "waiting": 0.0})
            spent["training"] += seconds_of_rank
            spent["waiting"] += max(works) - seconds_of_rank
        ledger.seconds_training += max(works)
        ledger.seconds_waiting += max(works) - sum(works) / len(works)
        ledger.seconds_communication += seconds - max(works)


@dataclass
class Cohort:
    """The silos of a round; see `algorithms.base.Cohort`."""

    federation: Federation
    server: Server
    silos: list[int]
    population: int
    attempt: int = 0

    def mean(self, work: Work, /, **message: Tensor | Scalar) -> Mean:
        """Run `work` at every silo of the cohort with this message; return the weighted mean of the updates.

        Raises:
            RoundLost: too few silos answered.
        """
        transforms = self.federation._transforms
        for transform in transforms:
            message = transform.request(self.server, message)
        mean = self.ask("work", work.__name__, **message)
        for transform in reversed(transforms):
            mean = transform.mean(self.server, mean)
        return mean

    def ask(self, verb: str, work: str = "", /, **message: Tensor | Scalar) -> Mean:
        """Make a request of any verb to these silos and return their answer as it is."""
        vectors = {name: value.detach() for name, value in message.items() if isinstance(value, Tensor)}
        request = Request(
            verb=verb,  # type: ignore[arg-type]
            work=work,
            round=self.server.round,
            attempt=self.attempt,
            cohort=self.silos,
            scalars={name: value for name, value in message.items() if not isinstance(value, Tensor)},
            vectors=[_spec(name, vector) for name, vector in vectors.items()],
        )
        mean = self.federation.exchange(request, vectors)
        assert mean is not None
        return mean


def _spec(name: str, vector: Tensor) -> VectorSpec:
    dtype = str(vector.dtype).removeprefix("torch.")
    if dtype not in DTYPES or vector.dim() != 1 or not vector.is_contiguous():
        raise TypeError(
            f"'{name}' is {dtype} of shape {list(vector.shape)}; vectors that travel are flat, of {list(DTYPES)}"
        )
    return VectorSpec(name=name, length=len(vector), dtype=dtype)


def _size(header: Header) -> int:
    """Return how many bytes a silo's vectors are on a wire: as float32, or as a codec wrote them."""
    return sum(4 * folded.length if folded.bytes is None else folded.bytes for folded in header.vectors.values())


def _averages(headers: Sequence[Header]) -> dict[str, float]:
    """Average the numbers of the updates by their weights; silos that do not name one are left out of it."""
    names = {name for header in headers for name, value in header.scalars.items() if not isinstance(value, str)}
    averages = {}
    for name in sorted(names):
        pairs = [(header.weight, float(header.scalars[name])) for header in headers if name in header.scalars]
        total = math.fsum(weight for weight, _ in pairs)
        if total > 0:
            averages[name] = math.fsum(weight * value for weight, value in pairs) / total
    return averages
