"""Rules of columns (median, trimmed mean): functions of all silos' values of one element, [K, n] -> [n]."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mpifl.common import InputError, load_plugin
from mpifl.run.job.tables import BY_COLUMNS
from mpifl.sums import kernels
from mpifl.wings.robust.weight_rules import tolerated
from mpifl.wire import pieces_of

Columns: TypeAlias = Callable[[Any], Tensor]
"""rows [K, n], float32, finite, in the order of the silos -> [n], float32, finite.

A user's rule gets the rows as one tensor, the package's rules get a sequence."""

CACHED = 1 << 18
"""How many elements are sorted at a time: 1 MiB, which stay in the cache for all comparators."""


@dataclass(frozen=True)
class Rule:
    """A rule of columns.

    Attributes:
        name: Its name in the job.
        columns: The function.
        least: The least number of silos that it needs.
        own: Whether it is the user's own rule.
        edge: Returns, for a number of silos, how many values at each end of a column count as outlying; None
            if none do.
        share: Which share of the asked silos may be Byzantine; None if a number is given instead.
    """

    name: str
    columns: Columns
    least: int = 1
    own: bool = False
    edge: Callable[[int], int] | None = None
    share: float | None = None

    def among(self, asked: int) -> Rule:
        """Return the rule for a round that asks so many silos: a share becomes a number."""
        return self if self.share is None else rule_of(self.name, tolerated(self.share, asked))

    def needs(self, silos: int) -> str:
        """Return the beginning of an error that says how many silos it needs; "" if `silos` are enough."""
        return f"[aggregation] byzantine = {self.least // 2} takes {self.least}" if silos < self.least else ""

    def __call__(self, rows: Sequence[Tensor]) -> Tensor:
        """Apply the rule to rows of one length, each a silo's slice of columns.

        Raises:
            InputError: a user's rule fails, or its result is not valid; the error names the rule.
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
        """Return in how many columns each row's value is outlying; None if the rule has no such values."""
        edge = self.edge(len(rows)) if self.edge is not None else 0
        if not edge:
            return None
        ordered = _sorted([row.contiguous() for row in rows])
        low, high = ordered[edge], ordered[len(rows) - 1 - edge]
        return [int(((row < low) | (row > high)).sum()) for row in rows]

    def try_out(self, silos: int) -> None:
        """Apply a user's rule to rows of finite values at the start, to see whether it works.

        Raises:
            InputError: it does not.
        """
        if self.own:
            self(torch.linspace(-1, 1, 8 * silos).view(8, silos).T.contiguous().unbind())


_WANTED = "have it take rows [K, n] and return [n], float32 and finite"


def rule_of(name: str, byzantine: float | None, plugin: Any = None) -> Rule:
    """Return the rule of columns that a job names.

    Args:
        name: One of `COLUMN_RULES`, or the user's own function, "package.module:name".
        byzantine: For a rule that tolerates: the number or the share of silos that may be Byzantine.
        plugin: The user's own function, if it is imported already.

    Raises:
        InputError: there is no such rule.
    """
    if name not in BY_COLUMNS:
        return _own_rule(name, plugin)
    edge = functools.partial(_EDGES[name], byzantine) if name in _EDGES else None
    if not BY_COLUMNS[name].tolerates:
        return Rule(name, COLUMN_RULES[name], edge=edge)
    assert byzantine is not None  # the table of rules asks for it
    columns = functools.partial(COLUMN_RULES[name], byzantine=byzantine)
    if isinstance(byzantine, float):
        return Rule(name, columns, edge=edge, share=byzantine)
    return Rule(name, columns, least=2 * int(byzantine) + 1, edge=edge)


def _own_rule(name: str, plugin: Any) -> Rule:
    found = load_plugin(name, "[aggregation] rule", COLUMN_RULES) if plugin is None else plugin
    if not callable(found) or inspect.isclass(found):
        raise InputError(f"[aggregation] rule = '{name}': is not a function; {_WANTED}")
    return Rule(name, found, own=True)


def median(rows: Sequence[Tensor]) -> Tensor:
    """Return the median of each column. For an even number of rows it is the mean of the two in the middle.

    This mean is computed in float64.

    Coordinate-wise median (Yin et al. 2018, "Byzantine-Robust Distributed Learning", Algorithm 1, option I).
    """
    silos = len(rows)
    return _mean_between(rows, (silos - 1) // 2, silos // 2 + 1)


def trimmed_mean(rows: Sequence[Tensor], byzantine: float) -> Tensor:
    """Return the mean of each column without its `byzantine` (number or share) largest and smallest values.

    Coordinate-wise trimmed mean (Yin et al. 2018, Algorithm 1, option II). The sum is in float64, smallest
    first.
    """
    liars = tolerated(byzantine, len(rows))
    return _mean_between(rows, liars, len(rows) - liars)


COLUMN_RULES: dict[str, Callable[..., Tensor]] = {"median": median, "trimmed": trimmed_mean}
"""The package's rules of columns. One that tolerates (`BY_COLUMNS`) takes `byzantine`."""
_EDGES: dict[str, Callable[[Any, int], int]] = {
    "median": lambda byzantine, silos: silos // 4,
    "trimmed": tolerated,
}
"""How many values at each end of a column count as outlying, given `byzantine` and the number of silos; a
rule that is not here has no such values."""


def _mean_between(rows: Sequence[Tensor], first: int, last: int) -> Tensor:
    """Return the mean of each column's sorted values first, ..., last - 1; a zero is never negative."""
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
    """Return the rows with every column sorted in ascending order."""
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
    """Return the comparators (low, high) that sort `wires` values: Batcher's merge exchange.

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
    """Return what a user's rule returned instead of a valid result; "" if the result is valid."""
    if not isinstance(found, Tensor):
        return "None" if found is None else f"a {type(found).__name__}"
    if tuple(found.shape) != (length,):
        return f"a tensor of shape {list(found.shape)} for {length} columns"
    if found.dtype != torch.float32:
        return str(found.dtype)
    return "" if bool(found.isfinite().all()) else "NaN or Inf"
