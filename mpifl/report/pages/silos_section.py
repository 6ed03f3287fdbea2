"""The silos on a run's page: a table, the worst first, and a map of every silo in every round."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpifl.common import LARGEST_FIGURE, Names
from mpifl.common.pages import (
    MOST_OPEN,
    WORST_TO_BEST,
    Block,
    Cell,
    Figure,
    Key,
    Plot,
    Table,
    charts,
    folded,
    named,
    ramp,
    strips,
)
from mpifl.learning.metrics import MetricInfo
from mpifl.report.findings import (
    PAIRED,
    UNTOLD,
    Event,
    Gain,
    gain_unknown,
    missed,
    of_no_use,
    silo_falls,
    suspected,
)
from mpifl.report.judging import NAMES, evaluates, expects_scores, ranked, scores, why_none
from mpifl.report.pages.happened import seen
from mpifl.report.runs import TEST_ROWS, Held, Summary, chance, one_class, units
from mpifl.run.folder import number

MOST_ROWS, MOST_TRACED = 1000, 200
"""Silos that have a row, and those that have a small curve."""
MAPPED, TRACED = 240, 64
"""Columns of the map, and of a small curve; of more rounds each is of some."""
NAMED = 60
"""Rows of the map that have room for a name."""
NO_VALUE = 65535
"""What stands for no value among those of two bytes."""


def silos(
    summary: Summary, names: Names, held: Mapping[str, Held], main: Figure | None, gained: Mapping[str, Gain]
) -> tuple[list[Figure], list[Event]]:
    """Return the table and the map, and the largest falls of single silos.

    Args:
        names: What its silos are called.
        held: What each silo holds, by its name, as far as it is known.
        main: The chart of the main metric, on which the curve of a silo that is chosen is drawn.
        gained: What each silo gains over what it reaches alone, as far as it is known.
    """
    metric, found = summary.metric, scores(summary)
    if not found:
        why = why_none(summary.job, summary.main is not None, [of.out for of in held.values()])
        none = Figure("Silos", f"{why[:1].upper()}{why[1:]}.", gain_unknown(summary), wide=True)
        return [none] * expects_scores(summary), []
    found |= {name: {} for name in seen(summary, names) if name not in found}
    order, less = ranked(found, metric), names.many - len(found)
    called = [name for name, _ in order[:MOST_ROWS]]
    rounds, values = _over_rounds(summary, called)
    out = {names[silo]: at for silo, at, _ in missed(summary.records)}
    intervals, axis = _chance(order, metric, held)
    columns = [
        ("silo", [Cell(name, name) for name in called]),
        (metric.label, [_score(found[name], held.get(name), metric) for name in called]),
        (COUNTED, [_count((held.get(name) or Held(0, 0)).counted or 0) for name in called]),
        *intervals,
        *_gained(called, gained, metric),
        *_traced(rounds, values, main),
    ]
    columns += [*_sizes(called, held), *_others(called, found, held, summary)]
    columns += _marked(called, out, suspected(summary, names))
    shown = [(head, cells) for head, cells in columns if any(cell != Cell(look=cell.look) for cell in cells)]
    rows = [list(row) for row in zip(*(cells for _, cells in shown), strict=True)]
    more, how = _noted(shown, summary)
    note = _whose(summary, len(rounds) > 0)
    note += f" The table has the {MOST_ROWS:,} worst of {len(order):,} silos." * (len(order) > MOST_ROWS)
    title, many = ("Silos, the worst first", True) if len(order) > 1 else ("The silo", False)
    table = Table([head for head, _ in shown], rows, sort=many, silos=True, axes={INTERVAL: axis})
    note += f" {less:,} of {names.many:,} silos have no row: no round has scored them." * (less > 0) + more
    unknown = [] if gained or len(order) == 1 else gain_unknown(summary)
    drawn = [Figure(title, note, [*unknown, *folded(table)], wide=True, how=how)]
    mapped = _map(metric, called, rounds, values, out, summary.by_valid)
    drawn[(0 if len(rows) > MOST_OPEN else 1) : 0] = mapped  # of many silos it comes first
    return drawn, silo_falls(summary, called, held, rounds, values)


def _whose(summary: Summary, drawn: bool) -> str:
    """Say which rows the table is of, and its curves where they are of others."""
    if summary.silo_rows == TEST_ROWS:
        by = f", by {summary.model_words}" if summary.model_words else ""
        said = f"Scores are on the test rows of each silo, once at the end{by}."
        return said + drawn * " Each round is scored on validation rows."
    rows = "validation rows" if summary.by_valid else "held-out examples"
    said = f"Scores after round {summary.of_model['round']:,}, on each silo's {rows}."
    return said + " Its model diverged: do not report these scores." * of_no_use(summary)


Column = tuple[str, list[Cell]]
INTERVAL, CURVE, GAIN, ONE_CLASS = "95% interval", "over rounds", "gain", "one class only"
BOLD = "Bold gains exceed chance: their 95% interval excludes 0."
COUNTED, LEAVE_OUT = "rows that count", ("dice", "iou")
ONE = " With one silo there is nothing to compare."


def _noted(shown: Sequence[Column], summary: Summary) -> tuple[str, str]:
    """Say what columns are; and how they are computed."""
    heads, said, how, metric = {head for head, _ in shown}, "", "", summary.metric
    one = ONE * all(len(cells) == 1 for _, cells in shown)
    if INTERVAL in heads:
        wilson = "for the number of held-out examples (Wilson)"
        said = f" Bars are 95% intervals {wilson if chance.counts(metric) else '(DeLong)'}."
    elif chance.counts(metric):
        said = " Scores have no intervals here, since the number of held-out examples is not known."
    else:
        said = f" No confidence interval is given for {metric.label}."
        said += f" {evaluates(summary, '--silos')} tells that of each silo." * (metric.name == "auroc")
        how = f"; {evaluates(summary, '--silos', '--json', 'FILE')} counts the others, for --scores FILE"
        counts = f" Images without a target do not count{'' if COUNTED in heads else how}."
        said += counts * (metric.name in LEAVE_OUT)
    if any(cell.text == ONE_CLASS for _, cells in shown for cell in cells):
        said += f" '{ONE_CLASS}': the silo's rows have one class, so AUROC is undefined."
    if any(head.startswith(GAIN) for head in heads):
        told = any(head.startswith(f"{GAIN}, 95% interval") for head in heads)
        said += " 'alone' is the score of the silo's own model. "
        said += BOLD if told else f"{UNTOLD[:-1]}, so no gain is bold."
        how = PAIRED * told
    return said + (" Click a silo to draw it in the first chart." if CURVE in heads else "") + one, how


def _score(told: Mapping[str, object], of: Held | None, metric: MetricInfo) -> Cell:
    """Write a silo's score; one that is undefined since all rows have one class says so."""
    if (value := number(told, metric.name)) is not None:
        return Cell(metric.write(value), value)
    return Cell(ONE_CLASS if metric.name == "auroc" and one_class(told, of) else "–", "")


