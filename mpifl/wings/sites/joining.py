"""Joining a run with a site's ranks: all ranks build the training, and rank 0 answers letters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from mpifl.common import lock
from mpifl.common.machine import accelerators
from mpifl.data.shards import FederationSpec
from mpifl.run.job import Job
from mpifl.training import Wing, WingsOf, agree, build
from mpifl.wings.site import site_folder
from mpifl.wings.sites.site_member import ASKER, SiteMember
from mpifl.wings.sites.site_ranks import SiteRanks
from mpifl.wings.sites.site_run import Invited, SiteRun, say
from mpifl.wire import Transport


def join(
    invited: Callable[[Path], Invited],
    link: Path,
    shards: Path,
    own: Mapping[str, object],
    transport: Transport,
    wings_of: WingsOf,
) -> bool:
    """Take part in a run; every rank of the site's world calls this.

    Args:
        invited: Reads what the site knows of the run, given its private folder; called at rank 0.
        link: The folder that carries the letters; rank 0's value counts, as of all that follows.
        shards: The folder of the site's shards.
        own: Keys of the job that the site sets for itself.
        wings_of: Makes the wings that a job asks for.

    Returns:
        Whether the run has ended; False if a signal asked to end before. Always True at other ranks.

    Raises:
        InputError: the site cannot take part, or cannot go on.
    """
    with contextlib.ExitStack() as held:
        here: list[SiteRun] = []

        def prepared() -> dict[str, str]:
            folder = site_folder(ASKER, "this site's keys and what its silos keep")
            found = invited(folder)
            held.enter_context(lock.hold(folder / "runs" / found.run))
            here.append(SiteRun(found, link, shards, folder, own, transport.size))
            if not here[0].join():
                return {}
            silos = json.dumps([*found.silos])
            return {"run": found.run, "silos": silos, "folder": str(here[0].folder / "training")}

        told = agree(transport, prepared)
        if not told:
            return not transport.is_server

        def members(job: Job) -> list[Wing]:
            others = [wing for wing in wings_of(job) if wing.name != "site"]  # consent stands in its place
            return [*others, SiteMember(job, told["run"], json.loads(told["silos"]))]

        def planned() -> dict[str, str]:
            job, spec = here[0].job, here[0].spec
            return build.plan_of(job, spec, Path(told["folder"]), members(job))

        built = build.build_planned(link, planned, transport, members)
        device = built.server.model.device
        with accelerators.watched(device), accelerators.rounding(device, tf32=False):
            if not transport.is_server:
                return built.exchange.serve()
            assert isinstance(built.spec, FederationSpec)
            try:
                return _answer(here[0], built, built.spec)
            finally:
                built.exchange.stop()


def _answer(run: SiteRun, built: build.Built, spec: FederationSpec) -> bool:
    """Open the shards, and answer letters at rank 0."""
    ranks = SiteRanks(built.exchange, run.places())
    for silo, fault in ranks.open().items():
        say(f"silo {built.exchange.names[silo]} cannot take part while its shard is broken: {fault}")
    return run.answer_letters(ranks, spec, sum(v.numel() for v in built.server.model.state_dict().values()))
