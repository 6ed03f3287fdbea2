"""Placement of silos on ranks: by size at first, by measured time later; results do not depend on it."""

from __future__ import annotations

import heapq
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence

GAIN, WORTH = 0.05, 0.01
"""Silos move only if the most loaded rank gains at least this share of its load, and these seconds."""


def place(sizes: Sequence[float], workers: Sequence[int]) -> dict[int, list[int]]:
    """Spread silos evenly over workers: each silo, the largest first, goes to the least loaded worker.

    Args:
        sizes: Training examples, or seconds, of silo 0, 1, 2, ...
        workers: The ranks that host silos.

    Returns:
        The silos of each worker, in the order of their ids.
    """
    loads = [(0.0, rank) for rank in workers]
    placed: dict[int, list[int]] = {rank: [] for rank in workers}
    for silo in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        load, rank = heapq.heappop(loads)
        placed[rank].append(silo)
        heapq.heappush(loads, (load + sizes[silo], rank))
    return {rank: sorted(silos) for rank, silos in placed.items()}


def rebalance(
    seconds: Mapping[int, float], placed: Mapping[int, set[int]], bound: Mapping[int, float] | None = None
) -> dict[int, int]:
    """Return which few silos should move, each from the most loaded rank to the least loaded one.

    Args:
        seconds: The seconds of each silo that may move.
        placed: The silos of each rank that may host silos.
        bound: The seconds of each rank's silos that may not move; 0 by default.

    Returns:
        The new rank of each silo that should move; empty if the most loaded rank would gain too little.
    """
    movable = {rank: held & seconds.keys() for rank, held in placed.items()}
    silos = {rank: sorted((seconds[silo], silo) for silo in held) for rank, held in movable.items()}
    loads = {r: sum(cost for cost, _ in held) + (bound or {}).get(r, 0.0) for r, held in silos.items()}
    longest = max(loads.values(), default=0.0)
    assignment = dict(_moves(silos, loads))
    return assignment if loads and max(loads.values()) <= longest - max(GAIN * longest, WORTH) else {}


def _moves(silos: dict[int, list[tuple[float, int]]], loads: dict[int, float]) -> Iterator[tuple[int, int]]:
    """Yield (silo, its new rank) as long as a move is worth it; update `silos` and `loads`.

    A silo moves at most once, so that there are never more moves than silos.
    """
    while loads:
        most, least = max(loads, key=lambda r: (loads[r], -r)), min(loads, key=lambda r: (loads[r], r))
        gap = loads[most] - loads[least]
        nth = _nearest(silos[most], gap / 2)
        worth = gap > GAIN * loads[most]  # False if a load is NaN
        if not worth or nth is None or silos[most][nth][0] >= gap:
            return
        cost, silo = silos[most].pop(nth)
        loads[most] -= cost
        loads[least] += cost
        yield silo, least


def _nearest(held: Sequence[tuple[float, int]], cost: float) -> int | None:
    """Return the index of the silo whose cost is nearest to `cost`; None if there is no silo."""
    nth = bisect(held, (cost, 0))
    around = [i for i in (nth - 1, nth) if 0 <= i < len(held)]
    return min(around, key=lambda i: abs(held[i][0] - cost), default=None)
