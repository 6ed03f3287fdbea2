"""The numbers of silos that sites let leave, as the coordinator's algorithm sees them."""

from __future__ import annotations

import dataclasses

from mpifl.algorithms import Server
from mpifl.transforms import Transform
from mpifl.wire import Mean, Numbers, Purpose


class ConsentedNumbers(Transform):
    """Has a mean say of a number which no site sent that consents may withhold it.

    Args:
        algorithm: The name of the job's algorithm.
    """

    def __init__(self, algorithm: str) -> None:
        self._why = (
            f"'{algorithm}' goes by the silos' number '{{name}}', which no site sent; a site withholds what"
            " `figures` of its consent does not name; have sites consent by `mpifl consent --figures {name}`"
        )

    def mean(self, server: Server, mean: Mean, purpose: Purpose = "training") -> Mean:
        """Return the mean with numbers that say so."""
        return dataclasses.replace(mean, scalars=Numbers(mean.scalars, self._why))
