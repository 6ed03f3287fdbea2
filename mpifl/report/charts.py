"""Charts of a page: marks in SVG that stretch to any width, between figures in HTML that stay readable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape

from mpifl.report.units import Levels, seconds, ticks, ticks_log

COLOURS = ("one", "two", "three", "four", "five")
WIDE, HIGH = 1000, 200
"""The units of a drawing."""
MOST_BARS = 240
"""Rounds that have a bar, or a hovering label, of their own; more are taken together."""
MOST_POINTS = 600
SHADES = 10


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
) -> str:
    """Draw lines over rounds, with a key, a band behind them and a target across."""
    shown = [line for line in drawn if any(value is not None for _, value in line.points)]
    if not shown:
        return ""
    if (step := -(-max(len(line.points) for line in shown) // MOST_POINTS)) > 1:
        note += f" Each point is the mean of {step} rounds."
        shown = [replace(line, points=_means(line.points, step)) for line in shown]
    values = [value for line in shown for _, value in line.points if value is not None]
    values += [edge for point in (band.points if band else ()) for edge in point[1:]]
    values += [] if target is None else [target]
    log = log and min(values) > 0 and max(values) > 20 * min(values)
    levels = ticks_log(min(values), max(values)) if log else ticks(min(values), max(values))
    y = Scale(min(levels[0], *values), max(levels[-1], *values), log)
    rounds = [round for line in shown for round, _ in line.points]
    x = Scale(min(rounds), max(max(rounds), min(rounds) + 1))
    marks = _area(band, x, y) if band else ""
    marks += "".join(_path(line, x, y) for line in shown)
    if target is not None:
        marks += f'<line class="target" x1="0" x2="{WIDE}" y1="{_up(y, target)}" y2="{_up(y, target)}"/>'
    marks += _hovers(shown, x, write)
    keys = [(line.name, line.colour) for line in shown] + (
        [(band.name, f"{band.colour} band")] if band else []
    )
    return _figure(title, note, key(keys) + plot(marks, x, y, levels, write, title))


def bars(
    title: str, rounds: Sequence[int], stacks: Sequence[tuple[str, Sequence[float], str]],
    write: Callable[[float], str], note: str = "", beside: Callable[[float], Levels] | None = None,
) -> str:  # fmt: skip
    """Draw a stacked bar for each round; of many rounds, the mean of neighbours.

    Args:
        beside: Gives the levels up to the highest bar, and how they are written; by default round numbers, by
            `write`.
    """
    if not any(any(values) for _, values, _ in stacks):
        return ""
    step = -(-len(rounds) // MOST_BARS)
    starts = range(0, len(rounds), step)
    means = [
        [sum(values[i : i + step]) / len(values[i : i + step]) for i in starts] for _, values, _ in stacks
    ]
    tops = [sum(column) for column in zip(*means, strict=True)]
    levels, tell = beside(max(tops)) if beside else (ticks(0, max(tops)), write)
    y, width = Scale(0, max(levels[-1], *tops)), WIDE / len(starts)
    gap = 0.12 * width if len(starts) <= 120 else 0.0
    below, marks = [0.0] * len(starts), ""
    for (_, _, colour), values in zip(stacks, means, strict=True):
        path = "".join(
            f"M{nth * width + gap:.1f} "
            f"{_up(y, at)}V{_up(y, at + value)}H{(nth + 1) * width - gap:.1f}V{_up(y, at)}Z"
            for nth, (at, value) in enumerate(zip(below, values, strict=True))
            if value > 0
        )
        marks += f'<path class="area {colour}" d="{path}"/>'
        below = [base + value for base, value in zip(below, values, strict=True)]
    for nth, first in enumerate(starts):
        figures = ", ".join(f"{name} {write(v[nth])}" for (name, _, _), v in zip(stacks, means, strict=True))
        marks += _hover(nth * width, width, f"round {rounds[first]}: {figures}")
    note += f" Each bar is the mean of {step} rounds." if step > 1 else ""
    x = Scale(rounds[0] - 0.5, rounds[-1] + 0.5)
    keys = key([(name, colour) for name, _, colour in stacks])
    return _figure(title, note, keys + plot(marks, x, y, levels, tell, title))


def split(
    title: str, rows: Sequence[tuple[str, Sequence[float], str]], names: Sequence[str], note: str = ""
) -> str:
    """Draw a horizontal stacked bar for each row (its name, the parts, what stands behind it), all to one
    scale.

    The last part is what is left; a part that no row has is not named.
    """
    most = max(sum(parts) for _, parts, _ in rows) or 1.0
    colours = [*COLOURS[: len(names) - 1], "rest"]
    body = ""
    for name, parts, behind in rows:
        pieces = "".join(
            f'<i class="{colour}" style="width:{100 * part / most:.2f}%" '
            f'title="{escape(what)} {seconds(part)}"></i>'
            for what, part, colour in zip(names, parts, colours, strict=True)
            if part > 0
        )
        body += f'<span>{escape(name)}</span><div class="bar">{pieces}</div><span>{escape(behind)}</span>'
    there = [any(parts) for parts in zip(*(parts for _, parts, _ in rows), strict=True)]
    keys = key([named for named, has in zip(zip(names, colours, strict=True), there, strict=True) if has])
    return _figure(title, note, f'{keys}<div class="split">{body}</div>', wide=True)


def heat(shares: Sequence[Sequence[float]], names: Sequence[str], sizes: Sequence[int], note: str) -> str:
    """Draw each silo's examples as a bar, and below it the share of each label in shades, the first label
    lowest.

    Args:
        shares: [silos, labels], each silo's adding up to 1.
        names: Of the labels.
        sizes: The silos' examples.
        note: What stands above.
    """
    most, many, labels = max(max(of_silo) for of_silo in shares) or 1.0, len(shares), len(names)
    height = max(min(16 * labels, 420), 48)
    shades = [""] * (SHADES + 1)
    for silo, of_silo in enumerate(shares):
        for label, share in enumerate(of_silo):
            shades[math.ceil(SHADES * share / most - 1e-9)] += f"M{silo} {labels - 1 - label}h1v1h-1z"
    cells = "".join(
        f'<path fill-opacity="{shade / SHADES:g}" d="{path}"/>'
        for shade, path in enumerate(shades)
        if shade and path
    )
    columns = "".join(
        f"M{silo + 0.1:g} 100V{100 - 100 * size / max(sizes):.1f}h0.8V100z" for silo, size in enumerate(sizes)
    )
    step = -(-labels // (height // 14))
    beside = "".join(
        f'<span style="top:{100 * (labels - label - 0.5) / labels:.2f}%">{escape(name[:8])}</span>'
        for label, name in enumerate(names) if label % step == 0
    )  # fmt: skip
    x = Scale(-0.5, many - 0.5)
    ramp = "".join(f'<i style="opacity:{shade / SHADES:g}"></i>' for shade in range(SHADES + 1))
    body = (
        f'<div class="plot heat"><div class="ticks y"><span style="top:6px">{max(sizes):,}</span></div>'
        f'<svg class="low" viewBox="0 0 {many} 100" preserveAspectRatio="none" role="img" '
        f'aria-label="Training examples of every silo"><path d="{columns}"/></svg>'
        f'<div class="ticks y">{beside}</div><svg style="height:{height}px;margin-top:6px" '
        f'viewBox="0 0 {many} {labels}" preserveAspectRatio="none" role="img" '
        f'aria-label="The share of each label in every silo">{cells}</svg>{_below(x, "silo")}</div>'
        f'<div class="key"><span>0 %<span class="ramp">{ramp}</span>{most:.0%} '
        "of a silo’s examples</span></div>"
    )
    return _figure("The data: examples and labels of every silo", note, body, wide=True)


def plot(
    marks: str, x: Scale, y: Scale, levels: Sequence[float], write: Callable[[float], str], what: str
) -> str:
    """Return a drawing with its levels and what stands beside and below it."""
    across = "".join(
        f'<line class="level" x1="0" x2="{WIDE}" y1="{_up(y, level)}" y2="{_up(y, level)}"/>'
        for level in levels
    )
    beside = "".join(
        f'<span style="top:{100 - 100 * y(level):.1f}%">{escape(write(level))}</span>' for level in levels
    )
    return (
        f'<div class="plot"><div class="ticks y">{beside}</div><svg viewBox="0 0 {WIDE} {HIGH}" '
        f'preserveAspectRatio="none" role="img" aria-label="{escape(what)}">{across}{marks}</svg>'
        f"{_below(x, 'round')}</div>"
    )


def key(names: Sequence[tuple[str, str]]) -> str:
    """Return what the colours mean."""
    return (
        '<div class="key">'
        + "".join(f'<span><i class="{c}"></i>{escape(n)}</span>' for n, c in names)
        + "</div>"
    )


def titled(title: str, note: str) -> str:
    """Return what stands where a chart cannot."""
    return _figure(title, note, "", wide=True)


def _up(y: Scale, value: float) -> str:
    return f"{HIGH * (1 - y(value)):.2f}"


def _figure(title: str, note: str, body: str, wide: bool = False) -> str:
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


def _hovers(shown: Sequence[Line], x: Scale, write: Callable[[float], str]) -> str:
    """Say a round's figures where the pointer rests on it."""
    rounds = sorted({round for line in shown for round, _ in line.points})
    chosen = rounds[:: -(-len(rounds) // MOST_BARS)]
    width, told = WIDE / max(len(chosen), 1), [(line.name, dict(line.points)) for line in shown]
    found = ""
    for round in chosen:
        figures = [f"{name} {write(value)}" for name, at in told if (value := at.get(round)) is not None]
        found += (
            _hover(WIDE * x(round) - width / 2, width, f"round {round:g}: {', '.join(figures)}")
            if figures
            else ""
        )
    return found


def _hover(left: float, width: float, text: str) -> str:
    rect = f'<rect class="hover" x="{left:.1f}" y="0" width="{width:.1f}" height="{HIGH}">'
    return f"{rect}<title>{escape(text)}</title></rect>"


def _below(x: Scale, unit: str) -> str:
    whole = sorted({round(level) for level in ticks(x.low, x.high, 6) if x.low <= round(level) <= x.high})
    marks = "".join(f'<span style="left:{100 * x(level):.2f}%">{level}</span>' for level in whole)
    return f'<div class="ticks x">{marks}</div><div class="unit">{unit}</div>'
