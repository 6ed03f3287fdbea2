"""What came of a grid of settings: a map of two keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mpifl.common.pages import Figure, Grid

FAINT = 0.08
"""How strong the colour of the worst is."""
SHADES = 5


class Tried(NamedTuple):
    """A point of the grid: its settings in the order of the keys, what came of it, where its page lies."""

    settings: tuple[str, ...]
    value: float
    link: str = ""


def grid(
    keys: Sequence[str],
    tried: Sequence[Tried],
    title: str,
    write: Callable[[float], str],
    best: Callable[..., float],
) -> Figure | None:
    """Draw settings of two keys by what they are judged by; None of other numbers of keys, or of one value.

    The first key goes down, the second to the right.
    """
    if len(keys) != 2 or len(tried) < 2:
        return None
    found, top = {one.settings: one for one in tried}, best(one.value for one in tried)
    widest = max(abs(one.value - top) for one in tried) or 1.0

    def cell(one: Tried | None) -> tuple[str, int | None, bool, str]:
        if one is None:
            return "–", None, False, ""
        strength = 1 - (1 - FAINT) * abs(one.value - top) / widest
        return write(one.value), min(int(SHADES * strength), SHADES - 1), one.value == top, one.link

    down, right = (ordered([one.settings[nth] for one in tried]) for nth in (0, 1))
    rows = [(row, [cell(found.get((row, column))) for column in right]) for row in down]
    note = "A stronger colour is better. The best is framed."
    return Figure(f"{title} by {' and '.join(keys)}", note, [Grid(" / ".join(keys), right, rows)], wide=True)


def ordered(words: Sequence[str]) -> list[str]:
    """Return settings each once: numbers by size, then words as they came."""
    unique = list(dict.fromkeys(words))

    def size(word: str) -> tuple[int, float]:
        try:
            return 0, float(word)
        except ValueError:
            return 1, unique.index(word)

    return sorted(unique, key=size)
