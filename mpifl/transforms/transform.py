"""The four places of an exchange at which a transform may act; by itself it leaves everything as it is."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from mpifl.algorithms import Server
from mpifl.silo import Silo
from mpifl.wire import Mean, Purpose, Update

Message: TypeAlias = dict[str, Any]
"""The keyword arguments of a silo's half: tensors and numbers by name."""


class Transform:
    """One way of changing messages, told what the work is for.
    On the way back transforms act in reverse order."""

    fills: ClassVar[bool] = False
    """Whether it makes a mean where a cohort is empty on purpose, which nobody is asked for then."""

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """At the server, before the message leaves."""
        return message

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """At the silo, before its half of the algorithm runs."""
        return message

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """At the silo, before its update is added to others."""
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """At the server, before the algorithm sees the mean."""
        return mean
