"""What a run's page says in sentences: what came of the run, and what happened in which round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from types import MappingProxyType

import numpy as np

from mpifl.common import Names
from mpifl.common.pages import Figure, Table
from mpifl.report.judging import NAMES, ranked, scores
from mpifl.report.observers import HELD_OUT, best_round
from mpifl.report.pages import diverged
from mpifl.report.pages.diverged import Event
from mpifl.report.pages.gains import below_guessing
from mpifl.report.runs import Held, Summary, chance, units
from mpifl.run.folder import number, why_lost

USUAL, SHARE = 6, 0.05
"""A fall is a step down of more than so many times the usual step, and of this share of the whole span."""
LATE = 0.1
"""The first share of the rounds, in which steps are large, has no falls."""
MOST_FALLS, MOST_BLAMED, MOST_LEFT_OUT, MOST_MINDED, MOST_NAMED = 3, 3, 20, 3, 10
MOST_LOOKED = 200
"""The largest falls of silos of which some may exceed chance."""
NO_FAULT = "No silo was left out of a round, and no rank was lost."


def verdict(summary: Summary, names: Names = NAMES) -> list[str]:
    """Return what came of a run, in a sentence or two."""
    stopped = f"{summary.stopped[:1].upper()}{summary.stopped[1:]}." if summary.stopped else ""
    return [
        one for one in (diverged.told(summary, names), _reached(summary), stopped, _of_silos(summary)) if one
    ]


def _reached(summary: Summary) -> str:
    """Say what the model reached by what it is judged by, and when it was at the target."""
    metric, judged, final = summary.metric, summary.judged_by, summary.final()
    by = f", by {summary.model_words}" if summary.model_words else ""
    by += ", by the shared model" if summary.personal and judged == metric.test else ""
    tested = "the test rows of all silos" if "split" in summary.job else "the server's test set"
    if final is not None:
        whose = tested if metric.test in summary.at_end else "the test rows of all silos"
        said = f"{metric.title} is {metric.write(final)} on {whose}, scored once at the end{by}"
        return f"{said}{_of_target(summary, None)}."
    if judged is None or (value := summary.figure(judged)) is None:
        return "No round was scored."
    held = "the silos' validation rows" if summary.by_valid else HELD_OUT
    held = f"on {held}, taken together as one set"
    of = {metric.test: f"on {tested}", metric.pooled: held}
    mean = f"as the silos' mean, weighted by {'validation rows' if summary.by_valid else 'examples'}"
    said = f"{metric.title} is {metric.write(value, summary.target)} {of.get(judged, mean)}{by}"
    return f"{said}{_of_target(summary, value)}."


def _of_target(summary: Summary, value: float | None) -> str:
    """Say when the model was at the target by the rows that rounds look at.

    Args:
        summary: The run.
        value: What it ended with on these rows, None where that is not told.
    """
    if summary.target is None:
        return ""
    target, at = summary.metric.write_briefly(summary.target), summary.reached(summary.target)
    when = f"was reached in round {at:,}" if at else f"was not reached{'' if summary.finished else ' yet'}"
    lost = at and value is not None and not summary.metric.reaches(value, summary.target)
    where = " on the silos' validation rows" if summary.by_valid else ""
    return f"; the target, {target}, {when}{where}{', and lost again by the end' if lost else ''}"


def _of_silos(summary: Summary) -> str:
    """Say how the model serves the silos, if more than one was scored."""
    each = ranked(scores(summary), summary.metric)
    found = [(name, value) for name, value in each if value is not None]
    if len(found) < 2:
        return ""
    write, half = summary.metric.write, median(value for _, value in found)
    (_, low), (best, high) = found[0], found[-1]
    where = f" on {summary.silo_rows}" if summary.silo_rows else ""
    if low == high:
        return f"All {len(found):,} silos have {write(low)}{where}."
    low_ones = [name for name, value in found if value == low]
    who = f"{NAMES.listed(low_ones, MOST_NAMED)} {'are' if len(low_ones) > 1 else 'is'}"
    own = " Each silo has a model of its own." if summary.personal else ""
    without = [name for name, value in each if value is None]
    kind = ", since they hold one class" if summary.metric.name == "auroc" else ""
    lacks = f" The rows of {NAMES.listed(without, MOST_NAMED)} have no {summary.metric.label}{kind}."
    mean = write(fmean(value for _, value in found))
    return (
        f"The mean over silos, each counted once, is {mean}{where}. {who[:1].upper()}{who[1:]} the worst of "
        f"{len(found):,} silos, with {write(low)}. Silo {best} is the best, with {write(high)}. "
        f"The median is {write(half)}.{own}{lacks * bool(without)}"
    )


def minded(summary: Summary, names: Names, held: Mapping[str, Held] = MappingProxyType({})) -> list[str]:
    """Return what is to be minded: what speaks against a run, and silos below guessing or left out."""
    absent = _together(summary.records)
    found = [
        f"{names.listed(silos, MOST_NAMED)} {'were' if len(silos) > 1 else 'was'} left out of {_many(at)}"
        for silos, at, _ in absent[:MOST_MINDED]
    ]
    if others := sum(len(silos) for silos, _, _ in absent[MOST_MINDED:]):
        found.append(f"{others:,} more silos were left out of some rounds")
    if summary.model_round and not summary.by_valid:
        found.append("the best round was chosen on the rows that score it, so its figures are optimistic")
    found += diverged.fallen(summary)
    said = [one for one in summary.remarks
            if not one.startswith("without test") and not chance.names_divergence(one)]  # fmt: skip
    return [*said, *below_guessing(summary, held), *found]


def events(summary: Summary, names: Names, more: Sequence[Event] = (), going: bool = False) -> list[Event]:
    """Return what happened, in the order of rounds: the target, the best round, falls, silos left out, ranks
    lost, `more`, and where a run ended that is neither finished nor still `going`."""
    found = [*_marks(summary), *diverged.divergence(summary, names), *_falls(summary, names), *more]
    found += _left_out(summary.records, names)
    if not summary.finished and not going:
        found.append(_broken_off(summary))
    for record in summary.records:
        if isinstance(lost := record.get("ranks_lost"), list) and lost:
            found.append(Event(record["round"], f"Ranks lost: {', '.join(map(str, lost))}"))
    return sorted(found, key=lambda one: one.round)


def _broken_off(summary: Summary) -> Event:
    """Return where a run ended that is not finished, and why, as far as that is recorded."""
    last = summary.records[-1]
    when, took = units.moment(number(last, "time")), number(last, "seconds")
    told = [f"it ended on {when.replace(' ', ' at ')}"] if when else []
    told += [f"it took {units.seconds(took)}"] if took is not None else []
    said = f"The last recorded round{': ' if told else ''}{' and '.join(told)}"
    return Event(summary.rounds, said, why_lost(summary.run) or "why the run stopped is not recorded")


def happened(
    summary: Summary, names: Names, more: Sequence[Event] = (), going: bool = False
) -> Figure | None:
    """Return what happened as a part of a page; None where nothing did."""
    found = events(summary, names, more, going)
    rows = [[f"{one.round:,}", one.what, one.reason] for one in found]
    heads = ["round", "what happened", "reason"]
    if not any(one.reason for one in found):
        heads, rows = heads[:2], [row[:2] for row in rows]
    told = any("faults" in record for record in summary.records)
    fault = any(record.get("faults") or record.get("ranks_lost") for record in summary.records)
    note = NO_FAULT if told and not fault else ""
    return Figure("What happened", note, [Table.of(heads, rows, text=1)], wide=True) if rows else None


def _points(summary: Summary) -> list[tuple[int, float]]:
    """Return round and value of what a run is judged by."""
    key = summary.judged_by or ""
    return [(r["round"], value) for r in summary.records if (value := number(r, key)) is not None]


def _marks(summary: Summary) -> list[Event]:
    """Return the round of the target, and the best one."""
    metric, found = summary.metric, []
    if summary.target is not None and (at := summary.reached(summary.target)):
        found.append(Event(at, f"The run reaches the target, {metric.write_briefly(summary.target)}"))
    if best := best_round(summary.records, metric):
        where = " on validation rows" if summary.by_valid else ""
        beaten = f", {chance.NO_BETTER}" * chance.guesses(summary, best[1])
        found.append(Event(best[0], f"Best {metric.label}{where}: {metric.write(best[1])}{beaten}"))
    if summary.stopped:
        found.append(Event(summary.rounds, "The run stops early"))
    return found


def falls(summary: Summary) -> list[tuple[int, float]]:
    """Return the rounds of the largest falls beyond chance, the largest first, and how much each is worse."""
    points, sign = _points(summary), 1 if summary.metric.higher_is_better else -1
    steps = [(at, sign * (old - new)) for (_, old), (at, new) in pairwise(points)]
    if not steps:
        return []
    values, usual = [value for _, value in points], median(abs(step) for _, step in steps)
    least = max(USUAL * usual, SHARE * (max(values) - min(values)))
    first, last = points[0][0], points[-1][0]
    new, rows = dict(points), summary.rows if chance.counts(summary.metric) else 0
    found = [
        (at, fall) for at, fall in steps
        if fall > least and at > first + LATE * (last - first)
        and (not rows or chance.differ(new[at], new[at] + sign * fall, rows))
    ]  # fmt: skip
    return sorted(found, key=lambda one: -one[1])[:MOST_FALLS]


def _falls(summary: Summary, names: Names) -> list[Event]:
    """Return the largest falls, each with the silos that fell most, and what else happened in the round."""
    metric, verb = summary.metric, "falls" if summary.metric.higher_is_better else "rises"
    of_round = {record["round"]: record for record in summary.records}
    return [
        Event(at, f"{metric.title} {verb} by {units.points(by, metric)}{_blamed(summary, at)}",
              _beside(of_round[at], names))
        for at, by in falls(summary)
    ]  # fmt: skip


def _beside(record: Mapping[str, object], names: Names) -> str:
    """Say what else happened in a round in which the model fell."""
    out = list(found) if isinstance(found := record.get("faults"), dict) else []
    said = f"the round left out {names.listed(out, MOST_NAMED)}" if out else ""
    return said or ("the round lost ranks" if record.get("ranks_lost") else "not known")


def silo_falls(
    summary: Summary,
    called: Sequence[str],
    held: Mapping[str, Held],
    rounds: Sequence[int],
    values: np.ndarray,
) -> list[Event]:
    """Return the largest falls of single silos that exceed chance, where the model itself does not fall."""
    metric, found = summary.metric, list[Event]()
    if not chance.counts(metric) or len(rounds) < 2:
        return []
    drops = np.nan_to_num((values[:, :-1] - values[:, 1:]) * (1 if metric.higher_is_better else -1))
    usual = USUAL * np.median(np.abs(drops), axis=1)
    late = rounds[0] + LATE * (rounds[-1] - rounds[0])
    for place in np.argsort(-drops, axis=None, kind="stable")[:MOST_LOOKED].tolist():
        row, nth = divmod(place, drops.shape[1])
        old, new = values[row, nth : nth + 2].tolist()
        of, at = held.get(called[row]), rounds[nth + 1]
        seen = of and of.out and drops[row, nth] > usual[row] and chance.differ(old, new, of.out)
        if (
            of
            and seen
            and at > late
            and at not in {one for one, _ in falls(summary)}
            and len(found) < MOST_FALLS
        ):
            verb, by = "falls" if metric.higher_is_better else "rises", units.points(drops[row, nth], metric)
            said = f"{metric.title} of silo {called[row]} {verb} by {by} to {metric.write(new)}"
            reach = units.between(*chance.apart(new, old, of.out), metric)
            why = f"not known; 95% interval: {reach} ({of.words()})"
            found.append(Event(at, said, why))
    return found


def _blamed(summary: Summary, at: int) -> str:
    """Say at which silos a round is worse than the one before that scored them; "" if it scored none."""
    told = [
        r for r in summary.records if r["round"] <= at and isinstance(r.get("silos"), dict) and r["silos"]
    ]
    if len(told) < 2 or told[-1]["round"] != at:
        return ""
    old, new = (_values(record["silos"], summary.metric.name) for record in told[-2:])
    metric, sign = summary.metric, 1 if summary.metric.higher_is_better else -1
    fell = sorted((sign * (new[silo] - old[silo]), silo) for silo in old.keys() & new.keys())
    mark = "−" if metric.higher_is_better else "+"
    worst = [
        f"silo {NAMES[silo]} ({mark}{units.points(-by, metric)})" for by, silo in fell[:MOST_BLAMED] if by < 0
    ]
    return f", most at {', '.join(worst)}" if worst and len(fell) > 1 else ""


def _values(silos: Mapping[str, object], name: str) -> dict[str, float]:
    """Return the silos' values of a metric, of those that have one."""
    found = {silo: number(each, name) for silo, each in silos.items() if isinstance(each, dict)}
    return {silo: value for silo, value in found.items() if value is not None}


