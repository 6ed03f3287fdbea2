"""What is not told since it is of few persons, and what more is not, so that nobody finds it by subtraction
(Hundepool et al. 2012, "Statistical Disclosure Control", chapter 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def withheld(counts: Sequence[int], least: int) -> set[int]:
    """Return the places of the counts of a table that are not told, where their total is known.

    These are the counts from 1 to `least` - 1, and so many of the next larger ones that each may be anything
    from 1 to `least`, as far as their sum tells. An empty cell is told, so each is 1 or more.
    """
    found = {nth for nth, count in enumerate(counts) if 0 < count < least}
    others = sorted((count, nth) for nth, count in enumerate(counts) if count >= least)
    for _, nth in others if found else ():
        if sum(counts[one] - 1 for one in found) < least - 1:
            found.add(nth)
    return found


def kept_edges(below: Sequence[int], told: Iterable[int], rows: int, least: int) -> list[int]:
    """Return the places of the edges of a histogram that may be told.

    Below and above each lie `least` rows or more. So do they between two of them, and between one of them and
    a quantile that is told, or none lie there.

    Args:
        below: How many rows lie below each edge, in order.
        told: How many rows lie below each quantile that is told, and how many up to it.
        rows: How many rows there are.
    """
    kept, places = list[int](), set(told)
    for nth, count in enumerate(below):
        apart = all(count == place or abs(count - place) >= least for place in places)
        if apart and least <= count <= rows - least:
            kept.append(nth)
            places.add(count)
    return kept
