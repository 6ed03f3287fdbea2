"""What a silo may spend: the job's budget, and its site's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mpifl.wings.privacy.accountant import Steps, affordable

Limit = tuple[float, float]
"""(epsilon, delta)."""


class Budgets:
    """Some budgets, all of which hold.

    Args:
        limits: Each (epsilon, delta).
        accountant: How they are counted.
    """

    def __init__(self, limits: Sequence[Limit], accountant: str) -> None:
        self._limits, self._accountant = list(limits), accountant
        self._totals: dict[object, int] = {}
        self._exact: set[object] = set()

    def __str__(self) -> str:
        """Name them."""
        return ", ".join(f"epsilon {epsilon:g} at delta {delta:g}" for epsilon, delta in self._limits)

    def room(self, spent: Iterable[Steps], more: Steps) -> int | None:
        """Return how many of some more steps all budgets allow after those spent; None where there is none.

        Runs ask for one kind of steps again and again, so what is known of a kind is kept.
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
