"""What came of a grid of settings: a map of two keys, parallel coordinates of more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpifl.common.pages import Figure, Grid, Mark, Place, Plot
from mpifl.report.runs import Standing, curve_legends, settings

WIDE, HIGH = 1000, 100
FAINT = 0.08
"""How strong the colour of the worst is."""
SHADES = 5
FEWEST_LINES = 8
"""Of fewer runs, parallel coordinates say less than their table."""


@dataclass(frozen=True)
class Tried:
    """A point of the grid: its settings in the order of the keys, what came of it, where its page lies, and
    the name that was given to it."""

    settings: tuple[str, ...]
    value: float | None
    link: str = ""
    name: str = ""


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
        told = one.name or ", ".join(f"{key} {word}" for key, word in named)
        return f"{told}: {self.write(self.value(one))}"


def grid_of_settings(found: Sequence[Standing], link: Callable[[Standing], str]) -> Figure | None:
    """Draw what came of the keys that vary, all of them: else a place would not say which setting it is."""
    keys = curve_legends.free_keys([one.group for one in found])
    if len(keys) > curve_legends.MOST_NAMED:
        return None
    tried = []
    for one in found:
        job = settings(one.group.runs[0].job)
        words = tuple(curve_legends.value(job.get(key)) for key in keys)
        tried.append(Tried(words, one.mean, link(one), one.group.runs[0].called))
    metric = found[0].metric
    named = [curve_legends.heading(key, keys) for key in keys]
    return grid(named, tried, metric.title, metric.write, metric.best)


def grid(
    keys: Sequence[str],
    tried: Sequence[Tried],
    title: str,
    write: Callable[[float], str],
    best: Callable[..., float],
) -> Figure | None:
    """Draw a grid of runs by what they are judged by; None of a single key, or of fewer than two values.

    More than two keys are drawn as parallel coordinates, of FEWEST_LINES on.
    """
    points = [one for one in tried if one.value is not None]
    if len({one.settings for one in points}) < len(points):
        return None
    if len(keys) < 2 or len(points) < (2 if len(keys) == 2 else FEWEST_LINES):
        return None
    scaled = Scaled(keys, points, write, best(one.value for one in points))
    listed = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
    title = f"{title} by {listed}"
    if len(keys) < 3:
        note = "A stronger colour is better. The best figure is framed."
        return Figure(title, note, [_map(scaled)], wide=True)
    note = "Each line is a setting. A stronger colour is better. The thick line has the best figure."
    return Figure(title, note, [_parallel(scaled)], wide=True)


def _map(scaled: Scaled) -> Grid:
    """Lay the values of the first key downwards, those of the second to the right."""
    found = {one.settings: one for one in scaled.points}
    down, right = (ordered([one.settings[nth] for one in scaled.points]) for nth in (0, 1))
    rows = [(row, [_cell(scaled, found.get((row, column))) for column in right]) for row in down]
    return Grid(" / ".join(scaled.keys), right, rows)


def _cell(scaled: Scaled, one: Tried | None) -> tuple[str, int | None, bool, str]:
    if one is None:
        return "–", None, False, ""
    shade = min(int(SHADES * scaled.strength(one)), SHADES - 1)
    return f"{one.name} {scaled.write(scaled.value(one))}".strip(), shade, one.value == scaled.top, one.link


def _parallel(scaled: Scaled) -> Plot:
    """Draw an axis for each key and one for the figure, and a line through them for each run."""
    many = len(scaled.keys)
    axes = [ordered([one.settings[nth] for one in scaled.points]) for nth in range(many)]
    values = [scaled.value(one) for one in scaled.points]
    ends = min(values), max(values)
    marks = [_through(scaled, one, axes, ends) for one in sorted(scaled.points, key=scaled.strength)]
    named = [(nth, _place(word, axis), word) for nth, axis in enumerate(axes) for word in axis]
    named += [(many, up, scaled.write(end)) for up, end in zip((0.0, 1.0), ends, strict=True)]
    words = [(100 * nth / many, 100 - 100 * up, word, False) for nth, up, word in named]
    below = [Place(100 * nth / many, key) for nth, key in enumerate([*scaled.keys, "result"])]
    return Plot("Result of each setting", marks, (WIDE, HIGH), cells=words, ticks=below, high=240)


def _through(scaled: Scaled, one: Tried, axes: Sequence[list[str]], ends: tuple[float, float]) -> Mark:
    """Draw one run's line, from the first key to what came of it."""
    low, high = ends
    ups = [_place(word, axis) for word, axis in zip(one.settings, axes, strict=True)]
    ups.append((scaled.value(one) - low) / (high - low) if high > low else 0.5)
    path = "L".join(f"{WIDE * nth / len(axes):.0f} {HIGH * (1 - up):.1f}" for nth, up in enumerate(ups))
    look = "line best" if one.value == scaled.top else "line test"
    return Mark(look, f"M{path}", scaled.told(one), scaled.strength(one))


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
