"""How a run diverged, or is no better than guessing: since when, at which silo, and which model is of use."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mpifl.common import Names, count_of
from mpifl.learning.metrics import ACCURACY, ToldAnswers
from mpifl.report.judging import NAMES, ranked, scores
from mpifl.report.observers import best_round
from mpifl.report.runs import Held, Summary, chance
from mpifl.run.folder import number, why_lost


class Event(NamedTuple):
    """What happened in a round, and the reason where one was told."""

    round: int
    what: str
    reason: str = ""


MOST_NAMED = 3
"""Classes or silos in a sentence."""
FAR = 0.05
"""A last value that is so much below the best one is warned of."""
NO_MODEL = "No round has a usable model."
NONE_SAVED = "no checkpoint of it or of an earlier round was kept"


def divergence(summary: Summary, names: Names) -> list[Event]:
    """Return what went wrong in a run that diverged, and when, in the order of rounds."""
    return sorted([*_not_finite(summary, names), *_grown(summary)], key=lambda one: one.round)


def told(summary: Summary, names: Names) -> str:
    """Say how a run began to diverge, why that usually is, and which round and model are the last of use; ""
    of one that has not. What followed stands among the events."""
    if not summary.diverged:
        return ""
    found = divergence(summary, names)
    good, why = _of_use(summary, (since(summary) or 1) - 1), cause(summary.job)
    if not found:
        return f"The run diverged: {why_lost(summary.run)}. {good} {why}".rstrip()
    at = found[0].round
    first = "; ".join(f"{of.what[:1].lower()}{of.what[1:]}" for of in found if of.round == at)
    return f"The run diverged. {good} Round {at:,} is the first bad one: {first}. {why}".rstrip()


def some_not_finite(summary: Summary, names: Names) -> bool:
    """Return whether the updates of some silos, not of all, were not finite where a run began to diverge."""
    found = divergence(summary, names) if summary.diverged else []
    out = [_no_updates(r, names) for r in summary.records if found and r["round"] == found[0].round]
    return bool(out) and 0 < len(out[0]) < names.many


def since(summary: Summary) -> int | None:
    """Return the first round whose model is of no use, since the run diverged; None of one that has not."""
    if not summary.diverged:
        return None
    return min((one.round for one in divergence(summary, NAMES)), default=summary.rounds + 1)


def of_no_use(summary: Summary) -> bool:
    """Return whether the figures of a run are of a model that diverged."""
    start = since(summary)
    return start is not None and (summary.model_round or summary.rounds) >= start


def cause(job: Mapping[str, Any]) -> str:
    """Say what usually makes a job diverge, and its value; "" where that is not known."""
    local = job.get("local")
    lr = number(local, "lr") if isinstance(local, Mapping) else None
    if lr is None:
        return ""
    return f"The usual cause is too large a learning rate: [local] lr is {lr:g}. "


def model_told(summary: Summary) -> str:
    """Say which round's model lies in the run folder."""
    if summary.records and any(key in summary.records[-1] for key in ("table", "survival")):
        return "no model is trained"
    if (best := summary.model_round) is not None:
        return f"saved model: round {best:,}, the best"
    if summary.finished:
        use = ", of no use" * of_no_use(summary)
        return f"saved model: round {summary.rounds:,}, the last{use}"
    kept = saved(summary.run)
    if kept:
        return f"newest checkpoint: round {kept[0]:,}"
    dead = summary.diverged or why_lost(summary.run)  # no later round saves one
    return "no model is saved" if dead else "no model is saved yet"


def far_worse(summary: Summary) -> list[str]:
    """Say where the last round's model is far worse than the best round's."""
    metric, best = summary.metric, best_round(summary.records, summary.metric)
    values = ((r["round"], number(r, summary.judged_by or "")) for r in reversed(summary.records))
    last = next(((at, value) for at, value in values if value is not None), None)
    if not last or not best or not summary.rows or not chance.counts(metric) or summary.model_round:
        return []
    (at, high), (end, value) = best, last
    if high - value < FAR or not chance.differ(high, value, summary.rows):
        return []
    was, now = metric.write(high), metric.write(value)
    return [f"{metric.label} fell from {was} in round {at:,} to {now} in round {end:,}"]


def _of_use(summary: Summary, last: int) -> str:
    """Say which round before a divergence is the last, and where its model is."""
    if last < 1:
        return NO_MODEL
    kept = [at for at in saved(summary.run) if at <= last]
    if summary.model_round is not None and summary.model_round <= last:
        where = f"model.safetensors is of round {summary.model_round:,}"
    else:
        where = f"its newest checkpoint is of round {kept[0]:,}" if kept else NONE_SAVED
    return f"Round {last:,} is the last good one; {where}."


def saved(run: Path) -> list[int]:
    """Return the rounds that have a complete checkpoint, the latest first."""
    found = (re.fullmatch(r"round_(\d{6,12})", one.parent.name)
             for one in (run / "checkpoints").glob("round_*/checkpoint.json"))  # fmt: skip
    return sorted((int(one[1]) for one in found if one), reverse=True)


def _not_finite(summary: Summary, names: Names) -> list[Event]:
    """Return for each figure that was not finite the first round in which it was so; of one round, those
    before which others follow from."""
    first: dict[str, Event] = {}
    for record in summary.records:
        for which, said in _odd(record, names):
            reason = "" if first else cause(summary.job).rstrip(". ")
            first.setdefault(which, Event(record["round"], f"{said} not finite", reason))
    return list(first.values())


