"""Groups of ranks with the same property, and their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from mpifl.cli.doctor.condition import Condition

Conditions = Sequence[Condition]
Key = TypeVar("Key")


def grouped(conditions: Conditions, key: Callable[[Condition], Key]) -> dict[Key, list[Condition]]:
    """Return the conditions grouped by a key."""
    groups: defaultdict[Key, list[Condition]] = defaultdict(list)
    for condition in conditions:
        groups[key(condition)].append(condition)
    return dict(groups)


def differing(groups: Mapping[Any, Conditions]) -> str:
    """Return a text with the ranks and the key of each group."""
    return "; ".join(f"{named([c.rank for c in alike])}: {what}" for what, alike in groups.items())


def named(given: Sequence[int]) -> str:
    """Return `rank 3` or `ranks 0-2,5`."""
    return f"rank{'s' * (len(given) > 1)} {numbers(given)}"


def numbers(given: Sequence[int]) -> str:
    """Return ascending numbers as text with ranges: 0-3,5."""
    runs: list[list[int]] = []
    for number in given:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
