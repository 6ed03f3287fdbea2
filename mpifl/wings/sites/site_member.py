"""The wing of a site's ranks: they host the site's own silos alone, and end exchanges with its sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

from mpifl.algorithms import Algorithm
from mpifl.common import Buffer
from mpifl.data.shards import FederationSpec
from mpifl.exchange import KindsAlone
from mpifl.exchange.server_side import place
from mpifl.exchange.worker_side import WorkerContext
from mpifl.run.job import Job, is_silo_level
from mpifl.sums import Averaging, MakesAggregator
from mpifl.training import Wing
from mpifl.wings.masked import plain_sums
from mpifl.wings.privacy import SiteFolder
from mpifl.wings.site import SiteSeal, refuse_unbudgeted, site_folder
from mpifl.wings.sites.answers import SiteShares
from mpifl.wings.sites.consents import in_singles
from mpifl.wings.sites.masks import SiteTotals
from mpifl.wings.sites.singles import Singles
from mpifl.wings.sites.told_job import names_of_silos
from mpifl.wire import Transport

ASKER, ASKED_FOR = "mpifl join", "this site's keys and what its silos keep"
"""What asks for the site's folder, and for what."""


class SiteMember(Wing):
    """Lets a rank take part as one of a site's."""

    at_server: ClassVar[bool] = True
    name = "sites"

    def __init__(self, job: Job, run: str, silos: Sequence[str]) -> None:
        """Take part in a run by some silos of the federation, which are given by their names."""
        super().__init__(job)
        self._run, self._silos = run, silos

    def placed(self, spec: FederationSpec, transport: Transport) -> dict[int, list[int]]:
        """Return the site's own silos, spread evenly over its ranks."""
        own = silos_named(spec, self._silos)
        found = place([spec.silos[silo].examples["train"] for silo in own], transport.workers)
        return {rank: [own[nth] for nth in some] for rank, some in found.items()}

    def aggregated(self, rule: MakesAggregator | None, algorithm: Algorithm) -> MakesAggregator | None:
        """Return what has each silo's update handed over, if the coordinator needs them one by one."""
        return Singles() if in_singles(self._job.model_dump()) else None

    def context(
        self, context: WorkerContext, placed: Mapping[int, Sequence[int]], transport: Transport, told: str
    ) -> WorkerContext:
        """Make the context end exchanges with sums, seal states, and tell kinds of faults alone.

        Raises:
            InputError: the site's folder is missing, or the site has a budget that the job does not count.
        """
        if self._job.privacy is None or is_silo_level(self._job):
            refuse_unbudgeted()
        folder = site_folder(ASKER, ASKED_FOR)
        seal = StateSeal(SiteFolder(folder).secret, self._run)
        averaging: Averaging = SiteShares()
        if self._job.security is not None:
            averaging = SiteTotals(plain_sums(self._job, context.spec, context.algorithm))
        return dataclasses.replace(context, averaging=averaging, seal=seal, tells=KindsAlone)


class StateSeal(SiteSeal):
    """Seals what silos keep, whichever letter it is kept at.

    A state that a question has not changed keeps its digest. So what is asked next is the same question, also
    if the coordinator goes on from a checkpoint between both.
    """

    def close(self, text: Buffer, *about: str | int) -> bytes:
        """Return an encrypted state; of its labels the silo counts, and the round does not."""
        return super().close(text, *about[2:])

    def open(self, sealed: Buffer, *about: str | int) -> bytes:
        """Return a state; raise ValueError if another site, run or silo has it, or it was altered."""
        return super().open(sealed, *about[2:])


def silos_named(spec: FederationSpec, names: Sequence[str]) -> list[int]:
    """Return the numbers of the silos of these names, ascending."""
    return [silo for silo, name in enumerate(names_of_silos(spec)) if name in names]


def others_of(wings: Sequence[Wing]) -> list[Wing]:
    """Return the wings but a site's rules, ranks' masks, and what refuses a job of sites: consents, sites'
    masks and the wing of this run replace them."""
    return [wing for wing in wings if wing.name not in ("site", "masked", "sites")]
