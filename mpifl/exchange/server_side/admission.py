"""Admission of ranks' reports at the server: it checks everything that it can check.

A worker may be broken, or belong to another organisation. If a report breaks a rule, the server refuses the
whole report, and its silos stay out of the round. A single silo cannot be left out: its rank has added up its
silos already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from mpifl.algorithms import EVALUATIONS, Algorithm, Server, usual_weight
from mpifl.exchange.server_side.report_reading import Refused
from mpifl.learning.metrics import state_lengths
from mpifl.sums import Averaging, updates_of
from mpifl.transforms import common_name, is_own, length_name, own_name, statistics_lengths
from mpifl.wire import (
    Combination,
    Compute,
    Converse,
    Done,
    FileReply,
    Header,
    Reply,
    Report,
    Request,
    Save,
    SaveStatus,
    wrong_length,
    wrong_vectors,
    wrong_weight,
)

_FIGURES = """
    round time seconds seconds_training seconds_waiting seconds_communication seconds_evaluation
    examples_trained examples_per_second tokens_per_second step_losses
    learning_rate learning_rate_last
    seconds_checkpoint weights not_chosen parties outside backdoor_success
    bytes_sent bytes_received bytes_of_silo_max wire_sent wire_received rank_seconds server_rss_mb faults
    joules_processors joules_gpus
    attempts_lost means_over norm_leak_auc answers model_round
    ranks_lost silos final update_norm best_round evaluations_since_best decided_by
    epsilon epsilon_silos noise_std clip_norm suspected
"""
RESERVED = frozenset(_FIGURES.split())
"""Keys of a round's record that the server writes itself, as it does all with prefix `test_` or `silo_`."""
OF_BUDGETS = frozenset({"private_steps", "budget_left", "clipped_examples"})
"""Scalars about a privacy budget, from silos that have one: a run ends when its budget is spent."""
ABOUT = frozenset({"host", "device", "threads", "silos", "pid"})
"""Keys by which a worker describes itself when it opens its shards."""
WIDEST = 8
"""Bytes that a codec may use for an element, apart from a few bytes for the whole vector."""


class Refusal(Report):
    """Takes the place of a refused report."""


@dataclass(frozen=True)
class ExpectedUpdates:
    """What the server knows about requested updates before they come.

    Attributes:
        weights: The weight of each silo's update; every weight is accepted from a silo that is not named.
        parameters: P, the length of vectors that `lengths` does not name.
        lengths: The lengths of other vectors, by name.
        budgets: Whether silos may report on a privacy budget.
        sent: The vectors of an update, and how each is combined; None if unknown.
    """

    weights: Mapping[int, float] = field(default_factory=dict)
    parameters: int = 0
    lengths: Mapping[str, int] = field(default_factory=dict)
    budgets: bool = False
    sent: Mapping[str, Combination] | None = None


@dataclass(frozen=True)
class Knowledge:
    """What the server knows about all silos.

    Attributes:
        algorithm: The algorithm of the job.
        examples: How many examples each silo has in each split, by `federation.json`.
        weights: `[cohort] weights` of the job.
        total: The sum of all silos' weights in the objective.
        averaging: How updates are averaged.
        budgets: Whether silos may report on a privacy budget.
        sent: The vectors of an update, and how each is combined, by client method. It holds only client
            methods on whose vectors silos have disagreed.
    """

    algorithm: Algorithm
    examples: Sequence[Mapping[str, int]]
    weights: str = "examples"
    total: float = 0.0
    averaging: Averaging = field(default_factory=Averaging)
    budgets: bool = False
    sent: dict[str, dict[str, Combination]] = field(default_factory=dict)

    def expected(
        self, server: Server, work: str, silos: Collection[int], message: Mapping[str, object]
    ) -> ExpectedUpdates:
        """Return the updates that the server expects from these silos in answer to a message."""
        lengths = {name: len(value) for name, value in message.items() if isinstance(value, Tensor)}
        if "statistics" in server.state:
            lengths |= statistics_lengths(server)
        if self.algorithm.purpose(work) == "evaluation":
            lengths |= state_lengths(self.algorithm.task) | self.algorithm.slots(work).lengths
        weights = {silo: self.weight(work, silo) for silo in silos}
        lengths |= self.algorithm.lengths(server)
        return ExpectedUpdates(weights, len(server.model.shared), lengths, self.budgets, self.sent.get(work))

    def asked(self, round: int, work: str, silos: list[int]) -> list[int]:
        """Return the silos among these to which the request for a client method goes."""
        return self.averaging.asked(round, work, silos)

    def weight(self, work: str, silo: int) -> float:
        """Return the weight of a silo's update from a client method."""
        examples = self.examples[silo]
        return self.algorithm.weight(work, examples, usual_weight(self.weights, examples))

    def scored(self, work: str, silo: int) -> bool:
        """Return whether the server sees this silo's figures from a client method that scores models.

        It does unless sums are masked or the silo has no examples for it.
        """
        return not self.averaging.hides and self.weight(work, silo) > 0


