"""Privacy budgets that must all hold, such as the job's and the site's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mpifl.wings.privacy.accountant import Steps, affordable, epsilon_of

Limit = tuple[float, float]
"""(epsilon, delta)."""


class Budgets:
    """Budgets that must all hold.

    Args:
        limits: The (epsilon, delta) of each budget.
        accountant: "pld" or "rdp".
        owners: Whose each budget is, for messages, such as "the job's ".
    """

    def __init__(self, limits: Sequence[Limit], accountant: str, owners: Sequence[str] = ()) -> None:
        self._limits, self._accountant = list(limits), accountant
        self._owners = owners or [""] * len(limits)
        self._totals: dict[object, int] = {}
        self._exact: set[object] = set()

    def __str__(self) -> str:
        """Return the budgets as text for messages."""
        return ", ".join(map(_told, self._limits, self._owners))

    def binding(self, spent: Iterable[Steps], more: Steps) -> str:
        """Return the budget that allows the fewest of the steps `more` after `spent`, as text."""
        fewest = self._binding(list(spent), more)
        return _told(self._limits[fewest], self._owners[fewest])

    def _binding(self, before: Sequence[Steps], more: Steps) -> int:
        allowed = [
            affordable(before, more, delta, epsilon, self._accountant) for epsilon, delta in self._limits
        ]
        return allowed.index(min(allowed))

    def refusal(self, spent: Iterable[Steps], more: Steps) -> str:
        """Return why steps that do not fit after `spent` are refused, with the epsilon spent and left."""
        before = list(spent)
        at = self._binding(before, more)
        epsilon, delta = self._limits[at]
        used = epsilon_of(before, delta, self._accountant)
        left = max(epsilon - used, 0.0)
        found = f"{_told(self._limits[at], self._owners[at])} has {left:.3g} left"
        found += f", which allows {self.room(before, more)} of {more.count} more steps"
        return f"its privacy budget is spent: with epsilon {used:.3g} in the site's ledger, {found}"

    def room(self, spent: Iterable[Steps], more: Steps) -> int | None:
        """Return how many of the steps `more` all budgets allow after `spent`; None if there are no budgets.

        Runs ask for the same kind of steps again and again, so results for a kind are kept.
        """
        if not self._limits:
            return None
        counts = Counter[tuple[float, float]]()
        for steps in spent:
            counts[steps.noise, steps.rate] += steps.count
        own = counts.pop((more.noise, more.rate), 0)
        key = (tuple(sorted(counts.items())), more.noise, more.rate)
        if own + more.count > self._totals.get(key, 0) and key not in self._exact:
            before = [Steps(*kind, count) for kind, count in counts.items()]
            before += [Steps(more.noise, more.rate, own)]
            found = min(
                affordable(before, more, delta, epsilon, self._accountant) for epsilon, delta in self._limits
            )
            self._totals[key] = own + found
            if found < more.count:
                self._exact.add(key)
        return max(min(self._totals[key] - own, more.count), 0)


def _told(limit: Limit, owner: str) -> str:
    return f"{owner}epsilon {limit[0]:g} at delta {limit[1]:g}"
