"""When a run fell, from what to what, which silos fell with it, and what else happened in that round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from statistics import median
from typing import Any

import numpy as np

from mpifl.common import Names
from mpifl.common.pages import Block, Fold, Said
from mpifl.report.judging import NAMES
from mpifl.report.pages.diverged import Event, since
from mpifl.report.runs import Held, Summary, chance, units
from mpifl.run.folder import number

USUAL, SHARE = 6, 0.05
"""A fall is a step down of this share of the whole span, and more than chance makes of the rows; where that
is not known, of more than so many times the usual step."""
MOST_FALLS, MOST_BLAMED, MOST_NAMED = 3, 3, 10
MOST_LOOKED = 200
"""The largest falls of which some may exceed chance."""
UNKNOWN = "not known why"
DEEP = 0.25
"""A fall of this share of the whole span is told at the top."""
NEAR, LONG = 10, 3
"""A mean update is told as long if it is so many times the median of so many rounds before and after it."""
FEWEST = 6
"""Right answers that a fall beyond chance loses at least: the exact p of five is 0.06."""


def falls(summary: Summary, least: bool = True) -> list[tuple[int, float]]:
    """Return the rounds of the largest falls, the largest first, and how much each is worse.

    Args:
        least: Whether a fall must exceed chance, or the run's usual steps.
    """
    points, sign = _points(summary), 1 if summary.metric.higher_is_better else -1
    points = [one for one in points if one[0] < (since(summary) or math.inf)]  # later ones are of no use
    steps = [(at, sign * (old - new)) for (_, old), (at, new) in pairwise(points)]
    if not steps:
        return []
    values, usual = [value for _, value in points], median(abs(step) for _, step in steps)
    new, rows = dict(points), _rows(summary)
    limit = max(0 if rows else USUAL * usual, SHARE * (max(values) - min(values))) if least else 0.0
    largest = sorted((one for one in steps if one[1] > limit), key=lambda one: -one[1])
    if not least or not rows:
        return largest[:MOST_FALLS]
    looked = largest[:MOST_LOOKED]
    beyond = ((at, by) for at, by in looked if chance.differ(new[at], new[at] + sign * by, rows))
    return list(islice(beyond, MOST_FALLS))


def deepest_fall(summary: Summary) -> str:
    """Say when a run fell far, and when it was back; "" of one that did not."""
    found, points, metric = falls(summary), dict(_points(summary)), summary.metric
    if not found or found[0][1] < DEEP * (max(points.values()) - min(points.values())):
        return ""
    (at, by), sign = found[0], 1 if metric.higher_is_better else -1
    verb, before = "fell" if sign > 0 else "rose", points[at] + sign * by
    back = next((nth for nth, value in points.items() if nth > at and sign * (value - before) >= 0), None)
    then = f"round {back:,} is the first one that is" if back else "no later round is"
    said = f"It {verb} by {units.points(by, metric)} to {metric.write(points[at])} in round {at:,}"
    return f"{said}; {then} as good as before."


def slid(summary: Summary, at: int, best: float) -> str:
    """Say how much worse the last round is than the best one, and what chance makes of that."""
    value, metric, rows = number(summary.records[-1], summary.judged_by or ""), summary.metric, summary.rows
    if value is None or value == best:
        return ""
    said = f"; round {summary.rounds:,} is {units.points(abs(best - value), metric)} worse"
    if not rows or not chance.counts(metric):
        return said
    return f"{said}, {'more than chance makes' if chance.differ(best, value, rows) else 'within chance'}"


def _rows(summary: Summary) -> int:
    """Return on how many rows chance is known of what a run is judged by; 0 where it is not."""
    return summary.rows if chance.counts(summary.metric) else 0


def rule(summary: Summary) -> list[str]:
    """Say which falls are told, the largest first, and what their intervals take for granted."""
    if len(_points(summary)) < 3:
        return []
    what, rows = "fall" if summary.metric.higher_is_better else "rise", _rows(summary)
    before = f" before round {end:,}" if (end := since(summary)) else ""  # later ones are told as divergence
    least = f"chance on the {rows:,} scored rows" if rows else f"{USUAL} times the median step"
    least = f"both {least} and {SHARE:.0%} of the range over all rounds"
    said = f"A {what}{before} is told where it exceeds {least}; the {MOST_FALLS} largest at most"
    by_size = ", ".join(f"{at:,}" for at, _ in falls(summary))
    said += f", which by size are of rounds {by_size}" * (", " in by_size)
    found = [f"{said}." if by_size else f"No {what}{before} exceeds {least}."]
    if not chance.counts(summary.metric):
        return found
    of_silos = (
        f"A {what} of a silo is told where it exceeds both chance on its own rows and {USUAL} times its"
    )
    silos = any(record.get("silos") for record in summary.records)
    found += [f"{of_silos} median step."] * silos
    if not rows and not silos:
        return found
    return [*found, "Which answers changed is not recorded, so intervals are the widest possible ones."]


def told_falls(summary: Summary, names: Names) -> list[Event]:
    """Return the largest falls: from what to what, which silos fell, and what else happened in the round.

    Where no fall is unusual, the largest is told as such.
    """
    metric, found, points = summary.metric, falls(summary), dict(_points(summary))
    verb, sign = ("falls", 1) if metric.higher_is_better else ("rises", -1)
    usual = [] if found or len(points) < 3 else falls(summary, least=False)[:1]
    events = []
    for at, by in found or usual:
        old, new = points[at] + sign * by, points[at]
        who = f"Largest {verb[:-1]}: {metric.label}" if usual else metric.title
        said = f"{who} {verb} by {units.points(by, metric)}, from {metric.write(old)} to "
        why = _usual(summary, at, old, new) if usual else _why(summary, at, names)
        events.append(Event(at, f"{said}{metric.write(new)}{_blamed(summary, at)}", why))
    return events


def _usual(summary: Summary, at: int, old: float, new: float) -> str:
    """Say why a fall is nothing unusual: within chance, or not much larger than other steps; or what speaks
    against that: a loss that rose, or the rows of all silos."""
    rows, metric = _rows(summary), summary.metric
    place = next(nth for nth, record in enumerate(summary.records) if record["round"] == at)
    if against := [*_losses(summary, place), *_at_all_silos(summary, place)]:
        return "; ".join(against)
    if rows and not chance.differ(old, new, rows):
        reach = units.between(*chance.apart(new, old, rows), metric)
        return f"may be chance: its 95% interval, {reach} on {rows:,} rows, includes 0"
    step = median(abs(one - other) for (_, one), (_, other) in pairwise(_points(summary)))
    return f"the median step between rounds is {units.points(step, metric)}"


def _losses(summary: Summary, place: int) -> list[str]:
    """Say which losses a round has that are far above those of the round before."""
    record, before, found = summary.records[place], summary.records[max(place - 1, 0)], []
    for key, name in chance.LOSSES.items():
        new, old = number(record, key), number(before, key)
        if new is not None and old is not None and new > chance.GREW * old > 0:
            found.append(f"the {name} rose from {old:.3g} to {new:.3g}")
    return found


def _at_all_silos(summary: Summary, place: int) -> list[str]:
    """Say whether a round is worse on the rows of all silos by more than chance makes."""
    metric, many = summary.metric, summary.rows_of_silos
    each = [number(one, metric.pooled) for one in summary.records[max(place - 1, 0) : place + 1]]
    old, new = each[0], each[-1]
    if not many or old is None or new is None or not chance.counts(metric) or not new < old:
        return []
    if summary.judged_by == metric.pooled or not chance.differ(old, new, many):
        return []
    by = units.points(old - new, metric)
    return [f"{metric.label} falls by {by} on the {many:,} rows of all silos, more than chance makes"]


def _points(summary: Summary) -> list[tuple[int, float]]:
    """Return round and value of what a run is judged by."""
    key = summary.judged_by or ""
    return [(r["round"], value) for r in summary.records if (value := number(r, key)) is not None]


def _why(summary: Summary, at: int, names: Names) -> str:
    """Say what else happened in a round in which the model fell: who was absent, who is back, which loss."""
    place = next(nth for nth, record in enumerate(summary.records) if record["round"] == at)
    record, before = summary.records[place], summary.records[max(place - 1, 0)]
    out, was = (list(map(names.__getitem__, _absent(one))) for one in (record, before))
    back = [silo for silo in was if silo not in out]
    said = [f"{names.listed(out, MOST_NAMED)} left out of the round"] if out else []
    said += [f"{names.listed(back, MOST_NAMED)} back after being left out"] if back else []
    said += ["ranks lost in the round"] * bool(record.get("ranks_lost"))
    said += _losses(summary, place)
    near = summary.records[max(place - NEAR, 0) : place + NEAR + 1]
    norms = [norm for r in near if (norm := number(r, "update_norm"))]
    if norms and (times := (number(record, "update_norm") or 0.0) / median(norms)) > LONG:
        said.append(f"the mean update was {times:.3g} times as long as in the median round near it")
    return "; ".join([*(said or [UNKNOWN]), *_drawn(summary, place, names)])


def all_drawn(summary: Summary, names: Names) -> list[Block]:
    """Name all silos that rounds in which the model fell have drawn, where a sentence names some alone."""
    of = {at for at, _ in falls(summary) or falls(summary, least=False)[:1]}
    each = ((r["round"], asked(r)) for r in summary.records if r["round"] in of)
    return [
        Fold(f"All {len(silos):,} silos that trained in round {at:,}", [Said(names.listed(silos))])
        for at, silos in each if len(silos) > MOST_NAMED
    ]  # fmt: skip


def asked(record: Mapping[str, Any]) -> list[str]:
    """Return the silos that a round has drawn, where it tells them."""
    return of if isinstance(of := record.get("drawn"), list) else []


def _drawn(summary: Summary, place: int, names: Names) -> list[str]:
    """Say which silos a round drew, and which of them for the first time, where it drew some alone."""
    each = [asked(r) for r in summary.records[: place + 1]]
    if not each[-1]:
        return []
    first = [silo for silo in each[-1] if not any(silo in before for before in each[:-1])]
    new = f", of these {names.listed(first, MOST_NAMED)} for the first time" if first and place else ""
    return [f"{names.listed(each[-1], MOST_NAMED)} trained{new}"]


def _absent(record: Mapping[str, object]) -> list[str]:
    """Return the silos that a round has left out, whether they failed or were late."""
    faults, late = record.get("faults"), record.get("late")
    return [*(faults if isinstance(faults, dict) else ()), *(late if isinstance(late, list) else ())]


def silo_falls(
    summary: Summary,
    called: Sequence[str],
    held: Mapping[str, Held],
    rounds: Sequence[int],
    values: np.ndarray,
) -> list[Event]:
    """Return the falls of single silos that exceed chance, the largest first, where the model itself does not
    fall; as many as its own falls leave room for."""
    metric, found = summary.metric, list[Event]()
    if not chance.counts(metric) or len(rounds) < 2:
        return []
    drops = np.nan_to_num((values[:, :-1] - values[:, 1:]) * (1 if metric.higher_is_better else -1))
    usual, of_model = USUAL * np.median(np.abs(drops), axis=1), {at for at, _ in falls(summary)}
    end = since(summary) or math.inf
    rows = np.array([held[name].out if name in held else 0 for name in called])
    looked = np.where(drops * rows[:, None] > FEWEST - 0.5, drops, 0.0)
    for place in np.argsort(-looked, axis=None, kind="stable")[:MOST_LOOKED].tolist():
        row, nth = divmod(place, drops.shape[1])
        old, new = values[row, nth : nth + 2].tolist()
        of, at = held.get(called[row]), rounds[nth + 1]
        if of is None or not of.out or at in of_model or at >= end or drops[row, nth] <= usual[row]:
            continue
        if chance.differ(old, new, of.out):
            verb, by = "falls" if metric.higher_is_better else "rises", units.points(drops[row, nth], metric)
            said = f"{metric.title} of silo {called[row]} {verb} by {by} to {metric.write(new)}"
            reach = units.between(*chance.apart(new, old, of.out), metric)
            found.append(Event(at, said, f"{UNKNOWN}; 95% interval: {reach} ({of.words()})"))
    return found[: MOST_FALLS - len(of_model)]


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
    mark, worse = "−" if metric.higher_is_better else "+", sum(by < 0 for by, _ in fell)
    worst = [
        f"silo {NAMES[silo]} ({mark}{units.points(-by, metric)})" for by, silo in fell[:MOST_BLAMED] if by < 0
    ]
    if not worst or len(fell) < 2:
        return ""
    return f"; silos that get worse: {worse:,} of {len(fell):,}, most {', '.join(worst)}"


def _values(silos: Mapping[str, object], name: str) -> dict[str, float]:
    """Return the silos' values of a metric, of those that have one."""
    found = {silo: number(each, name) for silo, each in silos.items() if isinstance(each, dict)}
    return {silo: value for silo, value in found.items() if value is not None}
