"""What the server accepts of a rank's report: nothing that it can check is believed.

A worker may be broken, or another organisation's. A report that breaks one of these rules is refused whole,
and its silos stay out of the round: a rank has added its silos up before the server looks, so that one cannot
be taken out.
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
    seconds_checkpoint weights not_chosen parties outside backdoor_success
    bytes_sent bytes_received bytes_of_silo_max wire_sent wire_received rank_seconds server_rss_mb faults
    attempts_lost norm_leak_auc
    ranks_lost silos final best_round evaluations_since_best
    epsilon epsilon_silos noise_std clip_norm suspected
"""
RESERVED = frozenset(_FIGURES.split())
"""Keys of a round's record that the server writes itself; so are all that begin with `test_` or `silo_`."""
OF_BUDGETS = frozenset({"private_steps", "budget_left", "clipped_examples"})
"""What silos say of a budget, where they have one: a run whose budget is spent is at its end."""
ABOUT = frozenset({"host", "device", "threads", "silos", "pid"})
"""What a worker says of itself when it opens its shards."""
WIDEST = 8
"""Bytes that a codec may take for an element, apart from a few for the whole."""


class Refusal(Report):
    """Stands for a report that was refused."""


@dataclass(frozen=True)
class ExpectedUpdates:
    """What the server knows of the updates that it asks for, before any comes.

    Attributes:
        weights: What the update of each silo weighs; of silos that are not named every weight is accepted.
        parameters: P, the length of a vector that `lengths` does not name.
        lengths: The lengths of other vectors, by name.
        budgets: Whether silos may say what is left of a budget.
        sent: Which vectors there are, and how each is combined; None where that is not known.
    """

    weights: Mapping[int, float] = field(default_factory=dict)
    parameters: int = 0
    lengths: Mapping[str, int] = field(default_factory=dict)
    budgets: bool = False
    sent: Mapping[str, Combination] | None = None


@dataclass(frozen=True)
class Knowledge:
    """What the server knows of every silo.

    Attributes:
        algorithm: The job's.
        examples: How many examples each silo has, by split, as `federation.json` says.
        weights: The job's `[cohort] weights`.
        total: What all silos weigh in the objective.
        averaging: How updates are averaged.
        sent: The vectors of an update, and how each is combined, by the name of each work over which silos
            have disagreed.
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
        """Return what the answers of these silos to a message must be."""
        lengths = {name: len(value) for name, value in message.items() if isinstance(value, Tensor)}
        if "statistics" in server.state:
            lengths |= statistics_lengths(server)
        if self.algorithm.purpose(work) == "evaluation":
            lengths |= state_lengths(self.algorithm.task)
        weights = {silo: self.weight(work, silo) for silo in silos}
        lengths |= self.algorithm.lengths(server)
        return ExpectedUpdates(weights, len(server.model.shared), lengths, self.budgets, self.sent.get(work))

    def asked(self, round: int, work: str, silos: list[int]) -> list[int]:
        """Return the silos that a work is asked of, where these are to be asked."""
        return self.averaging.asked(round, work, silos)

    def weight(self, work: str, silo: int) -> float:
        """Return what an update of this silo weighs."""
        examples = self.examples[silo]
        return self.algorithm.weight(work, examples, usual_weight(self.weights, examples))

    def scored(self, work: str, silo: int) -> bool:
        """Return whether a work that scores models has examples at this silo, whose figures are to be
        seen."""
        return not self.averaging.hides and self.weight(work, silo) > 0


def screened(
    came: Report | Refused,
    request: Request,
    rank: int,
    silos: Collection[int],
    expected: ExpectedUpdates,
    accept: Callable[[Sequence[Any], Sequence[Header]], None],
) -> Report:
    """Return a report that keeps all rules, or the faults of the silos of one that does not.

    Args:
        came: What a rank answered.
        request: What it was asked.
        rank: By which the user knows it.
        silos: Those that it was to answer for; all that there are where the request is `addressed` to none.
        expected: What the updates must be.
        accept: The aggregator's own check of a report's parts, given the headers of silos that did not fail.
    """
    try:
        if isinstance(came, Refused):
            raise came
        headers = _checked(came, request, silos, expected)
        accept(came.parts, updates_of(headers))
        return came.model_copy(update={"headers": headers})
    except (Refused, ValueError) as refused:
        why = f"the report of rank {rank} was refused: {refused}"
        missed = sorted(silos) if request.addressed else []
        return Refusal(headers=[Done(silo=silo, fault=why, passing=True) for silo in missed])


def taking_part(reports: Mapping[int, Report]) -> list[int]:
    """Return the ranks whose sums are added up."""
    return sorted(rank for rank, report in reports.items() if not isinstance(report, Refusal))


def _checked(
    report: Report, request: Request, silos: Collection[int], expected: ExpectedUpdates
) -> list[Reply]:
    """Return the replies of a report, those with a fault stripped of all else.

    Raises:
        Refused: it breaks a rule.
    """
    replies = [reply if reply.fault is None else _bare(reply) for reply in report.headers]
    _check_silos([reply.silo for reply in replies], silos, all_of_them=request.addressed)
    for reply in filter(lambda reply: reply.fault is None, replies):
        try:
            _check_reply(reply, request, expected)
        except Refused as refused:
            raise Refused(f"silo {reply.silo}: {refused}") from None
    if request.introduces and replies and not report.about.keys() >= ABOUT:
        raise Refused("it does not say where it runs")
    return replies


def _bare(reply: Reply) -> Reply:
    return Done(silo=reply.silo, seconds=reply.seconds, fault=reply.fault, passing=reply.passing)


def _check_reply(reply: Reply, request: Request, expected: ExpectedUpdates) -> None:
    if type(reply) is not request.reply:
        raise Refused("it answers what was not asked")
    if rule := _RULES.get(type(request)):
        rule(reply, request, expected)


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
            raise Refused(f"the scalar '{name}' has the name of a figure of the server's; take another")


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
"""What else a reply must be, by the kind of the request."""
