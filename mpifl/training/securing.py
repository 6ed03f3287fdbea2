"""What a rank needs for `[security]`: how its sums are added up, and what masks them."""

from __future__ import annotations

import functools

from mpifl.aggregation import FixedSums
from mpifl.algorithms import Algorithm, usual_weight
from mpifl.data import FederationSpec
from mpifl.run import Job


def sums_of(job: Job, spec: FederationSpec, algorithm: Algorithm) -> FixedSums | None:
    """Return how updates are added up as whole numbers; None without `[security]`."""
    if job.security is None:
        return None

    @functools.cache
    def largest_weight(work: str) -> float:
        usual = [usual_weight(job.cohort.weights, entry.examples) for entry in spec.silos]
        pairs = zip(spec.silos, usual, strict=True)
        return max(algorithm.weight(work, entry.examples, weight) for entry, weight in pairs)

    return FixedSums(job.security.range, largest_weight)
