"""The rounds of a job, played in one process without MPI and without training, for the bytes that they move.

All of a training is there but its steps: the algorithm makes its requests, transforms encode them, silos
answer, and the exchange's own ledger counts. Where updates are averaged, one silo answers for all that have
the same architecture. What a silo sends does not depend on what it has learned.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from mpifl.algorithms import Algorithm, Lead
from mpifl.cli.plan.untrained import Untrained, alone, throwaway_site
from mpifl.common import InputError, RoundLost
from mpifl.exchange import Federation
from mpifl.exchange.server_side import ExchangeCosts, Outcome, ServerCohort, size_of_reply, size_of_request
from mpifl.run.folder import serialization
from mpifl.run.job import Job, is_silo_level
from mpifl.run.job.tables import POISSON, WITHOUT_LOSSES
from mpifl.training import BestModel, Selector, build, round_clock
from mpifl.transforms import common_name, own_name
from mpifl.wings import wings_of
from mpifl.wings.site import sealed_size
from mpifl.wire import Header, Reply, Request

LONGEST = -1.2345678901234567e-300
"""A number with the most digits: files hold numbers as text."""
DIGESTS = range(1 << 31, 1 << 48)
"""Whole numbers that no training counts up to: they identify a secret or a ledger, and differ in each run."""


class MessageClass(NamedTuple):
    """One kind of message of a round: a client method's request or its answers, and their two parts."""

    work: str
    part: str


@dataclass
class PlannedCosts(ExchangeCosts):
    """Counts the answers of all silos that were asked, where few of them answer for the others."""

    asked: Sequence[int] = ()
    stands: Mapping[int, int] = field(default_factory=dict)
    """The silo that answers for each."""
    federation: Federation | None = None
    classes: Counter[MessageClass] = field(default_factory=Counter)
    replies: list[Reply] = field(default_factory=list)
    keeping: set[int] = field(default_factory=set)
    """The silos that keep state."""
    came: set[int] = field(default_factory=set)
    """All silos that were asked."""

    def add(
        self, request: Request, headers: Sequence[Reply], accepted: Any, seconds: Any, all_in_all: float
    ) -> None:
        """Add an exchange with all its silos; see `ExchangeCosts.add`."""
        work, found = str(getattr(request, "work", request.kind)), {one.silo: one for one in headers}
        self.replies = [self._of(silo, found[self.stands[silo]], work) for silo in self.asked]
        self.came |= {*self.asked}
        self.keeping |= {reply.silo for reply in self.replies if reply.keeps}
        request = request.model_copy(update={"cohort": list(self.asked)})
        super().add(request, self.replies, self.asked, seconds, all_in_all)
        down = size_of_request(request)
        for reply in self.replies:
            up = size_of_reply(reply, accepted=True)
            for part, size in (("asks", down), ("answers", up)):
                self.classes[MessageClass(work, f"{part}, records")] += size.record
                self.classes[MessageClass(work, f"{part}, vectors")] += size.vectors

    def _of(self, silo: int, reply: Reply, work: str) -> Reply:
        """Return a silo's answer, as another has given it."""
        if silo == reply.silo or not isinstance(reply, Header):
            return reply.model_copy(update={"silo": silo})
        assert self.federation is not None
        common = common_name(own_name(reply.silo), reply.silo)
        vectors = {
            own_name(silo) if common_name(name, reply.silo) == common else name: one
            for name, one in reply.vectors.items()
        }
        weight = self.federation.knowledge.weight(work, silo)
        return reply.model_copy(update={"silo": silo, "weight": weight, "vectors": vectors})


@dataclass
class PlannedCohort(ServerCohort):
    """The silos of a round, of which few are asked."""

    few: bool = True

    def of(self, silos: Sequence[int]) -> PlannedCohort:
        """Return the cohort of these silos; see `ServerCohort.of`."""
        return dataclasses.replace(self, silos=self.federation.membership.available(silos))

    def _exchange(
        self, kind: type[Request], vectors: Mapping[str, Tensor], expected: Any, *, lead: Lead | None = None,
        **fields: Any,
    ) -> Outcome:  # fmt: skip
        asked, costs = fields.pop("cohort", self.silos), self.federation.ledger
        assert isinstance(costs, PlannedCosts)
        architecture, first = self.federation.knowledge.algorithm.architecture_of, dict[int, int]()
        for silo in asked:
            first.setdefault(architecture(silo), silo)
        costs.asked = asked
        costs.stands = {silo: first[architecture(silo)] if self.few else silo for silo in asked}
        few = sorted(set(costs.stands.values()))
        outcome = super()._exchange(kind, vectors, expected, lead=lead, cohort=few, **fields)
        return dataclasses.replace(outcome, replies=costs.replies)


@dataclass(frozen=True)
class PlayedRound:
    """The silos that one round asks, its bytes as the ledger of a training counts them, and those of each
    message class."""

    silos: Sequence[int]
    sent: int
    received: int
    of_silo_max: int
    classes: Mapping[MessageClass, int]


