"""The scheme that leaves every example where it came from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_prep.dataset import Cut, Dataset
from data_prep.schemes.grouping import by_owner
from data_prep.schemes.scheme import Options, Scheme, check_smallest, column_of
from mpifl.common import InputError, did_you_mean, one_line

MOST_NAMED = 8
"""Silos of the data in a line."""


def natural(ids: np.ndarray, silos: int | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Give every distinct id its own silo, in the order of the ids; fewer `silos` are dealt whole ids, drawn,
    as many each but for one."""
    distinct, owners = np.unique(ids, return_inverse=True)
    if silos is not None and not 1 <= silos <= len(distinct):
        raise InputError(
            f"--silos: {silos} given, but the data names {len(distinct)}; leave it out, or ask for fewer"
        )
    if silos is None or silos == len(distinct):
        return by_owner(owners, len(distinct))
    hand = np.empty(len(distinct), np.int64)
    for silo, dealt in enumerate(np.array_split(rng.permutation(len(distinct)), silos)):
        hand[dealt] = silo
    return by_owner(hand[owners], silos)


@dataclass(frozen=True)
class Natural(Scheme):
    """Leave every example in the silo that it comes from; `merge` says which of these are one silo."""

    @property
    def options(self) -> dict[str, Any]:
        """Return the scheme's options with their defaults."""
        return {"merge": "", "min_examples": 1}

    def __call__(self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options) -> Cut:
        """Cut by the silos of the data, those of `north+east,south+west` together, and others each alone."""
        if not options.get("merge"):
            cut = super().__call__(data, silos, rng, options)
            if silos is not None and len(there := _names(data, np.unique(column_of(data, self)))) > silos:
                print(f"warning: {one_line(_dealt(there, silos))}", file=sys.stderr)
            return cut
        if silos is not None:
            both = f"it says which silos there are, and --silos {silos}"
            raise InputError(f"--merge: {both}; give only one of them")
        ids = column_of(data, self)
        numbers, owners = np.unique(ids, return_inverse=True)
        names = _names(data, numbers)
        merged = _merged(options["merge"], names)
        hand = {name: silo for silo, group in enumerate(merged) for name in group}
        parts = by_owner(np.array([hand[name] for name in names])[owners], len(merged))
        check_smallest(parts, options["min_examples"])
        return Cut(parts, ["+".join(group) for group in merged])


def _names(data: Dataset, numbers: np.ndarray) -> list[str]:
    """Return the names of silos by their numbers in the data."""
    return [(data.silo_names or {}).get(number, str(number)) for number in numbers.tolist()]


def _dealt(names: Sequence[str], silos: int) -> str:
    """Say that a number of silos joins those of the data, and takes their names."""
    listed = ", ".join([*names[:MOST_NAMED], *(["..."] if len(names) > MOST_NAMED else [])])
    what = f"--silos {silos}: the {len(names):,} silos of the data ({listed}) are dealt to {silos}"
    kept = f"leave --silos out to keep each; --merge {'+'.join(names[:2])} joins those that you name"
    return f"{what}, and silos that are joined lose their names; {kept}"


def _merged(text: str, names: list[str]) -> list[list[str]]:
    """Return the names of each silo: those that are merged, and then the others in their order."""
    groups = [[name.strip() for name in group.split("+")] for group in text.split(",")]
    named = [name for group in groups for name in group]
    for name in named:
        if name not in names or named.count(name) > 1:
            there = f"{did_you_mean(name, names)}the silos are {', '.join(names)[:200]}"
            raise InputError(f"--merge: '{name}' is {'there twice' if name in names else 'none'}; {there}")
    return [*groups, *([name] for name in names if name not in named)]
