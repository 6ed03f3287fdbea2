"""The wing for `[split]`: silos hold columns of the same rows, and train one network together."""

from __future__ import annotations

from pathlib import Path

from mpifl.algorithms import Algorithm, Server
from mpifl.data.shards import AnySpec, VerticalSpec
from mpifl.exchange import Federation
from mpifl.training import Changed, Wing
from mpifl.wings.split.split_training import assemble_vertical, tags_here
from mpifl.wings.split.top_and_bottoms import check_parts
from mpifl.wire import Transport


class SplitWing(Wing):
    """Let parties with columns of the same rows train one network together."""

    def check(self, spec: AnySpec, algorithm: Algorithm) -> None:
        """Check that the top and all bottoms can be built, fit, and can train on the batches of a round.

        Raises:
            InputError: a part cannot be built, does not fit, or cannot be trained.
        """
        assert isinstance(spec, VerticalSpec)
        check_parts(self._job, spec, algorithm)

    def assembled(
        self, spec: AnySpec, run: Path, transport: Transport, changed: Changed
    ) -> tuple[Server, Federation]:
        """Return the server and the federation of this rank; see `assemble_vertical`."""
        assert isinstance(spec, VerticalSpec)
        return assemble_vertical(self._job, spec, run, transport, changed)

    def alignments(self, spec: AnySpec, transport: Transport) -> dict[int, str]:
        """Return the alignment tag of each silo that this rank hosts, as its file has it."""
        assert isinstance(spec, VerticalSpec)
        return tags_here(self._job, spec, transport)


wing = SplitWing
