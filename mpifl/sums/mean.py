"""The weighted mean of the cohort's updates, with the same bits for any order and any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from mpifl.common import RoundLost, ranks_named
from mpifl.sums import kernels
from mpifl.sums.aggregator import Aggregator, Combined, read_records
from mpifl.sums.exact import anchor_of, is_finite
from mpifl.sums.kernels import Parts
from mpifl.sums.local_sums import LocalSums
from mpifl.sums.node_sums import ALIGNED, RoundRobin, relays_of
from mpifl.sums.planning import (
    PARTS,
    PartialSum,
    ReductionPlan,
    Window,
    WindowPart,
    averages,
    check_parts,
    pieces_in,
    plan,
)
from mpifl.sums.vector_checks import are_readable, refuse_noise, slice_of
from mpifl.wire import Header, Memory, Pipeline, Report, Request, Transport, Update, VectorHeader, Verdict


class Averaging:
    """The plain way to average the updates of a run: exact sums, and the server sees each silo's scalars.

    Attributes:
        hides: Whether the server sees only sums over silos.
    """

    hides: ClassVar[bool] = False

    def aggregator(self, device: torch.device, memory: Memory) -> Aggregator:
        """Return the aggregator of this rank.

        Args:
            device: The device on which this rank trains.
            memory: The memory that the aggregator uses.
        """
        return WeightedMean(device, memory)

    def asked(self, round: int, work: str, silos: list[int]) -> list[int]:
        """Return the silos among these to which the request for a client method goes; here all."""
        return silos


class WeightedMean:
    """Takes the weighted mean of all vectors, with the same bits for any order of silos and ranks.

    Each worker sums weight * vector as its silos finish. These sums are then summed over the workers, and
    divided. A worker holds one running sum for each named vector in its node's shared memory. If it has only
    a few silos, their vectors stay unweighted there. Inside a node each worker sums its own slice of all
    vectors. Between nodes the ranks of each node handle the pieces round robin. The server holds the mean.
    """

    sealed: ClassVar[bool] = False

    def __init__(self, device: torch.device, memory: Memory) -> None:
        self._memory = memory
        self._here = LocalSums(device, memory)
        self._means: dict[str, Tensor] = {}
        self._abandoned: list[Tensor] = []
        """Means that are kept for ever, since a hanging rank may still write there."""
        self.hanging: set[int] = set()
        """Ranks that did not make their share of the last sum in time, as far as this rank waits for them."""

    def begin(self, request: Request, received: Mapping[str, Tensor], silos: Sequence[int]) -> None:
        """Forget the sums of the round before; see `Aggregator`."""
        self.expect(len(request.cohort), here=len(silos))

    def expect(self, summands: int, here: int | None = None) -> None:
        """Forget the earlier sums; see `LocalSums.expect`."""
        self._means.clear()
        self._here.expect(summands, here)

    def lend(self, length: int, dtype: torch.dtype) -> Tensor:
        """Return memory for a vector; see `LocalSums.lend`."""
        return self._here.lend(length, dtype)

    def accumulate(self, silo: int, update: Update) -> dict[str, VectorHeader]:
        """Add one silo's update to this rank's sums, and describe its vectors; see `Aggregator`."""
        refuse_noise(update)
        return self._here.add(update)

    def take(self, made: Mapping[tuple[str, int], tuple[Tensor, int]]) -> None:
        """Add sums that were made elsewhere; see `LocalSums.take`."""
        self._here.take(made)

    def parts(self) -> list[PartialSum]:
        """Return this rank's sums; see `LocalSums.parts`."""
        return self._here.parts()

    def accept(
        self, transport: Transport, rank: int, parts: Sequence[Any], headers: Sequence[Header]
    ) -> None:
        """Check that the parts of a rank are the sums that its headers announce; see `Aggregator`."""
        found = read_records(PARTS, parts, "its sums")
        check_parts(found, headers)
        lengths = {name: vector.length for header in headers for name, vector in header.vectors.items()}
        lying = ((part.handle, lengths[part.name], _dtype(part.weight > 0)) for part in found)
        if not are_readable(transport, rank, lying):
            raise ValueError("its sums cannot be read where it says that they lie")

    def place(self, reports: Mapping[int, Report]) -> list[ReductionPlan]:
        """Return the plan of each mean: which sums are added, and where the mean is written.

        The server calls this.

        Raises:
            RoundLost: all updates weigh 0.
        """
        pieces = plan(reports)
        if weightless := [piece.name for piece in pieces if piece.total == 0]:
            raise RoundLost(f"all updates weigh 0 in the mean of '{weightless[0]}'")
        return self.placed(pieces)

    def placed(self, pieces: Sequence[ReductionPlan]) -> list[ReductionPlan]:
        """Return the plans with the places where the means are written.

        Each place is filled so that a share which is never made leaves a NaN.
        """
        self._means = {piece.name: self._memory.empty(piece.length, _dtype_of(piece)) for piece in pieces}
        for mean in self._means.values():
            mean[::ALIGNED] = math.nan  # a NaN in each share
        return [
            piece.model_copy(update={"mean": self._memory.handle(self._means[piece.name])})
            for piece in pieces
        ]

    def combine(self, transport: Transport, verdict: Verdict) -> Combined:
        """Make the means of the verdict's plans over the ranks; a mean that is not finite loses the round."""
        pieces = pieces_in(verdict.pieces)
        means = self._means_of(transport, verdict, pieces)
        return Combined(means, self._fault(transport, pieces, means) if transport.is_server else None)

    def scalars(self, headers: Iterable[Header]) -> dict[str, float]:
        """Average the numbers of the updates by their weights."""
        return averages(headers)

    def _means_of(
        self, transport: Transport, verdict: Verdict, pieces: Sequence[ReductionPlan]
    ) -> dict[str, Tensor]:
        """Return the means at the server, with NaN where a rank's part did not come; {} at other ranks."""
        workers = [rank for rank in transport.peers if rank in verdict.ranks]
        self.hanging.clear()
        if transport.rank not in (0, *verdict.ranks):
            return {}
        with Pipeline(transport, verdict.serial) as pipeline:
            turns = RoundRobin(transport, pipeline, relays_of(transport, verdict.ranks))
            for piece in pieces:
                self._combine(transport, piece, workers, turns)
            self.hanging |= turns.end(self.hanging)
        if transport.is_server and turns.made and self.hanging:
            self._abandoned += self._means.values()
        means, self._means = self._means, {}
        return means

    def _combine(
        self, transport: Transport, piece: ReductionPlan, workers: Sequence[int], turns: RoundRobin
    ) -> None:
        """Make one mean together with the workers that it needs, of this node and of others."""
        if not piece.windows:
            if transport.is_server:
                self._means[piece.name].zero_()
        elif all(transport.nodes.of[rank] == 0 for window in piece.windows for rank in window.parts):
            self._combine_here(transport, piece, workers, turns.pipeline.serial)
            if transport.is_server:
                awaited = [rank for rank in workers if rank not in self.hanging]
                self.hanging |= transport.await_done(awaited, turns.pipeline.serial)
            if self.hanging:
                self._combine_alone(transport, piece)
        else:
            turns.make(piece, self._parts_here(transport, piece), self._mean_of(transport, piece))

    def _combine_here(
        self, transport: Transport, piece: ReductionPlan, workers: Sequence[int], serial: int
    ) -> None:
        """Write this worker's slice of a mean; all parts of the mean lie on the server's node."""
        if transport.rank in workers and transport.nodes.number == 0:
            mean = self._mean_of(transport, piece)
            assert mean is not None
            where = slice_of(workers.index(transport.rank), len(workers), piece.length, ALIGNED)
            windows = [parts.cut(where) for parts in self._parts_here(transport, piece)]
            kernels.mean(mean[where], windows, 1 / piece.total)
            transport.done(serial)

    def _combine_alone(self, transport: Transport, piece: ReductionPlan) -> None:
        """Write a whole mean at the server, in new memory: a hanging rank may still write to the old one."""
        self._abandoned.append(self._means[piece.name])
        mean = self._means[piece.name] = self._memory.empty(piece.length, _dtype_of(piece))
        windows = [parts.cut(slice(0, piece.length)) for parts in self._parts_here(transport, piece)]
        kernels.mean(mean, windows, 1 / piece.total)

    def _mean_of(self, transport: Transport, piece: ReductionPlan) -> Tensor | None:
        """Return the vector in which the mean is made, on the server's node; None on other nodes."""
        if transport.nodes.number:
            return None
        mean = self._means.get(piece.name)
        return transport.read(0, piece.mean, piece.length, _dtype_of(piece)) if mean is None else mean

    def _parts_here(self, transport: Transport, piece: ReductionPlan) -> list[Parts]:
        """Return the parts of each window that lie on this node."""
        found = []
        for window in piece.windows:
            ranks = [rank for rank in transport.nodes.mine if rank in window.parts]
            vectors = [vector for rank in ranks for vector in self._in(window, transport, piece, rank)]
            weights = [part.weight for rank in ranks for part in window.parts[rank]]
            found.append(Parts(vectors, weights, anchor_of(window.number, self._here.summands)))
        return found

    def _fault(
        self, transport: Transport, pieces: Sequence[ReductionPlan], means: Mapping[str, Tensor]
    ) -> str | None:
        """Return which mean is not finite and which ranks are suspected; None if all means are finite.

        The server calls this.
        """
        for piece in pieces:
            if not is_finite(means[piece.name]):
                suspected = [transport.origins[rank] for rank in self._suspects(transport, piece)]
                return f"the mean of '{piece.name}' is not finite; suspected: {ranks_named(suspected)}"
        return None

    def _suspects(self, transport: Transport, piece: ReductionPlan) -> list[int]:
        """Return the ranks that may have made a mean not finite; at least one of them has.

        The parts on this node can be checked. If all of them are finite, the ranks of other nodes are named.
        """
        ranks = sorted({rank for window in piece.windows for rank in window.parts})
        near = [rank for rank in ranks if transport.nodes.of[rank] == transport.nodes.number]
        spoiled = [rank for rank in near if not all(map(is_finite, self._of_rank(transport, piece, rank)))]
        return spoiled or [rank for rank in ranks if rank not in near] or ranks

    def _of_rank(self, transport: Transport, piece: ReductionPlan, rank: int) -> list[Tensor]:
        windows = [window for window in piece.windows if rank in window.parts]
        return [part for window in windows for part in self._in(window, transport, piece, rank)]

    def _in(self, window: Window, transport: Transport, piece: ReductionPlan, rank: int) -> list[Tensor]:
        """Return a rank's parts of a window; a part that cannot be read is NaN."""
        if rank == transport.rank:
            return self._here.own(piece.name, window.number)
        return [_read(transport, rank, part, piece.length) for part in window.parts[rank]]


def _read(transport: Transport, rank: int, part: WindowPart, length: int) -> Tensor:
    dtype = _dtype(part.weight > 0)
    try:
        return transport.read(rank, part.handle, length, dtype)
    except OSError:
        return torch.full((length,), math.nan, dtype=dtype)


def _dtype(lone: bool) -> torch.dtype:
    """Return the dtype of a part: float32 for one silo's unweighted vector, float64 for a sum."""
    return torch.float32 if lone else torch.float64


def _dtype_of(piece: ReductionPlan) -> torch.dtype:
    """Return the dtype of a plan's result: float64 for a sum, float32 for a mean."""
    return torch.float64 if piece.summed else torch.float32