def missed(records: Sequence[Mapping[str, object]]) -> list[tuple[str, list[int], str]]:
    """Return the silos that were left out, those of most rounds first: which rounds, and the last reason."""
    rounds: dict[str, list[int]] = defaultdict(list)
    reasons: dict[str, str] = {}
    for record in records:
        faults = record.get("faults")
        for silo, reason in (faults if isinstance(faults, Mapping) else {}).items():
            rounds[silo].append(int(str(record["round"])))
            reasons[silo] = str(reason)
    return [
        (silo, rounds[silo], reasons[silo]) for silo in sorted(rounds, key=lambda silo: -len(rounds[silo]))
    ]


def _together(records: Sequence[Mapping[str, object]]) -> list[tuple[list[str], list[int], str]]:
    """Return the silos that were left out, those of the same rounds and reason as one."""
    found: dict[tuple[str, str], tuple[list[str], list[int], str]] = {}
    for silo, at, reason in missed(records):
        found.setdefault((str(at), reason), ([], at, reason))[0].append(silo)
    return list(found.values())


def _many(at: Sequence[int]) -> str:
    return f"{len(at):,} rounds: {units.spans(at)}" if len(at) > 1 else f"round {at[0]:,}"


def _left_out(records: Sequence[Mapping[str, object]], names: Names) -> list[Event]:
    """Return the silos that were left out of rounds."""
    absent, found = _together(records), []
    for silos, at, reason in absent[:MOST_LEFT_OUT]:
        said = f"{names.listed(silos, MOST_NAMED)} {'are' if len(silos) > 1 else 'is'} left out"
        also = f" ({_many(at)})" if len(at) > 1 else ""
        found.append(Event(at[0], f"{said[:1].upper()}{said[1:]}{also}", reason))
    if others := absent[MOST_LEFT_OUT:]:
        many = sum(len(silos) for silos, _, _ in others)
        found.append(
            Event(min(at[0] for _, at, _ in others), f"{many:,} more silos are left out of some rounds")
        )
    return found
