"""The base class of transforms: four methods for the four places in an exchange, which change nothing."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from mpifl.algorithms import Server
from mpifl.silo import Silo
from mpifl.wire import Mean, Purpose, Update

Message: TypeAlias = dict[str, Any]
"""The keyword arguments of a client method: tensors and scalars by name."""


class Transform:
    """Changes messages and updates on their way, by the purpose of the client method.

    On the way back transforms act in reverse order.
    """

    fills: ClassVar[bool] = False
    """Whether it can make a mean for an empty cohort, so that no silo is asked then."""

    def request(self, server: Server, message: Message, purpose: Purpose = "training") -> Message:
        """Return the message to send; called at the server before the message leaves."""
        return message

    def receive(self, silo: Silo, message: Message, purpose: Purpose = "training") -> Message:
        """Return the message for the client method; called at the silo before the method runs."""
        return message

    def update(self, silo: Silo, update: Update, purpose: Purpose = "training") -> Update:
        """Return the update to send; called at the silo before the update is added to others."""
        return update

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Return the mean for the algorithm; called at the server before the algorithm sees the mean."""
        return mean
