"""Numbers within one site's column that may be mistakes: a few far from all others, or two units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.dataset.likely_codes import CODES, NEAR, REPEATED
from data_prep.dataset.other_units import BY_SITE, MOST_NAMED, in_units, numbers_and_days
from data_prep.dataset.spreads import ENOUGH, KNOWN, Spread, known_factor
from mpifl.data.shards import FederationSpec, ShardEntry, open_shard, provenance_of

FAR, GAP = 6.0, 3.0
"""How many times as far as the quartiles lie apart a number lies from the median, and from all others."""
FEW, DIFFERENT = 0.01, 5
"""The share of numbers that may be mistakes, and how many different ones each of two units has."""
MOST_ROWS, MOST_SILOS = 1 << 16, 64
"""Rows of a silo that are looked at, evenly spaced, and silos."""


class Odd(NamedTuple):
    """Numbers that may be mistakes: the place of the first one, how many there are, and why."""

    first: int
    times: int
    why: str


def odd_among(name: str, values: np.ndarray, since: date | None = None) -> Odd | None:
    """Return which numbers of a site's column may be mistakes; None if none is.

    Up to 1 % of the numbers lie far from the median and from all others, by the distance of the quartiles.
    Positive ones do so on the log scale, too, so that skewed columns have none. Or the numbers are of two
    clusters whose quartiles differ by the factor of two units that a column of this name may have. Codes
    for a missing value do not count.

    Args:
        name: The column.
        values: Its numbers [n], none of which is missing.
        since: Of dates, the day that is 0.
    """
    of = np.flatnonzero(~_coded(values) if since is None else np.ones(len(values), bool))
    known = values[of]
    if len(known) < ENOUGH:
        return None
    far = _is_far(known) if since is None else _beyond(known)
    if 0 < far.sum() <= max(1, FEW * len(known)):
        rest = known[~far]
        lie = f"from {written(rest.min(), since)} to {written(rest.max(), since)}"
        why = f"far from all others, which lie {lie}; is it a mistake, or in another unit?"
        return Odd(int(of[np.argmax(far)]), int(far.sum()), why)
    units = _in_two_units(name, known) if since is None else None
    return units and units._replace(first=int(of[units.first]))


def _coded(values: np.ndarray) -> np.ndarray:
    """Return which numbers are codes for a missing value that occur several times, bool [n]: `codes_told` has
    them."""
    found = np.zeros(len(values), bool)
    for code in CODES:
        if (same := np.abs(values - code) < NEAR).sum() >= REPEATED:
            found |= same
    return found


def _is_far(values: np.ndarray) -> np.ndarray:
    """Return which numbers lie far from all others, bool [n]."""
    far = _beyond(values)
    if (positive := values > 0).mean() < 1 - FEW:
        return far & (values < 0) & (np.mean(values < 0) <= FEW)
    by_logs = np.zeros(len(values), bool)
    by_logs[positive] = _beyond(np.log(values[positive]))
    return far & (by_logs | (values < 0))


def _beyond(values: np.ndarray) -> np.ndarray:
    """Return which numbers lie far from the median, behind a gap in which there is none, bool [n]."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    width = high - low
    if not width > 0:
        return np.zeros(len(values), bool)
    near = np.sort(values)
    gaps = np.flatnonzero(np.diff(near) > GAP * width)
    below = [near[at] for at in gaps if near[at] < middle - FAR * width]
    above = [near[at + 1] for at in gaps if near[at + 1] > middle + FAR * width]
    return np.asarray((values <= max(below, default=-np.inf)) | (values >= min(above, default=np.inf)))


def _in_two_units(name: str, values: np.ndarray) -> Odd | None:
    """Return the smaller one of two clusters that differ by the factor of two units; None without such."""
    near = np.unique(values)
    if near[0] <= 0 or len(near) < 2 * DIFFERENT:
        return None
    at = int(np.argmax(np.diff(np.log(near)))) + 1
    clusters = [values[values < near[at]], values[values >= near[at]]]
    if min(at, len(near) - at) < DIFFERENT or min(map(len, clusters)) < ENOUGH:
        return None
    low, high = (Spread.of("", cluster) for cluster in clusters)
    widest = max(np.log(one.high / one.low) for one in (low, high))
    if np.log(near[at] / near[at - 1]) <= widest or not (unit := known_factor(low, high, name)):
        return None
    fewer = values >= near[at] if len(clusters[1]) <= len(clusters[0]) else values < near[at]
    why = f"apart from the others by a factor of about {KNOWN[unit]:g}, as of {unit}"
    return Odd(int(np.argmax(fewer)), int(fewer.sum()), f"{why}; are there two units?")


def odd_told(folder: Path, spec: FederationSpec) -> list[str]:
    """Return a line for each column of a site in which numbers or dates may be mistakes, by `odd_among`.

    Raises:
        ShardError: a shard cannot be read.
    """
    columns = numbers_and_days(spec) if spec.scheme.get("name") in BY_SITE else {}
    told = [
        line
        for entry in spec.silos[:MOST_SILOS]
        if columns
        for line in _of_silo(folder, entry, spec, columns)
    ]
    more = [f"{len(told) - MOST_NAMED:,} more columns have numbers far from all others, or in two units"]
    return told[:MOST_NAMED] + (more if len(told) > MOST_NAMED else [])


def _of_silo(
    folder: Path, entry: ShardEntry, spec: FederationSpec, columns: Mapping[int, tuple[str, date | None]]
) -> Iterator[str]:
    """Yield a line for each column of a silo, by the rows of all its splits."""
    shard, names = open_shard(folder, entry, spec, checksum=False), [name for name, _ in columns.values()]
    parts, places = list[np.ndarray](), list[tuple[str, int]]()
    for split, of in shard.splits.items():
        if not isinstance(x := of.arrays["x"], np.ndarray):
            return
        step = -(-len(x) // MOST_ROWS) or 1
        parts.append(np.asarray(x[::step][:, [*columns]], np.float64))
        places += [(split, at) for at in range(0, len(x), step)]
    rows = in_units(np.concatenate(parts), spec, names)
    for values, (name, since) in zip(rows.T, columns.values(), strict=True):
        if np.isfinite(values).all() and (odd := odd_among(name, values, since)):
            where = _place(folder, entry, *places[odd.first])
            yield told_of_odd(entry.name, name, odd, f"{written(values[odd.first], since)}{where}")


def told_of_odd(site: str, name: str, odd: Odd, first: str) -> str:
    """Say which numbers of a site's column may be mistakes; the `first` one has its place."""
    more = f" and {odd.times - 1:,} more" if odd.times > 1 else ""
    return f"{site}: {name} is {first}{more}, {odd.why}"


def written(number: float, since: date | None) -> str:
    """Return a number, or the date of days since another, as a line shows it."""
    return f"{number:.5g}" if since is None else str(since + timedelta(days=round(float(number))))


def _place(folder: Path, entry: ShardEntry, split: str, at: int) -> str:
    """Return the row of a silo's data in which an example was given, counted from 1; "" if not known."""
    given = provenance_of(folder, entry).get(split)
    return f" (row {int(given.rows[at]) + 1:,})" if given is not None and given.rows is not None else ""
