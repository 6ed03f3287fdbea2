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
from mpifl.report.findings.diverged import Event, since
from mpifl.report.judging import NAMES
from mpifl.report.runs import MORE, Held, Summary, chance, longer, units
from mpifl.run.folder import number

USUAL, SHARE = 6, 0.05
"""A fall is a step down of this share of the whole span. It is more than chance makes of the rows, or of
other figures of its round. Where chance is not known, it is more than so many times the usual step."""
MOST_FALLS, MOST_BLAMED, MOST_NAMED = 3, 3, 10
MOST_LOOKED = 200
"""The largest falls of which some may exceed chance."""
UNKNOWN = "no cause is known"
DEEP = 0.25
"""The largest fall is told at the top if it is of this share of the whole span, or by USUAL a large one."""
NEAR, LONG = 10, 3
"""A mean update is told as long if it is so many times the median of so many rounds before and after it."""
LAST, LEAST = 10, 3
"""Rounds at the end whose values say what training changes: a quarter of all, within these limits."""
FEWEST = 6
"""Right answers that a fall beyond chance loses at least: the exact p of five is 0.06."""


def falls(summary: Summary) -> list[tuple[int, float]]:
    """Return the rounds of the largest falls, the largest first, and how much each is worse.

    Each exceeds the run's usual steps, or chance, or other figures of its round speak against chance.
    """
    (steps, usual, span), sign = _steps(summary), 1 if summary.metric.higher_is_better else -1
    new, rows = dict(points_of(summary)), _rows(summary)
    limit = max(0 if rows else USUAL * usual, SHARE * span)
    largest = sorted((one for one in steps if one[1] > limit), key=lambda one: -one[1])
    told = (
        (at, by)
        for at, by in largest[:MOST_LOOKED]
        if not rows or chance.differ(new[at], new[at] + sign * by, rows) or _against(summary, at)
    )
    return list(islice(told, MOST_FALLS))


def _steps(summary: Summary) -> tuple[list[tuple[int, float]], float, float]:
    """Return by how much each round is worse than the one before, the usual step, and the whole span."""
    points, sign = points_of(summary), 1 if summary.metric.higher_is_better else -1
    points = [one for one in points if one[0] < (since(summary) or math.inf)]  # later ones are of no use
    steps = [(at, sign * (old - new)) for (_, old), (at, new) in pairwise(points)]
    if not steps:
        return [], 0.0, 0.0
    values = [value for _, value in points]
    return steps, median(abs(step) for _, step in steps), max(values) - min(values)


def deepest_fall(summary: Summary) -> str:
    """Say when a run fell far, and when it was back; "" of one that did not."""
    found, points, metric = falls(summary), dict(points_of(summary)), summary.metric
    _, usual, span = _steps(summary)
    if not found or found[0][1] <= min(DEEP * span, USUAL * usual):
        return ""
    (at, by), sign = found[0], 1 if metric.higher_is_better else -1
    verb, before = f"{metric.title} {'fell' if sign > 0 else 'rose'}", points[at] + sign * by
    back = next((nth for nth, value in points.items() if nth > at and sign * (value - before) >= 0), None)
    then = f"round {back:,} is the first one that is" if back else "no later round is"
    said = f"{verb} by {units.points(by, metric)} to {metric.write(points[at])} in round {at:,}"
    return f"{said}; {then} as good as before."


def _rows(summary: Summary) -> int:
    """Return on how many rows chance is known of what a run is judged by; 0 where it is not."""
    return summary.rows if chance.counts(summary.metric) else 0


