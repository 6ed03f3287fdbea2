"""Charts of a page: marks in SVG that stretch to any width, between figures in HTML that stay readable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape

from mpifl.report.pages.line_ends import ends
from mpifl.report.runs import Levels, highest, seconds, ticks, ticks_log

COLOURS = ("one", "two", "three", "four", "five")
WIDE, HIGH = 1000, 200
"""The units of a drawing."""
MOST_BARS = 240
"""Rounds that have a bar, or a hovering label, of their own; more are taken together."""
MOST_POINTS = 600
MOST_NARROW = 3
"""Lines whose names fit beside half a page."""


@dataclass(frozen=True)
class Line:
    """A figure over rounds; a point whose value is None is a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    colour: str = "one"


@dataclass(frozen=True)
class Band:
    """What lies between two figures over rounds."""

    name: str
    points: Sequence[tuple[float, float, float]]
    colour: str = "one"


@dataclass(frozen=True)
class Scale:
    """From figures to the units of a drawing."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return how far a value lies between the ends, from 0 to 1."""
        low, high, value = (math.log10(v) for v in (self.low, self.high, value)) if self.log else (
            self.low, self.high, value)  # fmt: skip
        return (value - low) / (high - low)


def lines(
    title: str,
    drawn: Sequence[Line],
    band: Band | None = None,
    write: Callable[[float], str] = "{:g}".format,
    target: float | None = None,
    log: bool = False,
    note: str = "",
    along: str = "round",
    named: bool = True,
) -> str:
    """Draw lines over rounds, or something else, with a band behind them and a target across.

    Names stand at the ends of lines; a chart whose lines are not `named` has the colours of one that is.
    """
    lines = (replace(line, points=_finite(line.points)) for line in drawn)
    shown = [line for line in lines if any(value is not None for _, value in line.points)]
    if not shown:
        return ""
    if (step := -(-max(len(line.points) for line in shown) // MOST_POINTS)) > 1:
        note += f" Each point is the mean of {step} rounds."
        shown = [replace(line, points=_means(line.points, step)) for line in shown]
    values = [value for line in shown for _, value in line.points if value is not None]
    values += [edge for point in (band.points if band else ()) for edge in point[1:]]
    y, levels = levelled(values + ([] if target is None else [target]), log)
    rounds = [round for line in shown for round, _ in line.points]
    x = Scale(min(rounds), max(rounds) if max(rounds) > min(rounds) else min(rounds) + 1)
    marks = [_area(band, x, y)] if band else []
    marks += [_path(line, x, y) for line in shown]
    marks += [] if target is None else [_across("target", y, target)]
    marks += [_hovers(shown, x, write, along)]
    keys = key([(band.name, f"{band.colour} band")]) if band else ""
    behind = labels(shown, y, write) if named else ""
    plotted = plot("".join(marks), x, y, levels, write, title, behind=behind, unit=along)
    return figure(title, note, keys + plotted, wide=named and len(shown) > MOST_NARROW)


def labels(shown: Sequence[Line], y: Scale, write: Callable[[float], str]) -> str:
    """Return what stands at the ends of several lines, none over another: names and last figures."""
    last = [(line, next((v for _, v in reversed(line.points) if v is not None), 0.0)) for line in shown]
    found = [(y(v), f"{line.name} {write(v)}", line.colour) for line, v in last]
    return ends(found) if len(found) > 1 else ""


def _finite(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Return the points that have a place: a file that somebody has harmed may tell of others."""
    return [(x, y if y is not None and math.isfinite(y) else None) for x, y in points if math.isfinite(x)]


def levelled(values: Sequence[float], log: bool) -> tuple[Scale, list[float]]:
    """Return the scale of some figures, logarithmic only where they lie apart, and the levels to mark.

    What is not finite, as in a file that somebody has harmed, has no place on it.
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if not math.isfinite(high - low):
        low, high = low / 4, high / 4
    log = log and low > 0 and high > 20 * low
    levels = ticks_log(low, high) if log else ticks(low, high)
    return Scale(min(levels[0], low), max(levels[-1], high), log), levels


def bars(
    title: str, rounds: Sequence[int], stacks: Sequence[tuple[str, Sequence[float], str]],
    write: Callable[[float], str], note: str = "", beside: Callable[[float], Levels] | None = None,
) -> str:  # fmt: skip
    """Draw a stacked bar for each round; of many rounds, the mean of neighbours.

    Args:
        beside: Gives the levels up to the highest bar, and how they are written; by default round numbers.
    """
    if not any(any(values) for _, values, _ in stacks):
        return ""
    step = -(-len(rounds) // MOST_BARS)
    means = [[sum(part) / len(part) for part in _parts(values, step)] for _, values, _ in stacks]
    tops = [sum(column) for column in zip(*means, strict=True)]
    most = highest(tops)
    levels, tell = beside(most) if beside else (ticks(0, most), write)
    y, width = Scale(0, max(levels[-1], most)), WIDE / len(tops)
    marks = _stacked([colour for _, _, colour in stacks], means, y)
    for nth, first in enumerate(rounds[::step]):
        figures = ", ".join(f"{name} {write(v[nth])}" for (name, _, _), v in zip(stacks, means, strict=True))
        marks += _hover(nth * width, width, f"round {first}: {figures}")
    note += f" Each bar is the mean of {step} rounds." if step > 1 else ""
    note += f" The first bar is cut: it stands for {write(tops[0])}." if tops[0] > y.high else ""
    x = Scale(rounds[0] - 0.5, rounds[-1] + 0.5)
    keys = key([(name, colour) for name, _, colour in stacks])
    return figure(title, note, keys + plot(marks, x, y, levels, tell, title))


def _parts(values: Sequence[float], length: int) -> list[Sequence[float]]:
    return [values[start : start + length] for start in range(0, len(values), length)]


def _stacked(colours: Sequence[str], stacks: Sequence[Sequence[float]], y: Scale) -> str:
    """Draw bars side by side, each stack's part of them on those of the stacks before it."""
    width = WIDE / len(stacks[0])
    gap = 0.12 * width if len(stacks[0]) <= 120 else 0.0
    bases, marks = [0.0] * len(stacks[0]), ""
    for colour, values in zip(colours, stacks, strict=True):
        tops = [min(base + value, y.high) for base, value in zip(bases, values, strict=True)]
        path = "".join(
            f"M{nth * width + gap:.1f} {base}V{top}H{(nth + 1) * width - gap:.1f}V{base}Z"
            for nth, (base, top) in enumerate(zip(_ups(y, bases), _ups(y, tops), strict=True))
            if values[nth] > 0
        )
        marks += f'<path class="area {colour}" d="{path}"/>'
        bases = tops
    return marks


Row = tuple[str, Sequence[float], str]
"""A bar's name, its parts, and what stands behind it."""


def split(title: str, rows: Sequence[Row], names: Sequence[str], note: str = "") -> str:
    """Draw a horizontal stacked bar for each row, all to one scale.

    The last part is what is left; a part that no row has is not named.
    """
    most = max(sum(parts) for _, parts, _ in rows) or 1.0
    colours = [*COLOURS[: len(names) - 1], "rest"]
    body = ""
    for name, parts, behind in rows:
        named = zip(names, parts, colours, strict=True)
        pieces = "".join(_piece(what, part, part / most, colour) for what, part, colour in named if part > 0)
        body += f'<span>{escape(name)}</span><div class="bar">{pieces}</div><span>{escape(behind)}</span>'
    there = [any(parts) for parts in zip(*(parts for _, parts, _ in rows), strict=True)]
    keys = key([named for named, has in zip(zip(names, colours, strict=True), there, strict=True) if has])
    return figure(title, note, f'{keys}<div class="split">{body}</div>', wide=True)


def _piece(what: str, part: float, share: float, colour: str) -> str:
    title = f"{escape(what)} {seconds(part)}"
    return f'<i class="{colour}" style="width:{100 * share:.2f}%" title="{title}"></i>'


def plot(
    marks: str,
    x: Scale,
    y: Scale,
    levels: Sequence[float],
    write: Callable[[float], str],
    what: str,
    behind: str = "",
    unit: str = "round",
) -> str:
    """Return a drawing with its levels and what stands beside, behind and below it."""
    across = "".join(_across("level", y, level) for level in levels)
    beside = "".join(
        f'<span style="top:{100 - 100 * y(level):.1f}%">{escape(write(level))}</span>' for level in levels
    )
    return (
        f'<div class="plot{" ended" if behind else ""}"><div class="ticks y">{beside}</div>'
        f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(what)}">{across}{marks}</svg>'
        f"{behind}{below(x, unit)}</div>"
    )


def key(names: Sequence[tuple[str, str]]) -> str:
    """Return what the colours mean."""
    shown = "".join(f'<span><i class="{colour}"></i>{escape(name)}</span>' for name, colour in names)
    return f'<div class="key">{shown}</div>'


def titled(title: str, note: str) -> str:
    """Return what stands where a chart cannot."""
    return figure(title, note, "", wide=True)


def _across(kind: str, y: Scale, value: float) -> str:
    return f'<line class="{kind}" x1="0" x2="{WIDE}" y1="{_up(y, value)}" y2="{_up(y, value)}"/>'


def _up(y: Scale, value: float) -> str:
    return f"{HIGH * (1 - y(value)):.2f}"


def _ups(y: Scale, values: Sequence[float]) -> list[str]:
    return [_up(y, value) for value in values]


def figure(title: str, note: str, body: str, wide: bool = False) -> str:
    """Return a chart with its title, and the note above it."""
    said = f'<p class="note">{escape(note.strip())}</p>' if note else ""
    return f'<section class="figure{" wide" if wide else ""}"><h2>{escape(title)}</h2>{said}{body}</section>'


def _path(line: Line, x: Scale, y: Scale) -> str:
    """Draw a line; a point that stands alone between gaps is a dot."""
    pieces: list[list[str]] = [[]]
    for round, value in line.points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{WIDE * x(round):.1f} {_up(y, value)}")
    dots = "".join(f"M{piece[0]}h0" for piece in pieces if len(piece) == 1)
    path = "".join(f"M{'L'.join(piece)}" for piece in pieces if len(piece) > 1)
    return (f'<path class="line {line.colour}" d="{path}"/>' if path else "") + (
        f'<path class="dot {line.colour}" d="{dots}"/>' if dots else ""
    )


def _means(points: Sequence[tuple[float, float | None]], step: int) -> list[tuple[float, float | None]]:
    """Take neighbours together: their last round, and the mean of those that have a value."""
    found: list[tuple[float, float | None]] = []
    for start in range(0, len(points), step):
        values = [value for _, value in points[start : start + step] if value is not None]
        found.append((points[start : start + step][-1][0], sum(values) / len(values) if values else None))
    return found


def _area(band: Band, x: Scale, y: Scale) -> str:
    there = [f"{WIDE * x(round):.1f} {_up(y, high)}" for round, _, high in band.points]
    back = [f"{WIDE * x(round):.1f} {_up(y, low)}" for round, low, _ in reversed(band.points)]
    return f'<path class="area band {band.colour}" d="M{"L".join([*there, *back])}Z"/>' if there else ""


def _hovers(shown: Sequence[Line], x: Scale, write: Callable[[float], str], along: str) -> str:
    """Say a round's figures where the pointer rests on it."""
    rounds = sorted({round for line in shown for round, _ in line.points})
    chosen = rounds[:: -(-len(rounds) // MOST_BARS)]
    width, told = WIDE / max(len(chosen), 1), [(line.name, dict(line.points)) for line in shown]
    found = ""
    for round in chosen:
        figures = [f"{name} {write(value)}" for name, at in told if (value := at.get(round)) is not None]
        if figures:
            found += _hover(WIDE * x(round) - width / 2, width, f"{along} {round:.4g}: {', '.join(figures)}")
    return found


def _hover(left: float, width: float, text: str) -> str:
    rect = f'<rect class="hover" x="{left:.1f}" y="0" width="{width:.1f}" height="{HIGH}">'
    return f"{rect}<title>{escape(text)}</title></rect>"


def below(x: Scale, unit: str) -> str:
    """Return the whole numbers below a drawing, and what they count."""
    whole = sorted({round(level) for level in ticks(x.low, x.high, 6) if x.low <= round(level) <= x.high})
    marks = "".join(f'<span style="left:{100 * x(level):.2f}%">{level}</span>' for level in whole)
    return f'<div class="ticks x">{marks}</div><div class="unit">{unit}</div>'
