"""The colour of a group of runs: one on a page and in a picture, whatever order its runs come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpifl.common.pages import charts
from mpifl.report.runs import Group, standings_of_groups

COLOURS = ("#0b5cad", "#c25700", "#00876c", "#8e44ad", "#a08000", "#5d6d7e")
"""Of charts.COLOURS, as page.css has them on a light page."""
STYLES = ("-", "--", ":", "-.")
CYCLE = 3
"""Neighbours on a page differ by their dashes, too, which repeat after so many."""


class GroupLook(NamedTuple):
    """How a group is drawn: its place from the best on, its class on a page, and its line in a picture."""

    rank: int
    page: str
    colour: str
    style: str


def group_looks(found: Sequence[Group]) -> list[GroupLook]:
    """Return how each group is drawn, by rank: the best by mean first, those without a figure last."""
    ranks = {id(one.group): nth for nth, one in enumerate(standings_of_groups(found))}
    for group in found:
        ranks.setdefault(id(group), len(ranks))
    return [_look(ranks[id(group)]) for group in found]


def _look(rank: int) -> GroupLook:
    turn, nth = divmod(rank, len(COLOURS))
    return GroupLook(rank, charts.COLOURS[nth], COLOURS[nth], STYLES[(nth % CYCLE + turn) % len(STYLES)])
