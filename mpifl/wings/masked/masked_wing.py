"""What `[security]` adds to a training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from mpifl.algorithms import Server
from mpifl.data.shards import AnySpec
from mpifl.exchange import Federation, KindsAlone
from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.folder import read_environment
from mpifl.run.job import Job
from mpifl.sums import Aggregator, Averaging
from mpifl.training import Wing
from mpifl.wings.dpsgd import run_of
from mpifl.wings.masked.fixed_sum import FixedSum
from mpifl.wings.masked.masked_training import sums_of
from mpifl.wings.masked.party_sums import FixedSums
from mpifl.wings.masked.released_file import ReleasedFile
from mpifl.wings.masked.who_sees import about_rank, cost_of_masks, sharing
from mpifl.wings.privacy import SiteFolder
from mpifl.wings.site import SiteSeal, site_folder
from mpifl.wire import Memory, Transport


@dataclass(frozen=True)
class WholeNumbers(Averaging):
    """Average updates by sums of whole numbers, with masks or without.

    Attributes:
        how: How these are added up.
    """

    how: FixedSums

    hides: ClassVar[bool] = True

    def aggregator(self, device: torch.device, memory: Memory) -> Aggregator:
        """Return what adds up whole numbers on this rank."""
        return FixedSum(self.how, memory)

    def asked(self, round: int, work: str, silos: list[int]) -> list[int]:
        """Return the silos of before where a sum was released before, else those that are to be asked."""
        before = self.how.released.of(round, work) if self.how.released else None
        return silos if before is None else before


class Masked(Wing):
    """Let the server see sums over silos alone."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def told(self, spec: AnySpec, run: Path) -> str:
        """Return, at rank 0, by what sites tell this run from others of the same job; "" without masks.

        Raises:
            InputError: the file of what was released is damaged, or another run's.
        """
        return ReleasedFile(run, read_environment(run).get("released", "")).id if self._job.secure else ""

    def context(
        self,
        context: WorkerContext,
        placed: Mapping[int, Sequence[int]],
        transport: Transport,
        told: str,
    ) -> WorkerContext:
        """Add up whole numbers; with masks, keep at the site what silos keep, and tell kinds of faults alone.

        Raises:
            InputError: there are fewer parties than the job asks for, or the site's folder is missing or
                damaged.
        """
        job, spec, run, rank = self._job, context.spec, context.run, transport.rank
        self._how = sums_of(
            job, spec=spec, algorithm=context.algorithm, run=run, placed=placed, rank=rank, id=told
        )
        context = dataclasses.replace(context, averaging=WholeNumbers(self._how))
        if not job.secure:
            return context
        context = dataclasses.replace(context, tells=KindsAlone)
        if rank not in transport.workers:
            return context
        folder = site_folder("[security]", "this site's secret and its silos' own models")
        known = run_of(job, spec, told)
        seal, personal = SiteSeal(SiteFolder(folder).secret, known.job), f"{run.name}-{known.run[:8]}"
        return dataclasses.replace(context, seal=seal, personal=folder / "personal" / personal)

    def about(self) -> dict[str, str]:
        """Return what a rank says of itself where sums are masked."""
        return about_rank() if self._job.secure else {}

    def notes(self, server: Server, exchange: Federation) -> list[str]:
        """Say, where sums are masked, what that costs, and who is not hidden from whom."""
        if not self._job.secure:
            return []
        member, length = exchange.membership, len(server.model.shared)
        cost = cost_of_masks(sum(map(bool, member.placed.values())), length)
        return [cost, *sharing(member.about, member.placed, exchange.names)]

    def environment(self) -> dict[str, Any]:
        """Return by what sites know the run."""
        return {} if self._how.released is None else {"released": self._how.released.id}


def wing(job: Job) -> Wing:
    """Return what a job's `[security]` adds."""
    return Masked(job)
