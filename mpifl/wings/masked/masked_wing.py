"""The wing for `[security]`: sums of whole numbers, with masks or without."""

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
    """Averages updates by sums of whole numbers, with masks or without.

    Attributes:
        how: The settings of these sums.
    """

    how: FixedSums

    hides: ClassVar[bool] = True

    def aggregator(self, device: torch.device, memory: Memory) -> Aggregator:
        """Return this rank's aggregator of whole numbers."""
        return FixedSum(self.how, memory)

    def asked(self, round: int, work: str, silos: list[int]) -> list[int]:
        """Return the silos of an earlier release of this sum, if there was one, else `silos`."""
        before = self.how.released.of(round, work) if self.how.released else None
        return silos if before is None else before


class Masked(Wing):
    """Lets the server see only sums over silos."""

    def told(self, spec: AnySpec, run: Path) -> str:
        """Return, at rank 0, the run's id, by which sites tell runs of one job apart; "" without masks.

        Raises:
            InputError: the file of released sums is damaged or belongs to another run.
        """
        return ReleasedFile(run, read_environment(run).get("released", "")).id if self._job.secure else ""

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Make the context add up whole numbers.

        With masks, states of silos are encrypted, their own models stay in the site's folder, and the server
        learns only kinds of faults.

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
        """Return what a rank reports about itself if sums are masked."""
        return about_rank() if self._job.secure else {}

    def notes(self, server: Server, exchange: Federation) -> list[str]:
        """Return lines on the cost of masks, and on parties that can see each other's data."""
        if not self._job.secure:
            return []
        member, length = exchange.membership, len(server.model.shared)
        cost = cost_of_masks(sum(map(bool, member.placed.values())), length)
        return [cost, *sharing(member.about, member.placed, exchange.names)]

    def environment(self) -> dict[str, Any]:
        """Return the run's id, for the run's environment file."""
        return {} if self._how.released is None else {"released": self._how.released.id}


wing = Masked
