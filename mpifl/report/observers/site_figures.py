"""What a round's record says of sites: letters and bytes of each, which were away, and whose late sum
counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpifl.common import count_of
from mpifl.run.folder import number

MOST_SITES = 4096


def sites_of(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what a record says of each site, by the site's name; {} of a training without sites."""
    told = record.get("sites")
    found = [*told.items()][:MOST_SITES] if isinstance(told, Mapping) else []
    return {_plain(name): one for name, one in found if isinstance(one, Mapping)}


def away_in(record: Mapping[str, Any]) -> dict[str, str]:
    """Return since when each site is away that did not answer, by the site's name."""
    return {
        name: str(one["away_since"])[:40] for name, one in sites_of(record).items() if "away_since" in one
    }


def sites_said(record: Mapping[str, Any]) -> list[str]:
    """Return what the console says of sites in a round: how many, their letters, who is away, and whose late
    sum counts."""
    if not (sites := sites_of(record)):
        return []
    total = {
        name: sum(number(one, name) or 0 for one in sites.values())
        for name in ("letters_sent", "letters_received", "bytes_sent", "bytes_received")
    }
    letters = f"{total['letters_sent']:.0f} letters down, {total['letters_received']:.0f} up"
    size = f"{total['bytes_sent'] / 1000:,.0f} and {total['bytes_received'] / 1000:,.0f} kB"
    away = [f"{name} away since {since}" for name, since in away_in(record).items()]
    late = [
        f"{name}'s sum of round {of:.0f} counts {number(one, 'late_weight') or 0:.2f} times"
        for name, one in sites.items()
        if (of := number(one, "late_round")) is not None
    ]
    return [f"{count_of(len(sites), 'site')} ({letters}, {size})", *away, *late]


def _plain(text: object) -> str:
    """Return a text of a stranger's record as a terminal can show it."""
    return "".join(letter for letter in str(text)[:64] if letter.isprintable())
