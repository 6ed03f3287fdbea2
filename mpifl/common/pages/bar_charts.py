"""Bars of a chart: a stacked one for each round, and lying ones for each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpifl.common.pages.charts import COLOURS, WIDE, Levels, Scale, Write, below, beside, ticks, up
from mpifl.common.pages.parts import Figure, Key, Mark, Plot, Split

MOST_BARS = 240
"""Rounds that have a bar of their own; more are taken together."""
CUT = 4
"""A first bar of more than so many times the highest of the others is cut."""


def bars(
    title: str, rounds: Sequence[int], stacks: Sequence[tuple[str, Sequence[float], str]], write: Write,
    note: str = "", marked: Callable[[float], Levels] | None = None,
) -> Figure | None:  # fmt: skip
    """Draw a stacked bar for each round; of many rounds, the mean of neighbours. None where all are 0.

    Args:
        title: What stands above.
        rounds: Their numbers.
        stacks: The name of each part, its value in each round, its look.
        write: How values are written.
        note: What is to be known.
        marked: Gives the levels up to the highest bar, and how they are written; by default round numbers.
    """
    if not any(any(values) for _, values, _ in stacks):
        return None
    step = -(-len(rounds) // MOST_BARS)
    means = [[sum(part) / len(part) for part in _parts(values, step)] for _, values, _ in stacks]
    tops = [sum(column) for column in zip(*means, strict=True)]
    most = highest(tops)
    levels, tell = marked(most) if marked else (ticks(0, most), write)
    y = Scale(0, max(levels[-1], most))
    marks = _stacked([look for _, _, look in stacks], means, y)
    note += f" Each bar is the mean of {step} rounds." if step > 1 else ""
    note += f" The first bar is cut: it stands for {write(tops[0])}." if tops[0] > y.high else ""
    told = {
        "x": [round(100 * (nth + 0.5) / len(tops), 2) for nth in range(len(tops))],
        "heads": [f"round {first}" for first in rounds[::step]],
        "lines": [{"name": name, "look": look, "said": list(map(write, values))}
                  for (name, _, look), values in zip(stacks, means, strict=True)],
    }  # fmt: skip
    plot = Plot(title, marks, levels=beside(y, levels, tell), unit="round", told=told,
                ticks=below(Scale(rounds[0] - 0.5, rounds[-1] + 0.5)))  # fmt: skip
    return Figure(title, note.strip(), [plot], [Key(look, name) for name, _, look in stacks])


def highest(tops: Sequence[float]) -> float:
    """Return what bars are drawn up to: a first round, which loads libraries, would flatten the others."""
    rest = max(tops[1:], default=0.0)
    return 1.25 * rest if len(tops) > 4 and tops[0] > CUT * rest > 0 else max(tops)


def _parts(values: Sequence[float], length: int) -> list[Sequence[float]]:
    return [values[start : start + length] for start in range(0, len(values), length)]


def _stacked(looks: Sequence[str], stacks: Sequence[Sequence[float]], y: Scale) -> list[Mark]:
    """Draw bars side by side, each stack's part of them on those of the stacks before it."""
    width = WIDE / len(stacks[0])
    gap = 0.12 * width if len(stacks[0]) <= 120 else 0.0
    bases, marks = [0.0] * len(stacks[0]), []
    for look, values in zip(looks, stacks, strict=True):
        tops = [min(base + value, y.high) for base, value in zip(bases, values, strict=True)]
        path = "".join(
            f"M{nth * width + gap:.1f} {up(y, base)}V{up(y, top)}H{(nth + 1) * width - gap:.1f}"
            f"V{up(y, base)}Z"
            for nth, (base, top) in enumerate(zip(bases, tops, strict=True))
            if values[nth] > 0
        )
        marks.append(Mark(f"area {look}", path))
        bases = tops
    return marks


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
    return Figure(title, note, [Split(drawn)], keys, wide=True)
