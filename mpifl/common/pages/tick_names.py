"""The names or numbers of things that are drawn beside each other or above each other."""

from __future__ import annotations

from collections.abc import Sequence

from mpifl.common.pages.parts import Place

STEPS = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 10**3, 10**4, 10**6)
"""By how many things beside each other are numbered."""
LONGEST, ACROSS, ON_PHONE, BESIDE = 12, 90, 36, 16
"""Characters of a name below a drawing, of all side by side, of those on a phone, and of a name beside it."""


def numbered(many: int) -> list[Place]:
    """Number things beside each other, a dozen of them at most."""
    return across([*map(str, range(many))])


def across(names: Sequence[str]) -> list[Place]:
    """Name things beside each other, as many as have room; on a phone, where there is less, fewer."""
    cut = [short(name, LONGEST) for name in names]
    wide = max(map(len, cut), default=1) + 2
    step, wider = (
        next(step for step in STEPS if len(names) / step <= min(13, max(room // wide, 1)))
        for room in (ACROSS, ON_PHONE)
    )
    return [Place(100 * (nth + 0.5) / len(names), name, nth % (step * -(-wider // step)) > 0)
            for nth, name in enumerate(cut) if nth % step == 0]  # fmt: skip


def named(names: Sequence[str], most: int = 30) -> list[Place]:
    """Name rows above each other, the first at the top; of too many, every so manieth."""
    step = -(-len(names) // most)
    return [Place(100 * (nth + 0.5) / len(names), short(name, BESIDE))
            for nth, name in enumerate(names) if nth % step == 0]  # fmt: skip


def short(name: str, most: int) -> str:
    """Return a name; of a long one both ends, since many names begin alike."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-((most - 1) // 2) :]}"