def _chance(
    order: Sequence[tuple[str, float | None]], metric: MetricInfo, held: Mapping[str, Held]
) -> tuple[list[Column], list[str]]:
    """Return the interval of each silo as a dot on a line, where there is one, and the ends of its axis."""
    if not chance.counts(metric) and not any(of.reach for of in held.values()):
        return [], []
    places = [
        (value, *ends)
        if value is not None and (of := held.get(name)) and (ends := of.interval(value, metric))
        else None
        for name, value in order[:MOST_ROWS]
    ]
    scale, axis = units.axis([end for place in places if place for end in place], metric)
    cells = []
    for place in places:
        if place is None:
            cells.append(Cell())
            continue
        at, least, most = (100 * scale(value) for value in place)
        said = units.reach(place[1:], metric)
        cells.append(Cell(said, place[1], dots=[at], span=(least, most), beside=True))
    return [(INTERVAL, cells)], axis


def _gained(called: Sequence[str], gained: Mapping[str, Gain], metric: MetricInfo) -> list[Column]:
    """Return what each silo reaches alone, and what it gains over that."""
    each = [gained.get(name) for name in called]
    unit = ", points" if metric.share else ""
    own = [Cell(metric.write(gain.other), gain.other) if gain else Cell() for gain in each]
    reach = [
        Cell(units.between(*gain.reach, metric).removesuffix(" points"), gain.reach[0])
        if gain and gain.reach else Cell() for gain in each
    ]  # fmt: skip
    changes = [Cell(gain.write(metric), gain.by, gain.look) if gain else Cell() for gain in each]
    return [
        ("alone", own),
        (f"{GAIN}{unit}", changes),
        (f"{GAIN}, 95% interval{unit}", reach),
        ("outcome", [_outcome(gain) for gain in each]),
    ]