def _odd(record: Mapping[str, Any], names: Names) -> Iterator[tuple[str, str]]:
    """Yield what is not finite in a round: updates of silos, losses, and silos' losses on held-out rows."""
    if out := _no_updates(record, names):
        yield "updates", f"The update{'s' * (len(out) > 1)} of {_listed(out)} {'are' if out[1:] else 'is'}"
    for key, name in chance.LOSSES.items():
        if key in record and number(record, key) is None:
            yield key, f"The {name} is"
    silos = record.get("silos")
    each = silos.items() if isinstance(silos, Mapping) else ()
    if odd := [NAMES[silo] for silo, of in each
               if isinstance(of, Mapping) and "loss" in of and number(of, "loss") is None]:  # fmt: skip
        yield "silos", f"The loss on the held-out rows of {_listed(odd)} is"


def _no_updates(record: Mapping[str, Any], names: Names) -> list[str]:
    """Return the silos that a round left out since their updates were not finite."""
    faults = record.get("faults")
    each = faults.items() if isinstance(faults, Mapping) else ()
    return [names[silo] for silo, why in each if chance.names_divergence(str(why))]


def _listed(silos: Sequence[str]) -> str:
    return NAMES.listed(list(silos), MOST_NAMED)


def _grown(summary: Summary) -> Iterator[Event]:
    """Yield the round from which on each loss that grew stays grown."""
    for key, name in chance.LOSSES.items():
        if (of := chance.grown(summary, key)) is not None:
            reason = _highest(summary, of) if key == "test_loss" else ""  # silos tell no training loss
            usual = cause(summary.job).rstrip(". ") if of.diverged else ""
            yield Event(of.since, f"The {name} {of.words}", reason or usual)


def _highest(summary: Summary, of: chance.Grown) -> str:
    """Say which silo's loss is highest where the loss has grown."""
    record = next(r for r in summary.records if r["round"] == of.since)
    found = record.get("silos")
    silos: Mapping[str, object] = found if isinstance(found, Mapping) else {}
    each = [(loss, silo) for silo, told in silos.items()
            if isinstance(told, Mapping) and (loss := number(told, "loss")) is not None]  # fmt: skip
    high = max(each, default=None)
    if high is None or len(each) < 2:
        return ""
    return f"highest on held-out rows at silo {NAMES[high[1]]}: {high[0]:.4g}"


def weak_answers(told: ToldAnswers | None, classes: Sequence[str]) -> str:
    """Say that a model tells two classes no better than chance may, or never answers a class that occurs; ""
    if nothing shows it.

    Args:
        told: Its answers, if they are known.
        classes: The names of the classes, if they are known.
    """
    if told is None:
        return ""
    low, high = told.intervals.get("auroc", (1.0, 1.0))
    told_apart = "so the model may tell the classes no better than chance"
    said = [f"The 95% interval of the AUROC, {low:.2%} to {high:.2%}, includes 50%, {told_apart}."]
    said = said if low <= 0.5 <= high else []
    answers = [sum(column) for column in zip(*told.confusion, strict=True)]
    occurs = [sum(row) for row in told.confusion]
    if never := [at for at, many in enumerate(answers) if not many and occurs[at]]:
        named = [f"'{classes[at] if at < len(classes) else at}'" for at in never[:MOST_NAMED]]
        more = f" and {len(never) - MOST_NAMED:,} more" if len(never) > MOST_NAMED else ""
        rows = sum(occurs[at] for at in never)
        cut = "At a cut of 0.5 no" if len(answers) == 2 else "No"
        said.append(
            f"{cut} row is predicted {', '.join(named)}{more}; "
            f"{rows:,} row{'s are' if rows > 1 else ' is'} {'of these' if len(named) > 1 else named[0]}."
        )
    return " ".join(said)


def below_guessing(summary: Summary, held: Mapping[str, Held]) -> list[tuple[str, float, float]]:
    """Return the silos that do worse, beyond chance, than the most common class of their scored rows as the
    only answer: name, value, and share of that class."""
    metric, found = summary.metric, []
    if summary.main and chance.guesses(summary, summary.main[1]):
        return []  # which is said of the run
    for name, value in ranked(scores(summary), metric):
        guess = of.commonest if (of := held.get(name)) else None
        if metric.name != ACCURACY.name or value is None or guess is None or not (of and of.out):
            continue
        if chance.interval(value, of.out)[1] < guess < 1:
            found.append((name, value, guess))
    return found


def guesses_beat(summary: Summary, held: Mapping[str, Held]) -> list[str]:
    """Say which silos are below guessing."""
    write, found = summary.metric.write, below_guessing(summary, held)
    said = "; ".join(f"silo {name} has {write(value)}, and that class {write(guess)}"
                     for name, value, guess in found[:MOST_NAMED])  # fmt: skip
    said += f"; and {count_of(len(found) - MOST_NAMED, 'more silo')}" if len(found) > MOST_NAMED else ""
    head = f"{summary.metric.label} is below guessing, the share of the most common class in a silo's"
    return [f"{head} scored rows: {said}"] if found else []
