"""Curves in a terminal, of braille characters: two dots wide and four high each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

WIDE, HIGH = 2, 4
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a character, by row and column, above U+2800 (Unicode 15, section 21.1)."""
Point = tuple[float, float]


def canvas(points: Sequence[Point | None], width: int, height: int) -> list[str]:
    """Draw a line through points in the unit square; None breaks it.

    Args:
        points: (x, y) from 0 to 1 from the lower left, in the order of x.
        width, height: Characters.

    Returns:
        A string of `width` for each row from the top; blanks where nothing is drawn.
    """
    cells = [[0] * width for _ in range(height)]
    most_x, most_y = WIDE * width - 1, HIGH * height - 1
    placed = [None if p is None else (round(p[0] * most_x), round((1 - p[1]) * most_y)) for p in points]
    for one, other in pairwise([*placed, None]):
        for x, y in _between(one, other) if one is not None else ():
            if 0 <= x <= most_x and 0 <= y <= most_y:
                cells[y // HIGH][x // WIDE] |= DOTS[y % HIGH][x % WIDE]
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in cells]


def _between(one: tuple[int, int], other: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Return the dots of a straight line, the first with it; a point before a gap is a dot."""
    if other is None:
        return [one]
    (x, y), (to_x, to_y) = one, other
    steps = max(abs(to_x - x), abs(to_y - y), 1)
    return [(round(x + (to_x - x) * n / steps), round(y + (to_y - y) * n / steps)) for n in range(steps + 1)]
