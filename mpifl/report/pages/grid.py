"""What came of a grid of settings: a map of one or two keys, parallel coordinates of more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from mpifl.report.pages.charts import figure

WIDE, HIGH = 1000, 100
FAINT = 0.08
"""How strong the colour of the worst is."""


@dataclass(frozen=True)
class Tried:
    """A point of the grid: its settings in the order of the keys, what came of it, where its page lies."""

    settings: tuple[str, ...]
    value: float | None
    link: str = ""


@dataclass(frozen=True)
class Scaled:
    """A grid whose points have a value: how strong each colour is, and which is the best."""

    keys: Sequence[str]
    points: Sequence[Tried]
    write: Callable[[float], str]
    top: float

    def value(self, one: Tried) -> float:
        """Return a point's value."""
        return self.top if one.value is None else one.value

    def strength(self, one: Tried) -> float:
        """Return how strong a point's colour is, from FAINT to 1."""
        apart = [abs(self.value(each) - self.top) for each in self.points]
        return 1 - (1 - FAINT) * abs(self.value(one) - self.top) / (max(apart) or 1.0)

    def told(self, one: Tried) -> str:
        """Return what a point is, and what came of it."""
        named = zip(self.keys, one.settings, strict=True)
        return f"{', '.join(f'{key} {word}' for key, word in named)}: {self.write(self.value(one))}"


def grid(
    keys: Sequence[str],
    tried: Sequence[Tried],
    name: str,
    write: Callable[[float], str],
    best: Callable[..., float],
) -> str:
    """Draw a grid of runs by the figure that they are judged by; "" where fewer than two have it."""
    points = [one for one in tried if one.value is not None]
    if not keys or len(points) < 2:
        return ""
    scaled = Scaled(keys, points, write, best(one.value for one in points))
    listed = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
    title = f"{name[:1].upper()}{name[1:]} by {listed}"
    if len(keys) < 3:
        return figure(
            title, "The stronger the colour, the better; the best is framed.", _map(scaled), wide=True
        )
    note = "A line for each run, or for its seeds; the stronger, the better, and the best in green."
    return figure(title, note, _parallel(scaled), wide=True)


def _map(scaled: Scaled) -> str:
    """Draw the values of the first key downwards, those of the second, if there is one, to the right."""
    found = {one.settings: one for one in scaled.points}
    down, right = ([one.settings[nth : nth + 1] for one in scaled.points] for nth in (0, 1))
    columns = ordered([word for words in right for word in words])
    cells = f'<span class="name">{escape(" / ".join(scaled.keys))}</span>'
    cells += "".join(f'<span class="name">{escape(word)}</span>' for word in columns or [""])
    for row in ordered([word for words in down for word in words]):
        there = [found.get((row, column)) for column in columns] if columns else [found.get((row,))]
        cells += f'<span class="name">{escape(row)}</span>{"".join(_cell(scaled, one) for one in there)}'
    wide = f"grid-template-columns: max-content repeat({max(len(columns), 1)}, minmax(max-content, 1fr))"
    return f'<div class="map" style="{wide}">{cells}</div>'


def _cell(scaled: Scaled, one: Tried | None) -> str:
    if one is None:
        return '<span class="cell">–</span>'
    best = " bright" if one.value == scaled.top else ""
    inner = (
        f'<i style="opacity:{0.6 * scaled.strength(one):.2f}"></i>{escape(scaled.write(scaled.value(one)))}'
    )
    if one.link:
        return f'<a class="cell{best}" href="{escape(one.link)}">{inner}</a>'
    return f'<span class="cell{best}">{inner}</span>'


def _parallel(scaled: Scaled) -> str:
    """Draw an axis for each key and one for the figure, and a line through them for each run."""
    many, keys = len(scaled.keys), scaled.keys
    axes = [ordered([one.settings[nth] for one in scaled.points]) for nth in range(many)]
    values = [scaled.value(one) for one in scaled.points]
    ends = min(values), max(values)
    lines = "".join(_through(scaled, one, axes, ends) for one in sorted(scaled.points, key=scaled.strength))
    named = [(nth, _place(word, axis), word) for nth, axis in enumerate(axes) for word in axis]
    named += [(many, up, scaled.write(end)) for up, end in zip((0.0, 1.0), ends, strict=True)]
    labels = "".join(
        f'<span style="left:{100 * nth / many:.1f}%;top:{100 - 100 * up:.1f}%">{escape(word)}</span>'
        for nth, up, word in named
    )
    heads = "".join(f"<span>{escape(key)}</span>" for key in [*keys, "result"])
    svg = f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img">{lines}</svg>'
    return f'<div class="axes">{heads}</div><div class="parallel">{svg}{labels}</div>'


def _through(scaled: Scaled, one: Tried, axes: Sequence[list[str]], ends: tuple[float, float]) -> str:
    """Draw one run's line, from the first key to what came of it."""
    low, high = ends
    ups = [_place(word, axis) for word, axis in zip(one.settings, axes, strict=True)]
    ups.append((scaled.value(one) - low) / (high - low) if high > low else 0.5)
    path = "L".join(f"{WIDE * nth / len(axes):.0f} {HIGH * (1 - up):.1f}" for nth, up in enumerate(ups))
    look = "three" if one.value == scaled.top else "one"
    return (
        f'<path class="line {look}" style="opacity:{scaled.strength(one):.2f}" d="M{path}">'
        f"<title>{escape(scaled.told(one))}</title></path>"
    )


def ordered(words: Sequence[str]) -> list[str]:
    """Return settings each once: numbers by size, then words as they came."""
    unique = list(dict.fromkeys(words))

    def size(word: str) -> tuple[int, float]:
        try:
            return 0, float(word)
        except ValueError:
            return 1, unique.index(word)

    return sorted(unique, key=size)


def _place(word: str, axis: Sequence[str]) -> float:
    return axis.index(word) / (len(axis) - 1) if len(axis) > 1 else 0.5
