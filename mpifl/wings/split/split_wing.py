"""What `[split]` makes of a training: silos have columns of the same rows, and share one network."""

from __future__ import annotations

from pathlib import Path

from mpifl.algorithms import Algorithm, Server
from mpifl.data.shards import AnySpec, VerticalSpec
from mpifl.exchange import Federation
from mpifl.run.job import Job
from mpifl.training import Changed, Wing
from mpifl.wings.split.split_training import assemble_vertical, tags_here
from mpifl.wings.split.top_and_bottoms import check_parts
from mpifl.wire import Transport


class SplitWing(Wing):
    """Have parties with columns of the same rows train one network together."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """See that the top and all bottoms can be built, fit, and can be trained on the batches of a round.

        Raises:
            InputError: one does not, or cannot.
        """
        assert isinstance(spec, VerticalSpec)
        check_parts(self._job, spec, algorithm)

    def assembled(
        self, spec: AnySpec, run: Path, transport: Transport, changed: Changed
    ) -> tuple[Server, Federation]:
        """Return the halves of this rank, the silos that it hosts, and what it needs if it is the server."""
        assert isinstance(spec, VerticalSpec)
        return assemble_vertical(self._job, spec, run, transport, changed)

    def alignments(self, spec: AnySpec, transport: Transport) -> dict[int, str]:
        """Return the tag of the alignment that the file of each silo of this rank carries."""
        assert isinstance(spec, VerticalSpec)
        return tags_here(self._job, spec, transport)


def wing(job: Job) -> Wing:
    """Return what a job's `[split]` makes of its training."""
    return SplitWing(job)
