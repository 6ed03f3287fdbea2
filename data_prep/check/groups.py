"""Groups that are in two splits or at two silos, by the numbers that shards keep of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_prep.check.duplicates import MOST_PAIRS
from mpifl.common import ShardError
from mpifl.data.shards import FederationSpec, ShardEntry, VerticalEntry, groups_of


class ExamplePlace(NamedTuple):
    """Where examples lie."""

    file: str
    split: str


class Parted(NamedTuple):
    """Groups that are in two places: in which file, and what was found."""

    file: str
    what: str


def parted(folder: Path, spec: FederationSpec) -> Iterator[Parted]:
    """Yield the groups of a folder that are not whole, by pairs of places, and shards that cannot be asked.

    Sites that imported their own data number their groups each for itself: there one shard is looked at by
    itself.
    """
    entries = [one for one in (*spec.silos, spec.test, spec.public) if one and (folder / one.file).exists()]
    found: dict[ExamplePlace, np.ndarray] = {}
    for entry in entries:
        try:
            found |= places_of(folder, entry)
        except ShardError as error:
            yield Parted(entry.file, str(error).removeprefix(f"{folder / entry.file}: "))
    if numbered_by_sites(spec):
        for entry in entries:
            yield from in_two({place: of for place, of in found.items() if place.file == entry.file})
    else:
        yield from in_two(found)


def places_of(folder: Path, entry: ShardEntry | VerticalEntry) -> dict[ExamplePlace, np.ndarray]:
    """Return the groups of each split of a shard, by their numbers, each once."""
    groups = groups_of(folder, entry)
    return {ExamplePlace(entry.file, split): np.unique(numbers) for split, numbers in groups.items()}


def in_two(groups: Mapping[ExamplePlace, np.ndarray]) -> Iterator[Parted]:
    """Yield what groups are in two places, given by the numbers in each."""
    places = list(groups)
    numbers = np.concatenate([np.zeros(0, np.int64), *groups.values()])
    of = np.repeat(np.arange(len(places)), [len(groups[place]) for place in places])
    order = np.argsort(numbers, kind="stable")
    numbers, of = numbers[order], of[order]
    again = np.flatnonzero(numbers[1:] == numbers[:-1])
    pairs = Counter(zip(of[again].tolist(), of[again + 1].tolist(), strict=True))
    for (first, second), count in pairs.most_common(MOST_PAIRS):
        here, there = places[first], places[second]
        where = f"{there.split}, too" if here.file == there.file else f"{there.file}, too ({there.split})"
        told = f"{count:,} group{'s are' if count > 1 else ' is'} in {here.split} and in {where}"
        yield Parted(here.file, f"{told}; partition with --group, which keeps them whole")
    if len(pairs) > MOST_PAIRS:
        yield Parted(places[0].file, f"{len(pairs) - MOST_PAIRS} more pairs of splits have groups in common")


TEXTS = ("text", "jsonl")
"""Sources whose sequences of a text are a group."""


def numbered_by_sites(spec: FederationSpec) -> bool:
    """Tell whether each site has numbered its groups for itself."""
    return spec.scheme.get("name") == "import"


def unseen(spec: FederationSpec) -> Iterator[str]:
    """Say what of groups cannot be seen in a folder, where some of its shards say them."""
    several = [entry for entry in spec.silos if entry.groups is not None]
    if several and len(spec.silos) > 1 and numbered_by_sites(spec):
        yield "each site numbers its own groups: whether one person is at two sites cannot be seen"
    of_texts = spec.source.get("name") in TEXTS  # a silo's only text need not be kept together
    if several and not of_texts and (without := [entry.file for entry in spec.silos if entry.groups is None]):
        more = f" and {len(without) - 1:,} more say" if len(without) > 1 else " says"
        yield f"{without[0]}{more} nothing of groups; import it with whose rows are whose, as the others have"
