"""Rules of columns: functions of all silos' values of one element,
[K, n] -> [n], that a few wild silos cannot move."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mpifl.common import InputError, load_plugin
from mpifl.sums import kernels
from mpifl.wings.robust.weight_rules import tolerated
from mpifl.wire import pieces_of

Columns: TypeAlias = Callable[[Any], Tensor]
"""rows [K, n], float32, finite, in the order of the silos -> [n], float32, finite. Own rules get one tensor.
"""

CACHED = 1 << 18
"""Elements that are sorted at a time: 1 MiB, which stay in the cache through all comparators."""


@dataclass(frozen=True)
class Rule:
    """A rule of columns.

    Attributes:
        name: As the job has it.
        columns: The function.
        least: How many silos it takes at least.
        own: Whether it is the user's.
        edge: How many values of a column lie outside at each end, of so many silos; None where none do.
        share: Which share of the silos that are asked may lie; None where it is a number.
    """

    name: str
    columns: Columns
    least: int = 1
    own: bool = False
    edge: Callable[[int], int] | None = None
    share: float | None = None

    def among(self, asked: int) -> Rule:
        """Return the rule for a round that asks so many silos, where a share of these is a number."""
        return self if self.share is None else rule_of(self.name, tolerated(self.share, asked))

    def needs(self, silos: int) -> str:
        """Say how many silos it takes, as a line that has begun goes on; "" if so many suffice."""
        return f"[aggregation] byzantine = {self.least // 2} takes {self.least}" if silos < self.least else ""

    def __call__(self, rows: Sequence[Tensor]) -> Tensor:
        """Apply the rule to rows of one length, each a silo's slice of columns.

        Raises:
            InputError: it is the user's, and fails or returns what is no result; the line names it.
        """
        if not self.own:
            return self.columns(rows)
        try:
            found = self.columns(torch.stack(list(rows)))
        except Exception as error:
            line = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise InputError(f"[aggregation] rule = '{self.name}' failed: {line}") from None
        if wrong := _wrong(found, len(rows[0])):
            raise InputError(f"[aggregation] rule = '{self.name}' returned {wrong}; {_WANTED}")
        return found

    def outside(self, rows: Sequence[Tensor]) -> list[int] | None:
        """Return in how many columns each row is among the values at the edges; None if there are none."""
        edge = self.edge(len(rows)) if self.edge is not None else 0
        if not edge:
            return None
        ordered = _sorted([row.contiguous() for row in rows])
        low, high = ordered[edge], ordered[len(rows) - 1 - edge]
        return [int(((row < low) | (row > high)).sum()) for row in rows]

    def try_out(self, silos: int) -> None:
        """Apply a rule of the user's to rows of some finite values, to find out at the start whether it can
        be.

        Raises:
            InputError: it cannot.
        """
        if self.own:
            self(torch.linspace(-1, 1, 8 * silos).view(8, silos).T.contiguous().unbind())


_WANTED = "have it take rows [K, n] and return [n], float32 and finite"


def rule_of(name: str, byzantine: float | None, plugin: Any = None) -> Rule:
    """Return the rule of columns that a job names.

    Args:
        name: One of `COLUMN_RULES`, or the user's own function, "package.module:name".
        byzantine: For `trimmed`: how many silos are left out at each end of a column, or which share of them.
        plugin: The user's own, where it is imported already.

    Raises:
        InputError: there is no such rule.
    """
    if name == "median":
        return Rule(name, median, edge=lambda silos: silos // 4)
    if name == "trimmed":
        assert byzantine is not None
        share = byzantine if isinstance(byzantine, float) else None
        least = 1 if share is not None else 2 * int(byzantine) + 1
        edge = functools.partial(tolerated, byzantine)
        trimmed = functools.partial(trimmed_mean, byzantine=byzantine)
        return Rule(name, trimmed, least=least, edge=edge, share=share)
    found = load_plugin(name, "[aggregation] rule", COLUMN_RULES) if plugin is None else plugin
    if not callable(found) or inspect.isclass(found):
        raise InputError(f"[aggregation] rule = '{name}': is no function; {_WANTED}")
    return Rule(name, found, own=True)


def median(rows: Sequence[Tensor]) -> Tensor:
    """Return the median of each column; of an even number of rows the mean, in float64, of the two in the
    middle.

    Coordinate-wise median (Yin et al. 2018, "Byzantine-Robust Distributed Learning", Algorithm 1, option I).
    """
    silos = len(rows)
    return _mean_between(rows, (silos - 1) // 2, silos // 2 + 1)


def trimmed_mean(rows: Sequence[Tensor], byzantine: float) -> Tensor:
    """Return the mean of each column without its `byzantine` largest and smallest values, or that share of
    them.

    Coordinate-wise trimmed mean (Yin et al. 2018, Algorithm 1, option II). The sum is in float64, smallest
    first.
    """
    liars = tolerated(byzantine, len(rows))
    return _mean_between(rows, liars, len(rows) - liars)


COLUMN_RULES: dict[str, Callable[..., Tensor]] = {"median": median, "trimmed": trimmed_mean}
"""The rules of columns that ship."""


def _mean_between(rows: Sequence[Tensor], first: int, last: int) -> Tensor:
    """Return the mean over ranks first, ..., last - 1 of each column's sorted values;
    zeros are never negative."""
    if len(rows) <= kernels.ROWS:
        found = kernels.between(rows, _comparators(len(rows)), first, last)
        if found is not None:
            return found
    found = torch.empty(len(rows[0]))
    for where in pieces_of(len(found), max(CACHED // len(rows), 64)):
        total = torch.zeros(len(found[where]), dtype=torch.float64)
        for row in _sorted([row[where] for row in rows])[first:last]:
            total.add_(row)
        found[where] = total.div_(last - first)
    return found.add_(0.0)


@functools.cache
def _comparators(wires: int) -> Tensor:
    return torch.tensor(network(wires), dtype=torch.int32)


def _sorted(rows: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return rows such that every column is in ascending order."""
    if len(rows) > kernels.ROWS:
        return torch.stack(list(rows)).sort(dim=0).values.unbind()
    ordered = [row.clone() for row in rows]
    larger = torch.empty_like(ordered[0])
    for low, high in network(len(rows)):
        torch.maximum(ordered[low], ordered[high], out=larger)
        torch.minimum(ordered[low], ordered[high], out=ordered[low])
        larger, ordered[high] = ordered[high], larger
    return ordered


@functools.cache
def network(wires: int) -> list[tuple[int, int]]:
    """Return the comparators (low, high) that sort so many values: Batcher's merge exchange.

    Knuth, The Art of Computer Programming, volume 3, section 5.2.2, Algorithm M.
    """
    comparators = []
    top = 1 << max((wires - 1).bit_length() - 1, 0)
    p = top
    while p and wires > 1:
        q, r, d = top, 0, p
        while True:
            comparators += [(i, i + d) for i in range(wires - d) if i & p == r]
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2
    return comparators


def _wrong(found: object, length: int) -> str:
    """Say what a rule of the user's returned in place of a result; nothing if it is one."""
    if not isinstance(found, Tensor):
        return "None" if found is None else f"a {type(found).__name__}"
    if tuple(found.shape) != (length,):
        return f"a tensor of shape {list(found.shape)} for {length} columns"
    if found.dtype != torch.float32:
        return str(found.dtype)
    return "" if bool(found.isfinite().all()) else "NaN or Inf"