@dataclass
class Played:
    """What the rounds of a job move and keep.

    Attributes:
        rounds: Each round.
        parameters: The parameters that travel.
        server_state: The bytes of the server's file of a checkpoint after the last round; where it holds
            numbers with a fraction beside its tensors, at most these.
        silo_states: The same of each silo that keeps state, by silo.
        at_most: Why rounds move at most these bytes; empty if they move these exactly.
        unknown: What is not counted in them.
    """

    parameters: int
    rounds: list[PlayedRound] = field(default_factory=list)
    server_state: int = 0
    silo_states: dict[int, int] = field(default_factory=dict)
    at_most: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def play(job: Job) -> Played:
    """Play all rounds of a job.

    Raises:
        InputError: the job is refused, or its rounds cannot be played without training.
    """
    if job.split is not None:
        what = "lines of a split network hold rows of its examples, and are not planned"
        raise InputError(f"[split]: {what}; train one round, and look at its metrics.jsonl")
    changed: dict[str, Any] = {"device": "cpu"}
    if job.security is not None:  # one rank is one party
        changed["security"] = job.security.model_copy(update={"least": 1})
    with throwaway_site() as folder:
        run, wings = folder / "run", lambda job: [*wings_of(job), Untrained(job)]
        with_plan = build.build(job.model_copy(update=changed), run, (), False, alone(), wings_of=wings)
        try:
            return _rounds_of(with_plan, folder)
        except RoundLost as lost:
            raise InputError(f"{job.name}: a round cannot be played without training: {lost}") from None


def _rounds_of(built: build.Built, folder: Path) -> Played:
    """Run the algorithm's rounds, as the round loop does."""
    job, server, spec = built.job, built.server, built.spec
    algorithm = job.build_algorithm().for_federation(spec)
    for wing in built.wings:
        wing.begin(server, built.exchange, lambda *told, **more: None)
    server.trains = Untrained(job).untrained
    server.state = server.begun(algorithm.begin)
    sizes = [entry.examples["train"] for entry in spec.silos]
    chosen = Selector(job.cohort, sizes, server, None, round_clock(algorithm, spec, job.seed))
    chosen.begin()
    BestModel(job.evaluate, algorithm, server, folder).begin()
    played = Played(len(server.model.shared))
    played.at_most, played.unknown = _limits(job, algorithm)
    by_chance = job.cohort.select == POISSON or job.cohort.select not in WITHOUT_LOSSES
    keeping = set[int]()
    alike = job.aggregation.is_mean and job.attack.kind == "none" and not algorithm.timed
    alike &= not job.tracking.step_losses
    alike &= not algorithm.seedless  # it solves equations of all rows, and one silo's may have no solution
    alike &= job.security is None  # a masked sum asks how many parties it has
    for _ in range(job.rounds):
        drawn = list(range(len(sizes))) if by_chance else chosen.select()
        costs = built.exchange.ledger = PlannedCosts(federation=built.exchange)
        exchange = built.exchange
        cohort = PlannedCohort(
            exchange, server, drawn, exchange.population, exchange.knowledge.total, few=alike
        )
        algorithm.round(server, cohort)
        chosen.pass_time(drawn, exchange.names)
        server.round += 1
        most = max(costs.bytes_of_silo.values(), default=0)
        played.rounds.append(
            PlayedRound(sorted(costs.came), costs.bytes_sent, costs.bytes_received, most, costs.classes)
        )
        keeping |= costs.keeping
    return _kept(played, built, keeping, sealed=job.secure)


def _longest(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state in which each number with a fraction, and each digest, has the most digits that one can
    have."""
    most = {name: LONGEST if isinstance(one, float) else one for name, one in state.items()}
    return most | {name: DIGESTS[-1] for name, one in most.items() if isinstance(one, int) and one in DIGESTS}


def _kept(played: Played, built: build.Built, keeping: set[int], *, sealed: bool) -> Played:
    """Add the bytes of the files of a checkpoint after the last round, of silos' as their sites seal them."""
    played.server_state = serialization.size_of(_longest(built.server.state))
    architecture = built.exchange.knowledge.algorithm.architecture_of
    lent = next(wing.lent for wing in built.wings if isinstance(wing, Untrained))
    sizes = {
        architecture(k): serialization.size_of(_longest({**one.state, **one.kept})) for k, one in lent.items()
    }
    sizes = {one: sealed_size(size) for one, size in sizes.items()} if sealed else sizes
    played.silo_states = {silo: sizes[architecture(silo)] for silo in sorted(keeping)}
    return played


def _limits(job: Job, algorithm: Algorithm) -> tuple[list[str], list[str]]:
    """Return why bytes are an upper limit, and what is not in them."""
    most = []
    if job.cohort.select == POISSON:
        most.append("[cohort] select = 'poisson' draws in secret: all silos are counted in each round")
    elif job.cohort.select not in WITHOUT_LOSSES:
        most.append(f"[cohort] select = '{job.cohort.select}' goes by losses: all silos are counted")
    if job.evaluate.patience is not None or job.evaluate.stop_at_target:
        most.append("[evaluate] may end the training before its last round")
    missing = []
    if algorithm.varied and not (algorithm.timed or algorithm.architectures()):
        missing.append("which vector a silo sends goes by losses: a few bytes for its name in each answer")
    if "algorithm" in job.plugins:
        missing.append("an algorithm of your own may send by what was learned: each loss counts as 1")
    if job.privacy is not None and not is_silo_level(job):
        missing.append("a budget.toml of a silo's own site: a number more in its answers")
    return most, missing
