"""The curves of groups of runs, over rounds, bytes and seconds, and the colour of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from mpifl.common.pages import charts
from mpifl.report.runs import Group, Summary, standings_of_groups
from mpifl.run.folder import number

AXES = (("round", 0), ("MB between server and silos", 1), ("seconds", 2), ("virtual seconds", 3))
COLOURS = ("#0b5cad", "#c25700", "#00876c", "#8e44ad", "#a08000", "#5d6d7e")
"""Of charts.COLOURS, as page.css has them on a light page."""
PALETTE = (*COLOURS, "#e0409a", "#38a8e8", "#7ab51d", "#7a3b12", "#111111")
"""Of the lines of a picture; pages have at most as many lines as COLOURS."""
STYLES = ("-", "--", ":", "-.")
SAME = 0.01
"""The share of a panel by which curves that lie on each other differ at most."""
CYCLE = 3
"""Neighbours on a page differ by their dashes, too, which repeat after so many."""


PER_CENT = 100.0
"""The scale of a share."""


@dataclass(frozen=True)
class Curve:
    """One figure of a group of runs, where all of them have it: means over the runs, and the deviation."""

    at: np.ndarray
    """[4, n]: the round, and the MB, seconds and virtual seconds until its end; NaN if not known."""
    mean: np.ndarray
    deviation: np.ndarray

    def band(self, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the band of one deviation; a share, whose scale is 100, stays from 0 to 100."""
        ends = self.mean - self.deviation, self.mean + self.deviation
        low, high = (np.clip(end, 0, PER_CENT) if scale == PER_CENT else end for end in ends)
        return low, high


def curve(group: Group, figure: str, scale: float = 1.0) -> Curve | None:
    """Return a figure of a group over its rounds; None where no round has it in all runs."""
    each = [_points(run, figure) for run in group.runs]
    rounds = sorted(set.intersection(*(set(points) for points in each)))
    if not rounds:
        return None
    found = np.array([[points[round] for round in rounds] for points in each])  # [runs, n, 5]
    values = scale * found[..., -1]
    deviation = values.std(axis=0, ddof=1) if len(each) > 1 else np.zeros(len(rounds))
    return Curve(found[..., :-1].mean(axis=0).T, values.mean(axis=0), deviation)


def _points(run: Summary, figure: str) -> dict[int, tuple[float, ...]]:
    known = math.nan if run.missing else 0.0  # sums that lack rounds are not drawn
    sent = accumulate(
        known + (number(r, "bytes_sent") or 0) + (number(r, "bytes_received") or 0) for r in run.records
    )
    seconds = accumulate(known + (number(r, "seconds") or 0) for r in run.records)
    clocks = (number(r, "virtual_seconds") for r in run.records)
    together = zip(run.records, sent, seconds, clocks, strict=True)
    return {
        record["round"]: (
            float(record["round"]),
            megabytes / 1e6,
            until,
            math.nan if clock is None else clock,
            value,
        )
        for record, megabytes, until, clock in together
        if (value := number(record, figure)) is not None
    }


def lie_above(curves: Sequence[Curve | None], which: int) -> list[list[int]]:
    """Return for each curve which later ones lie on it over one of AXES, and would hide it."""
    there = [one for one in curves if one is not None]
    spans = [float(np.ptp(np.concatenate(of))) if of else 0.0
             for of in ([one.at[which] for one in there], [one.mean for one in there])]  # fmt: skip

    def on(one: Curve | None, other: Curve | None) -> bool:
        if one is None or other is None or one.mean.shape != other.mean.shape:
            return False
        each = ((one.at[which], other.at[which]), (one.mean, other.mean))
        return all((abs(a - b) <= SAME * span).all() for (a, b), span in zip(each, spans, strict=True))

    return [
        [nth for nth in range(first + 1, len(curves)) if on(one, curves[nth])]
        for first, one in enumerate(curves)
    ]


def lying(names: Sequence[str], above: Sequence[Sequence[int]]) -> str:
    """Say which lines lie on each other, by `lie_above`."""
    each = ((names[at], names[of[0]]) for at, of in enumerate(above) if of)
    return "".join(f" {one} and {other} lie on each other." for one, other in each)


class GroupLook(NamedTuple):
    """How a group is drawn: its place from the best on, its class on a page, and its line in a picture."""

    rank: int
    page: str
    colour: str
    style: str


def group_looks(found: Sequence[Group]) -> list[GroupLook]:
    """Return how each group is drawn, by rank: the best by mean first, those without a figure last."""
    standings = standings_of_groups(found)
    ranked = {run.run: nth for nth, one in enumerate(standings) for run in one.group.runs}
    looks, rest = list[GroupLook](), len(standings)
    for group in found:
        rank = next((ranked[run.run] for run in group.runs if run.run in ranked), rest)
        rest += rank == rest
        looks.append(_look(rank))
    return looks


def _look(rank: int) -> GroupLook:
    turn, nth = divmod(rank, len(PALETTE))
    page = charts.COLOURS[rank % len(COLOURS)]
    return GroupLook(rank, page, PALETTE[nth], STYLES[(nth % CYCLE + turn) % len(STYLES)])
