"""Labels at the ends of lines, in place of a key."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

APART = 11.0
"""Per cent of a drawing's height that a line of text takes."""
End = tuple[float, str, str]
"""How high a line ends, from 0 to 1, what stands there, and the line's colour."""


def ends(found: Sequence[End]) -> str:
    """Return the labels of some lines, none over another."""
    ordered = sorted(found, key=lambda one: -one[0])
    tops = apart([100 - 100 * up for up, _, _ in ordered], min(APART, 100 / max(len(ordered) - 1, 1)))
    spans = "".join(
        f'<span class="{colour}" style="top:{top:.1f}%">{escape(said)}</span>'
        for top, (_, said, colour) in zip(tops, ordered, strict=True)
    )
    longest = max((said for _, said, _ in ordered), key=len)
    return f'<div class="ends"><span class="room">{escape(longest)}</span>{spans}</div>'


def apart(tops: Sequence[float], gap: float) -> list[float]:
    """Return sorted places from 0 to 100, moved as little as need be to lie a gap apart."""
    found = list(tops)
    for nth in range(1, len(found)):
        found[nth] = max(found[nth], found[nth - 1] + gap)
    for nth in range(len(found) - 1, -1, -1):
        found[nth] = min(found[nth], 100 - gap * (len(found) - 1 - nth))
    return found