def screened(
    came: Report | Refused,
    request: Request,
    who: str,
    silos: Collection[int],
    expected: ExpectedUpdates,
    accept: Callable[[Sequence[Any], Sequence[Header]], None],
) -> Report:
    """Return a report if it keeps all rules, else a `Refusal` with a fault for each of its silos.

    Args:
        came: The answer of a rank.
        request: The request that it answers.
        who: The name by which the user knows who answers, such as "rank 3".
        silos: The silos that it may answer for, and must if the request is `addressed`.
        expected: What the server knows in advance about the updates.
        accept: The aggregator's own check of a report's parts, given the headers of silos without a fault.
    """
    try:
        if isinstance(came, Refused):
            raise came
        headers = _checked(came, request, silos, expected)
        accept(came.parts, updates_of(headers))
        return came.model_copy(update={"headers": headers})
    except (Refused, ValueError) as refused:
        why = f"the report of {who} was refused: {refused}"
        missed = sorted(silos) if request.addressed else []
        return Refusal(headers=[Done(silo=silo, fault=why, passing=True) for silo in missed])


def taking_part(reports: Mapping[int, Report]) -> list[int]:
    """Return the ranks whose sums are added up: those whose report was not refused."""
    return sorted(rank for rank, report in reports.items() if not isinstance(report, Refusal))


def _checked(
    report: Report, request: Request, silos: Collection[int], expected: ExpectedUpdates
) -> list[Reply]:
    """Return the replies of a report; of a reply with a fault only the fault and its time remain. Raise
    Refused if the report breaks a rule."""
    replies = [reply if reply.fault is None else _bare(reply) for reply in report.headers]
    _check_silos([reply.silo for reply in replies], silos, all_of_them=request.addressed)
    for reply in filter(lambda reply: reply.fault is None, replies):
        try:
            if type(reply) is not request.reply:
                raise Refused("it answers what was not asked")
            if rule := _RULES.get(type(request)):
                rule(reply, request, expected)
        except Refused as refused:
            raise Refused(f"silo {reply.silo}: {refused}") from None
    if request.introduces and replies and not report.about.keys() >= ABOUT:
        raise Refused("it does not say where it runs")
    return replies


def _bare(reply: Reply) -> Reply:
    return Done(silo=reply.silo, seconds=reply.seconds, fault=reply.fault, passing=reply.passing)


def _check_silos(answered: Sequence[int], asked: Collection[int], *, all_of_them: bool) -> None:
    if foreign := sorted(set(answered).difference(asked)):
        raise Refused(f"it answers for silo {foreign[0]}, which it was not asked for")
    if twice := [silo for silo, times in Counter(answered).items() if times > 1]:
        raise Refused(f"it answers for silo {twice[0]} more than once")
    if all_of_them and (missing := sorted(set(asked).difference(answered))):
        raise Refused(f"it says nothing of silo {missing[0]}")


def _check_update(header: Header, request: Compute | Converse, expected: ExpectedUpdates) -> None:
    if header.weight != (weight := expected.weights.get(header.silo, header.weight)):
        raise Refused(wrong_weight(header.weight, weight))
    how = {common_name(name, header.silo): vector.combined for name, vector in header.vectors.items()}
    if expected.sent is not None and (why := wrong_vectors(how, expected.sent)):
        raise Refused(why)
    for name, vector in header.vectors.items():
        if vector.length != (length := expected.lengths.get(length_name(name), expected.parameters)):
            raise Refused(wrong_length(name, vector.length, length))
        if is_own(name) and name != own_name(header.silo):
            raise Refused(f"it sends '{name[:100]}', which is another silo's")
        if (vector.bytes or 0) > WIDEST * (length + WIDEST):
            raise Refused(f"'{name}' of {length} elements was sent as {vector.bytes} bytes")
    reserved = RESERVED if expected.budgets else RESERVED | OF_BUDGETS
    for name in [*header.scalars, *header.sealed]:
        if isinstance(header.scalars.get(name), str):
            raise Refused(f"the scalar '{name}' is a text; send numbers")
        if request.work not in EVALUATIONS and (name in reserved or name.startswith(("test_", "silo_"))):
            raise Refused(f"the scalar '{name}' has the name of a figure of the server's; use another")


def _check_end(header: Header, request: Converse, expected: ExpectedUpdates) -> None:
    _check_update(header, request, expected)
    if header.vectors:
        raise Refused(f"it sent '{min(header.vectors)}' at the end of a dialogue")


def _check_begun(reply: FileReply, request: Save, expected: ExpectedUpdates) -> None:
    if reply.sha256 is not None:
        raise Refused("it answers what was not asked")


def _check_status(reply: FileReply, request: SaveStatus, expected: ExpectedUpdates) -> None:
    if reply.writing == (reply.sha256 is not None):
        raise Refused("it does not say whether its file is written")
    if reply.writing and request.wait:
        raise Refused("it was to wait for its file, and says that it writes it still")


_RULES: dict[type[Request], Callable[[Any, Any, ExpectedUpdates], None]] = {
    Compute: _check_update,
    Converse: _check_end,
    Save: _check_begun,
    SaveStatus: _check_status,
}
"""Further checks of a reply, by the kind of the request."""
