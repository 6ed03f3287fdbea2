"""Lines over rounds, bars and points of a chart, as coordinates that templates put into a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mpifl.common.pages.neighbours import Points as Points, ends, medians, thinned
from mpifl.common.pages.parts import Figure, Key, Mark, Place, Plot, SplitBars, bars
from mpifl.common.pages.tick_names import across, numbered
from mpifl.common.pages.time_axis import levels_of_times

COLOURS = tuple(f"s{nth}" for nth in range(6))
"""Looks of things side by side, by rank."""
WIDE, HIGH = 1000, 200
"""The units of a drawing."""
MOST_TOLD = 600
"""Places whose figures the program tells: of many, those where a line is lowest and highest."""
PHONE = 18
"""Characters of marks below a drawing for which a phone has room; of more it shows every second one."""
NOTHING = 1e-300
"""Below this a span counts as none: a tenth of it may be 0."""
WHOLE = ("round", "step")
"""Along these, marks are whole numbers; along seconds and bytes they need not be."""
Write = Callable[[float], str]
Levels = tuple[list[float], Write]
"""What is marked on an axis, and how it is written there."""


@dataclass(frozen=True)
class Line:
    """A figure over rounds; a point whose value is None is a gap."""

    name: str
    points: Points
    look: str = "test"
    last: str | None = None
    """What its key says beside its name, by default the last value. One without a name has no key."""


@dataclass(frozen=True)
class Band:
    """What lies between two figures over rounds."""

    name: str
    points: Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Under:
    """What is marked below a drawing, such as rounds in which something went wrong."""

    name: str
    said: Mapping[float, str]
    """What went wrong, by the place."""


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


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return about five round numbers, the first not above `low`, the last not below `high`."""
    if high - low < NOTHING:
        high = low + (abs(low) if abs(low) > NOTHING else 1.0)
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * (1 - 1e-9))
    return [step * n for n in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def ticks_log(low: float, high: float) -> list[float]:
    """Return some powers of ten, or 1, 2 and 5 times them where few lie between; they enclose both ends."""
    first, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max((end - first) // 6, 1)
    powers = range(first, end + step, step)
    factors = (1,) if len(powers) > 4 else (1, 2, 5)
    found = [factor * 10.0**power for power in powers for factor in factors]
    least = max(level for level in found if level <= low * (1 + 1e-9))
    most = min(level for level in found if level >= high * (1 - 1e-9))
    return [level for level in found if least <= level <= most]


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


def lines(
    title: str,
    drawn: Sequence[Line],
    band: Band | None = None,
    write: Write = "{:g}".format,
    target: float | None = None,
    log: bool = False,
    note: str = "",
    along: str = "round",
    wide: bool = False,
    under: Under | None = None,
    marked: Callable[[float], Levels] | None = None,
    high: int = 190,
    covers: Sequence[float] = (),
    most: int = 0,
) -> Figure | None:
    """Draw lines over rounds, or something else, with a band behind and a target across; None of none.

    Times and counts, from 0, are `marked` up to the highest value. Others show `covers`, too. Of more than
    `most` points lines are medians, and the band is what the first line lies between.
    """
    given = [replace(one, points=_finite(one.points)) for one in drawn]
    if not (shown := [line for line in given if any(value is not None for _, value in line.points)]):
        return None
    if most and (step := -(-max(len(one.points) for one in shown) // most)) > 1:
        shown, band, note = _binned(shown, step, f"{note} Each point is the median of about {step} {along}s.")
    values = [[value for _, value in line.points if value is not None] for line in shown]
    if marked:
        highs = [end for *_, end in band.points] if band else []
        (levels, tell), more = levels_of_times(values, highs, marked, write, along)
        y, note = Scale(0, levels[-1]), note + more
    else:
        edges = [edge for point in (band.points if band else ()) for edge in point[1:]]
        y, levels = levelled([*sum(values, edges), *covers, *([] if target is None else [target])], log)
    at = [*(under.said if under else ()), *(x for line in shown for x, _ in line.points)]
    keys = _keys(shown, band, target, under, write)
    if min(at) == max(at):  # a dot is no curve
        return Figure(title, f"There is one point, at {along} {at[0]:g}. {note}".strip(), [], keys, wide)
    x = Scale(min(at), max(at))
    marks = _marks(shown, band, under, target, x, y)
    plot = Plot(title, marks, levels=beside(y, levels, tell if marked else write),
                ticks=below(x, along in WHOLE), unit=along, scales=(x, y), high=260 if wide else high,
                told=_told(shown, under, x, write, along))  # fmt: skip
    return Figure(title, f"{note}{' The vertical axis is logarithmic.' * y.log}".strip(), [plot], keys, wide)


def _marks(
    shown: Sequence[Line], band: Band | None, under: Under | None, target: float | None, x: Scale, y: Scale
) -> list[Mark]:
    """Return the band, the lines over it, what is marked below them, and the target."""
    marks = [Mark("area band", _area(band, x, y))] if band and band.points else []
    marks += [mark for line in shown for mark in _path(line, x, y)]
    marks += [Mark("under", _spans(sorted(under.said), x))] if under and under.said else []
    return marks + ([] if target is None else [Mark("target", f"M0 {up(y, target)}H{WIDE}")])


def _binned(shown: Sequence[Line], step: int, note: str) -> tuple[list[Line], Band, str]:
    """Return lines as medians of each few points, what the first lies between, and the note."""
    band = Band(f"{shown[0].name}, lowest to highest", ends(shown[0].points, step))
    return [replace(one, points=medians(one.points, step)) for one in shown], band, note


def _keys(
    shown: Sequence[Line], band: Band | None, target: float | None, under: Under | None, write: Write
) -> list[Key]:
    """Return what each look means, with the last value of a line that continues to its end."""
    lasts = [next((value for _, value in reversed(one.points) if value is not None), 0.0) for one in shown]
    keys = [Key(one.look, one.name, write(last) if one.last is None else one.last)
            for one, last in zip(shown, lasts, strict=True) if one.name]  # fmt: skip
    keys += [Key("band", band.name)] if band and band.points else []
    keys += [Key("target", "target", write(target))] if target is not None else []
    return keys + ([Key("under", under.name)] if under and under.said else [])


def _spans(marked: Sequence[float], x: Scale) -> str:
    """Draw places, those one after another as one stroke, at the foot of the drawing."""
    begun = [at for nth, at in enumerate(marked) if nth == 0 or at > marked[nth - 1] + 1]
    ended = [at for nth, at in enumerate(marked, 1) if nth == len(marked) or at < marked[nth] - 1]
    pairs = zip(begun, ended, strict=True)
    return "".join(f"M{WIDE * x(first):.1f} {HIGH}H{WIDE * x(last):.1f}" for first, last in pairs)


def _finite(points: Points) -> Points:
    """Return the points that have a place: a file that somebody has harmed may tell of others."""
    return [(x, y if y is not None and math.isfinite(y) else None) for x, y in points if math.isfinite(x)]


def beside(y: Scale, levels: Sequence[float], write: Write) -> list[Place]:
    """Return the levels of a drawing where they lie."""
    return [Place(100 - 100 * y(level), write(level)) for level in levels]


def below(x: Scale, whole: bool = True, at: Callable[[float], float] | None = None) -> list[Place]:
    """Return round numbers below a drawing, placed by `at` if told: whole ones of what is counted."""
    levels = sorted({round(level) if whole else level for level in ticks(x.low, x.high, 6)}, reverse=True)
    named = [(level, f"{level:,.10g}") for level in levels if x.low <= level <= x.high]
    wide = sum(len(text) for _, text in named) > PHONE
    return [Place(100 * (at or x)(of), text, wide and n % 2 > 0) for n, (of, text) in enumerate(named)][::-1]


def _path(line: Line, x: Scale, y: Scale) -> list[Mark]:
    """Draw a line; a point that stands alone between gaps is a dot."""
    pieces: list[list[str]] = [[]]
    for at, value in thinned(line.points):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{WIDE * x(at):.1f} {up(y, min(value, y.high))}")
    path = "".join(f"M{'L'.join(piece)}" for piece in pieces if len(piece) > 1)
    dots = "".join(f"M{piece[0]}h0" for piece in pieces if len(piece) == 1)
    drawn = ((f"line {line.look}", path), (f"dot {line.look}", dots))
    return [Mark(look, found) for look, found in drawn if found]


def up(y: Scale, value: float) -> str:
    """Return how far from the top of a drawing a value lies, in its units."""
    return f"{HIGH * (1 - y(value)):.2f}"


def _area(band: Band, x: Scale, y: Scale) -> str:
    there = [f"{WIDE * x(at):.1f} {up(y, min(high, y.high))}" for at, _, high in band.points]
    back = [f"{WIDE * x(at):.1f} {up(y, low)}" for at, low, _ in reversed(band.points)]
    return f"M{'L'.join([*there, *back])}Z"


def _told(shown: Sequence[Line], under: Under | None, x: Scale, write: Write, along: str) -> dict[str, Any]:
    """Return what the program tells of places: the figures of all lines there, and what went wrong."""
    each = MOST_TOLD // len(shown)
    chosen = sorted({at for line in shown for at, value in thinned(line.points, each) if value is not None})
    told = []
    for line in (line for line in shown if line.name):
        at = dict(line.points)
        said = ["" if (value := at.get(one)) is None else write(value) for one in chosen]
        told.append({"name": line.name, "look": line.look, "said": said})
    if under and under.said:
        told.append(
            {"name": under.name, "look": "under", "said": [under.said.get(one, "") for one in chosen]}
        )
    heads = [f"{along} {one:.6g}" for one in chosen]
    return {"x": [round(100 * x(one), 2) for one in chosen], "heads": heads, "lines": told}


def columns(
    values: Sequence[float], what: str, most: float, unit: str = "silo", names: Sequence[str] = ()
) -> Plot:
    """Draw a number of each of many things as bars side by side; one of `most` has the full height.

    They are called by their names, as far as these have room, else by numbers.
    """
    gap, levels = 0.15 if len(values) <= 150 else 0.0, ticks(0, max(most, 1), 3)
    y = Scale(0, levels[-1])
    path = bars([*map(y, values)], 1, 100, gap)
    said = f"{what} of every {unit}, {min(values):,} to {max(values):,}"
    whole = beside(y, [level for level in levels if level == round(level)], "{:,.0f}".format)
    return Plot(said, [Mark("area one", path)], (len(values), 100), levels=whole,
                ticks=across(names) if names else numbered(len(values)), unit=unit, high=110)  # fmt: skip


Row = tuple[str, Sequence[float], str]
"""A bar's name, its parts, and what stands behind it."""


def split(title: str, rows: Sequence[Row], names: Sequence[str], write: Write, note: str = "") -> Figure:
    """Draw a horizontal stacked bar for each row, all to one scale.

    The last part is what is left; a part that no row has is not named.
    """
    most = max(sum(parts) for _, parts, _ in rows) or 1.0
    looks = [*COLOURS[: len(names) - 1], "rest"]
    drawn = []
    for name, parts, behind in rows:
        pieces, at = [], 0.0
        for what, part, look in zip(names, parts, looks, strict=True):
            if part > 0:
                pieces.append((look, at, 100 * part / most, f"{what} {write(part)}"))
            at += 100 * part / most
        drawn.append((name, pieces, behind))
    has = [any(parts) for parts in zip(*(parts for _, parts, _ in rows), strict=True)]
    keys = [Key(look, name) for look, name, one in zip(looks, names, has, strict=True) if one]
    return Figure(title, note, [SplitBars(drawn)], keys, wide=True)