def _outcome(gain: Gain | None) -> Cell:
    """Say in words whether a model helped a silo, where chance is known."""
    if gain is None or gain.seen is None:
        return Cell()
    said = {"best": "helped", "worst": "harmed"}.get(gain.look, "may be chance" if gain.by else "the same")
    return Cell(said + f"; {gain.few}" * bool(gain.few), gain.by, gain.look)


def _traced(rounds: Sequence[int], values: np.ndarray, main: Figure | None) -> list[Column]:
    """Return a small curve for each silo, to the scale of the chart of the main metric."""
    plot = main.blocks[0] if main and main.blocks else None
    if len(values) > MOST_TRACED or not isinstance(plot, Plot) or plot.scales is None or not rounds:
        return []
    starts = range(0, len(rounds), -(-len(rounds) // TRACED))
    x, y = plot.scales
    across = [round(charts.WIDE * x(rounds[start])) for start in starts]
    tops = charts.HIGH * (1 - np.clip(y(values), 0, 1))
    highs, lows = (of.reduceat(tops, starts, axis=1) for of in (np.fmin, np.fmax))
    return [(CURVE, [Cell(path=_trace(across, *each)) for each in zip(lows, highs, strict=True)])]


def _trace(across: Sequence[int], lows: np.ndarray, highs: np.ndarray) -> str:
    """Return a path through the lowest and the highest of each place; where there is none is a gap."""
    path, pen = "", "M"
    for x, low, high in zip(across, lows.tolist(), highs.tolist(), strict=True):
        if low != low:
            pen = "M"
            continue
        path += f"{pen}{x} {low:.0f}" + (
            f"V{high:.0f}" if round(low) != round(high) else "h0" if pen == "M" else ""
        )
        pen = "L"
    return path


def _sizes(called: Sequence[str], held: Mapping[str, Held]) -> list[Column]:
    of = [held.get(name) or Held(0, 0) for name in called]
    return [("held out", [_count(one.out) for one in of]), ("trains on", [_count(one.train) for one in of])]


def _marked(called: Sequence[str], out: Mapping[str, list[int]], doubted: Sequence[str]) -> list[Column]:
    """Return how many rounds each silo missed, and whether its updates are suspected."""
    return [
        ("rounds missed", [replace(_count(len(out.get(name, ()))), look="worst") for name in called]),
        ("trust", [Cell("suspected" * (name in doubted), look="worst") for name in called]),
    ]


def _count(many: int) -> Cell:
    return Cell(f"{many:,}", many) if many else Cell()


def _others(
    called: Sequence[str],
    found: Mapping[str, Mapping[str, object]],
    held: Mapping[str, Held],
    summary: Summary,
) -> list[Column]:
    """Return the loss and the other metrics, each as it is written everywhere."""
    heads = dict.fromkeys(key for each in found.values() for key in each if key != summary.metric.name)
    infos = [(head, summary.info(head)) for head in heads]
    return [(info.label, [_score(found[name], held.get(name), info) for name in called]) for _, info in infos]


def _over_rounds(summary: Summary, called: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Return the rounds that scored silos, and the main metric of each silo in each: [silos, rounds]."""
    told = [r for r in summary.records if isinstance(r.get("silos"), dict) and r["silos"]]
    values = np.full((len(called) + 1, len(told)), np.nan)  # the last row is of silos that have none
    row, keys, rows = {of: nth for nth, of in enumerate(called)}, list[str](), list[int]()
    name = summary.metric.name
    for nth, record in enumerate(told):
        if (found := list(record["silos"])) != keys:
            keys, rows = found, [row.get(NAMES[silo], -1) for silo in found]
        each = [of if type(of) is dict else {} for of in record["silos"].values()]
        figures = [of.get(name) for of in each]
        if not set(map(type, figures)) <= {float}:  # a call for each takes ten times as long
            figures = [number(of, name) for of in each]
        values[rows, nth] = figures
    values[~(np.abs(values) <= LARGEST_FIGURE)] = np.nan
    return [record["round"] for record in told], values[:-1]


def _map(
    metric: MetricInfo,
    called: Sequence[str],
    rounds: Sequence[int],
    values: np.ndarray,
    out: Mapping[str, list[int]],
    by_valid: bool = False,
) -> list[Figure]:
    """Draw every silo in every round: rows as in the table, each column the worst of its rounds."""
    if len(rounds) < 2 or len(called) < 2 or not np.isfinite(values).any():
        return []
    step = -(-len(rounds) // MAPPED)
    starts = range(0, len(rounds), step)

    def cell(at: float) -> float:  # the middle of a round's own part of its column
        return float(np.interp(at, rounds, range(len(rounds))) + 0.5) / (step * len(starts))

    missing = np.zeros(values.shape, bool)
    for nth, name in enumerate(called):
        missing[nth, np.minimum(np.searchsorted(rounds, out.get(name, [])), len(rounds) - 1).astype(int)] = (
            True
        )
    missing = np.logical_or.reduceat(missing, starts, axis=1)
    worst = (np.fmin if metric.higher_is_better else np.fmax).reduceat(values, starts, axis=1)
    wild = 0 if metric.share else 2  # a metric without bounds may begin anywhere
    ends = np.nanpercentile(values, (wild, 100) if metric.higher_is_better else (100 - wild, 0))
    shades = np.clip((worst - ends[0]) / ((ends[1] - ends[0]) or 1.0), 0, 1)
    drawn: list[Block] = [
        Plot(f"{metric.title} of every silo in every round", image=strips(shades, missing), lined=False,
             unit="round", levels=named(called, NAMED),
             ticks=charts.below(charts.Scale(rounds[0], rounds[-1]), at=cell),
             told=_told(metric, called, rounds, starts, worst),
             high=min(max(18 * len(called), 60), 18 * NAMED)),
        ramp(metric.write_briefly(float(ends[0])), WORST_TO_BEST, metric.write_briefly(float(ends[1]))),
    ]  # fmt: skip
    note = "Rows are in the order of the table, the worst first. Bright is good. Empty cells have no score."
    note += units.beyond(worst, float(ends[0]), metric)
    note += " Each round is scored on validation rows." if by_valid else ""
    note += f" One name in {-(-len(called) // NAMED)} is shown." if len(called) > NAMED else ""
    note += f" Each cell has the worst score of {step} rounds." if step > 1 else ""
    keys = [Key("under", "left out of the round")] if missing.any() else []
    return [Figure("Every silo in every round", note, drawn, keys, wide=True)]


def _told(
    metric: MetricInfo, called: Sequence[str], rounds: Sequence[int], starts: range, worst: np.ndarray
) -> dict[str, Any]:
    """Return what the program tells of the map, two bytes a value."""
    low, high = float(np.nanmin(worst)), float(np.nanmax(worst))
    codes = np.where(
        np.isnan(worst), NO_VALUE, np.rint((worst - low) / ((high - low) or 1.0) * (NO_VALUE - 1))
    )
    lasts = [rounds[min(start + starts.step, len(rounds)) - 1] for start in starts]
    heads = [f"round {last}" if starts.step == 1 else f"round {rounds[start]} to {last}"
             for start, last in zip(starts, lasts, strict=True)]  # fmt: skip
    values = base64.b64encode(codes.astype("<u2").tobytes()).decode()
    return {"x": [round(100 * (nth + 0.5) / len(starts), 2) for nth in range(len(starts))], "heads": heads,
            "rows": called, "values": values, "low": low, "high": high, "share": metric.share}  # fmt: skip
