"""What algorithms have in common whose server takes exact sums over the rows of all silos."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from mpifl.algorithms import Algorithm, Cohort, Server
from mpifl.common import RoundLost
from mpifl.wire import Mean, Scalar, Update


class WholeSums(Algorithm):
    """An algorithm whose silos send sums over their rows, which add up without rounding.

    So all bits are those of one silo with all rows. No silo trains.
    """

    needs_mean: ClassVar[str] = "the server needs sums over all examples"
    unlike_fedavg: ClassVar[str] = "is a sum over all examples"
    ways: ClassVar[tuple[str, ...]] = ("newton",)
    not_clipped = "sums over examples have no bound that keeps what they say"
    not_augmented = "takes the examples as they are"
    not_private = "sends sums over all examples; use fedavg"
    not_noised = "sends sums over all examples, not a change of the model; use fedavg"
    not_clocked = "takes no steps over batches, and speeds are of such; use fedavg"

    def work(self, name: str) -> Callable[..., Update]:
        """Return a client method. One that adds up gets its message on the host, where sums are made."""
        act = super().work(name)
        if self.purpose(name) == "evaluation":
            return act
        return lambda silo, **message: act(silo, **{key: _on_host(value) for key, value in message.items()})

    @abstractmethod
    def told(self, server: Server) -> dict[str, Any]:
        """Return the result for a round's record; {} before there is one."""

    def of_all(self, cohort: Cohort, mean: Mean, name: str) -> Tensor:
        """Return a sum over all silos.

        Raises:
            RoundLost: not all have answered.
        """
        self.check_all(cohort, mean)
        return mean[name]

    def check_all(self, cohort: Cohort, mean: Mean) -> None:
        """Check that all silos have answered.

        Raises:
            RoundLost: not all have.
        """
        if len(mean) < cohort.population:
            who = type(self).__name__.lower()
            raise RoundLost(f"{len(mean)} of {cohort.population} silos answered; {who} takes sums over all")


def _on_host(value: Tensor | Scalar) -> Tensor | Scalar:
    return value.cpu() if isinstance(value, Tensor) else value
