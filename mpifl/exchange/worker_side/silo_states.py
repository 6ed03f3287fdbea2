"""The state that a rank's silos keep for later rounds, and when it becomes final."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from typing import Any

from mpifl.wire import Request


class States:
    """The states of a rank's silos.

    Attributes:
        kept: The final state of each silo.
        pending: The state of each silo that becomes final with a request of a later round.
    """

    def __init__(self) -> None:
        self.kept: dict[int, dict[str, Any]] = {}
        self.pending: dict[int, dict[str, Any]] = {}
        self._arriving: dict[int, dict[str, Any]] = {}
        self._stamp = (0, 0)

    def of(self, silo: int) -> MutableMapping[str, Any]:
        """Return the state that a silo sees: pending values before final ones."""
        return ChainMap(self.pending.get(silo, {}), self.kept.get(silo, {}))

    def has(self, silo: int) -> bool:
        """Return whether a silo keeps state; a new server does not know that yet."""
        return bool(self.kept.get(silo) or self.pending.get(silo))

    def begin(self, request: Request) -> None:
        """Make the state of an earlier round final, or discard that of a lost attempt at this round."""
        if request.round != self._stamp[0]:
            for silo, values in self.pending.items():
                self.kept.setdefault(silo, {}).update(values)
            self.pending.clear()
        elif request.attempt != self._stamp[1]:
            self.pending.clear()
        self._stamp = (request.round, request.attempt)

    def keep(self, silo: int, values: Mapping[str, Any]) -> None:
        """Keep values for later rounds, if this round counts."""
        if values:
            self.pending.setdefault(silo, {}).update(values)

    def arrive(self, silo: int, state: dict[str, Any]) -> None:
        """Hold the state of a silo that may move here."""
        self._arriving[silo] = state

    def take_over(self, silo: int) -> None:
        """Make the state final that arrived with a silo that has moved here."""
        if silo in self._arriving:
            self.kept[silo] = self._arriving.pop(silo)

    def drop(self, silo: int) -> None:
        """Forget the state of a silo that has moved away."""
        self.kept.pop(silo, None)
        self.pending.pop(silo, None)