def last_values(summary: Summary) -> list[float]:
    """Return the main metric in the last rounds, whose values say what more training changes."""
    each = [value for _, value in points_of(summary)]
    return each[-min(LAST, max(LEAST, len(each) // 4)) :]


def moves(summary: Summary) -> bool:
    """Return whether the last rounds change the main metric, by more than one row where rows are counted."""
    last, rows, metric = last_values(summary), _rows(summary), summary.metric
    if len(last) < 2 or not rows:
        return len(last) < 2 or metric.write(min(last)) != metric.write(max(last))
    return (max(last) - min(last)) * rows > 1 + 1e-9


def rises(summary: Summary) -> bool:
    """Return whether more rounds may gain more: the last one is the best of all, and the learning rate is not
    yet 0."""
    values = [value for _, value in points_of(summary)]
    ends = bool(values) and moves(summary) and values[-1] == summary.metric.best(values)
    return ends and longer(summary.job, summary.rounds) == MORE


def rule(summary: Summary) -> list[str]:
    """Say which falls are told, as `falls` chooses them."""
    if len(points_of(summary)) < 3:
        return []
    what, found = "fall" if summary.metric.higher_is_better else "rise", list[str]()
    rows, before = _rows(summary), _before(summary)
    least = f"chance on the {rows:,} scored rows" if rows else f"{USUAL} times the median step"
    least += _or_against(summary) if rows else ""
    of = f"{what} of more than {SHARE:.0%} of the range over all rounds"
    found.append(f"A {of}{before} is told where it exceeds {least}.")
    if chance.counts(summary.metric) and any(record.get("silos") for record in summary.records):
        of_silos = f"both chance on its own rows and {USUAL} times its median step"
        found.append(f"A {what} of a silo is told where it exceeds {of_silos}.")
    return found


def none_fell(summary: Summary) -> list[str]:
    """Say that a run did not fall, if it did not."""
    if len(points_of(summary)) < 3 or falls(summary):
        return []
    verb = "fell" if summary.metric.higher_is_better else "rose"
    return [f"{summary.metric.title} never {verb} sharply from one round to the next{_before(summary)}."]


def _before(summary: Summary) -> str:
    """Say before which round falls are told: later ones are told as divergence."""
    return f" before round {end:,}" if (end := since(summary)) else ""


def told_falls(summary: Summary, names: Names) -> list[Event]:
    """Return the largest falls: from what to what, which silos fell, and what else happened in the round."""
    metric, points, events = summary.metric, dict(points_of(summary)), list[Event]()
    verb, sign = ("falls", 1) if metric.higher_is_better else ("rises", -1)
    for at, by in falls(summary):
        old, new = (metric.write(value) for value in (points[at] + sign * by, points[at]))
        said = f"{metric.title} {verb} by {units.points(by, metric)}, from {old} to {new}"
        events.append(Event(at, said + _blamed(summary, at), _why(summary, at, names)))
    return events


def _against(summary: Summary, at: int) -> list[str]:
    """Say what speaks against chance in a round: a loss that rose, or the rows of all silos."""
    place = _place(summary, at)
    return [*_losses(summary, place), *_at_all_silos(summary, place)]


def _or_against(summary: Summary) -> str:
    """Say what in place of the scored rows may show a fall, as far as rounds tell it; see `_against`."""
    told, pooled = {key for record in summary.records for key in record}, summary.metric.pooled
    many = summary.rows_of_silos if pooled in told and summary.judged_by != pooled else 0
    said = f", or on the {many:,} rows of all silos" * bool(many)
    rises = f", or where a loss rises more than {chance.GREW}-fold in its round"
    return said + rises * bool(told & {*chance.LOSSES})


def _place(summary: Summary, at: int) -> int:
    return next(nth for nth, record in enumerate(summary.records) if record["round"] == at)


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


def points_of(summary: Summary) -> list[tuple[int, float]]:
    """Return round and value of what a run is judged by."""
    key = summary.judged_by or ""
    return [(r["round"], value) for r in summary.records if (value := number(r, key)) is not None]


def _why(summary: Summary, at: int, names: Names) -> str:
    """Say what else happened in a round in which the model fell: who was absent, who is back, which loss."""
    place = _place(summary, at)
    record, before = summary.records[place], summary.records[max(place - 1, 0)]
    out, was = (list(map(names.__getitem__, _absent(one))) for one in (record, before))
    back = [silo for silo in was if silo not in out]
    said = [f"{names.listed(out, MOST_NAMED)} left out of the round"] if out else []
    said += [f"{names.listed(back, MOST_NAMED)} back after being left out"] if back else []
    said += ["ranks lost in the round"] * bool(record.get("ranks_lost"))
    near = summary.records[max(place - NEAR, 0) : place + NEAR + 1]
    norms = [norm for r in near if (norm := number(r, "update_norm"))]
    if norms and (times := (number(record, "update_norm") or 0.0) / median(norms)) > LONG:
        said.append(f"the mean update was {times:.3g} times as long as in the median round near it")
    return "; ".join([*(said or [UNKNOWN]), *_against(summary, at), *_drawn(summary, place, names)])


def all_drawn(summary: Summary, names: Names) -> list[Block]:
    """Name all silos that rounds in which the model fell have drawn, where a sentence names some alone."""
    of = {at for at, _ in falls(summary)}
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
    both = old.keys() & new.keys()
    fell = sorted((by, silo) for silo in both if (by := sign * (new[silo] - old[silo])) < 0)
    mark = "−" if metric.higher_is_better else "+"
    each = [(f"{mark}{units.points(-by, metric)}", silo) for by, silo in fell]
    if not each or len(both) < 2:
        return ""
    alike = sum(by == each[0][0] for by, _ in each)
    most = f"the most {', '.join(f'silo {NAMES[silo]} ({by})' for by, silo in each[:MOST_BLAMED])}"
    if alike > MOST_BLAMED:
        most = f"{'all' if alike == len(each) else f'{alike:,} of them the most,'} by {each[0][0][1:]}"
    return f"; {len(each):,} of {len(both):,} silos get worse, {most}"


def _values(silos: Mapping[str, object], name: str) -> dict[str, float]:
    """Return the silos' values of a metric, of those that have one."""
    found = {silo: number(each, name) for silo, each in silos.items() if isinstance(each, dict)}
    return {silo: value for silo, value in found.items() if value is not None}
