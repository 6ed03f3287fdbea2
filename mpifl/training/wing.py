"""What a wing adds to a training: one capability, at the places where the core asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from mpifl.algorithms import Algorithm, Server
from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.run.job import Job
from mpifl.sums import MakesAggregator
from mpifl.transforms import Transform


class Wing:
    """One capability in one training. By itself it adds nothing."""

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """See, before ranks start, that the job asks for nothing that these shards do not allow.

        Raises:
            InputError: it does.
        """

    def transforms(self, spec: AnySpec, algorithm: Algorithm) -> list[Transform]:
        """Return what changes messages: before the core's transforms to silos, after them on the way back."""
        return []

    def last_transforms(self, spec: AnySpec, algorithm: Algorithm) -> list[Transform]:
        """Return what changes messages behind the core's transforms to silos, and before them on the way
        back."""
        return []

    def aggregated(self, rule: MakesAggregator | None, algorithm: Algorithm) -> MakesAggregator | None:
        """Return what combines updates in place of what the wings before this one have; None is the mean."""
        return rule

    def notes(self, hosted: Sequence[int], length: int) -> list[str]:
        """Say what the user is to know of the run.

        Args:
            hosted: How many silos each rank hosts.
            length: Of the vectors.
        """
        return []

    def figures(self, server: Server) -> dict[str, float]:
        """Return what is measured of the model beside the metrics, where the server scores it."""
        return {}


WingsOf: TypeAlias = Callable[[Job], Sequence[Wing]]
"""What makes the wings that a job asks for, in the order in which they act."""


def core_alone(job: Job) -> Sequence[Wing]:
    """Return no wing.

    Raises:
        InputError: the job asks for one.
    """
    for name, key in job.wings.items():
        raise InputError(f"{key}: is the work of the wing '{name}', which is not here")
    return []
