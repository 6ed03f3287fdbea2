"""Joining a run with a site's ranks: all ranks build the training, and rank 0 answers letters."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpifl.common import InputError, Names
from mpifl.common.machine import accelerators
from mpifl.data.shards import FederationSpec, read_federation
from mpifl.run.job import Job, is_silo_level
from mpifl.run.job.tables import Checkpoint, Tracking
from mpifl.training import Wing, WingsOf, agree, agree_on, build
from mpifl.training.beforehand import plan_wings
from mpifl.wings.dpsgd import check_budgets, plans
from mpifl.wings.privacy import open_site
from mpifl.wings.site import Identity, identity_of, site_folder
from mpifl.wings.sites.answers import SiteRanks
from mpifl.wings.sites.consents import (
    TRAINING,
    Invitation,
    RunHome,
    admitted,
    federation_digest,
    read_consents,
    read_invitation,
)
from mpifl.wings.sites.site_hello import own_entries
from mpifl.wings.sites.site_member import ASKED_FOR, ASKER, SiteMember, others_of, silos_named
from mpifl.wings.sites.site_run import SiteRun, say
from mpifl.wire import Transport


def join(
    link: Path, shards: Path, own: Mapping[str, object], transport: Transport, wings_of: WingsOf
) -> bool:
    """Take part in a run; every rank of the site's world calls this.

    Args:
        link: The folder that carries the letters; rank 0's value counts, as of all that follows.
        shards: The folder of the site's shards.
        own: Keys of the job that the site sets for itself, such as `device`.
        wings_of: Makes the wings that a job asks for.

    Returns:
        Whether the run has ended; False if a signal asked to end before. Always True at other ranks.

    Raises:
        InputError: the site cannot take part, or cannot go on.
    """
    with contextlib.ExitStack() as held:
        here: list[SiteRun] = []
        told = agree(transport, lambda: _prepared(link, shards, transport, here, held))
        if not told:
            return not transport.is_server
        silos = _admit(told, link, transport)

        def members(job: Job) -> list[Wing]:
            return [*others_of(wings_of(job)), SiteMember(job, told["run"], silos)]

        def planned() -> dict[str, str]:
            keys = {"shards": str(shards), "tracking": Tracking(), "checkpoint": Checkpoint(), **own}
            job = Job.model_validate_json(told["job"]).model_copy(update=keys)
            spec, wings = here[0].spec(told["spec"]), members(job)
            plan_wings(
                job, spec, str(link), wings
            )  # a site takes no word of others for how much noise it adds
            return build.plan_of(job, spec, Path(told["folder"]), wings)

        built = build.build_planned(link, planned, transport, members)
        device = built.server.model.device
        with accelerators.watched(device), accelerators.rounding(device, tf32=False):
            if not transport.is_server:
                return built.exchange.serve()
            try:
                return _answer(here[0], built, Invitation.model_validate_json(told["invitation"]))
            finally:
                built.exchange.stop()


def joining(link: Path, shards: Path) -> tuple[int, Path]:
    """Look at what a site needs to join a run; return how many silos it has in it, and its journal's path.

    Raises:
        InputError: the site cannot take part.
    """
    site = site_folder(ASKER, ASKED_FOR)
    if (identity := identity_of(site)) is None:
        raise InputError(f"{site}: has no identity; make one by `mpifl identity make NAME`")
    invitation, silos = invited(site, link, identity)
    consent = admitted(site, invitation, invitation.job, silos, link)
    own_entries(shards, invitation, consent.silos)
    _check_budgets(invitation, shards, consent.silos)
    return len(consent.silos), RunHome(site, invitation.run).journal


def _prepared(
    link: Path, shards: Path, transport: Transport, here: list[SiteRun], held: contextlib.ExitStack
) -> dict[str, str]:
    """Begin at rank 0: look at invitation and consent, then say hello; return what all ranks must know.

    Returns:
        {} if a signal asks to end.
    """
    site = site_folder(ASKER, ASKED_FOR)
    if (identity := identity_of(site)) is None:
        raise InputError(f"{site}: has no identity; make one by `mpifl identity make NAME`")
    invitation, silos = invited(site, link, identity)
    consent = admitted(site, invitation, invitation.job, silos, link)
    own_entries(shards, invitation, consent.silos)
    _check_budgets(invitation, shards, consent.silos)
    home = RunHome(site, invitation.run)
    if warning := held.enter_context(home.held()):
        say(warning)
    folders = {"link": link, "shards": shards, "site": site}
    run = SiteRun(invitation, consent, identity, home, ranks=transport.size, **folders)
    here.append(run)
    if (welcome := run.join()) is None:
        return {}
    told = {"run": invitation.run, "folder": str(home.folder / TRAINING)}
    return {
        **told,
        "invitation": invitation.model_dump_json(),
        "job": welcome["job"],
        "spec": welcome["spec"],
    }


def _check_budgets(invitation: Invitation, shards: Path, silos: Sequence[str]) -> None:
    """Check that the budgets of a site's silos allow a round, if its ledger counts what the job asks.

    Raises:
        InputError: the budget of a silo is spent, or the site's own budget allows no such job.
    """
    job = Job.model_validate_json(invitation.job)
    if job.privacy is None or is_silo_level(job):
        return
    open_site()  # whose secret is made, or nothing was spent there yet
    spec = read_federation(shards)
    planned = plans(job, spec, job.build_algorithm().for_federation(spec))
    check_budgets(job, spec, [plan.noise for plan in planned], silos_named(spec, silos))


def invited(site: Path, link: Path, identity: Identity) -> tuple[Invitation, list[str]]:
    """Return the invitation of a coordinator to whose job the site consents, and the federation's silos.

    Raises:
        InputError: there is none, or it is not to this site.
    """
    keys = dict.fromkeys(consent.coordinator for consent in read_consents(site))
    problem = InputError(
        f"{link}: no job of it is in consent.toml; look at it by `mpifl consent {link} --coordinator KEY`"
    )
    for key in keys:
        try:
            found = read_invitation(link, key)
        except InputError as error:
            problem = error
            continue
        if found.member(identity.public) is None:
            raise InputError(f"{link}: the invitation is not to {identity.name!r} ({identity.public[:8]}...)")
        return found, [silo for member in found.site for silo in member.silos]
    raise problem


def _admit(told: Mapping[str, str], link: Path, transport: Transport) -> list[str]:
    """Have each rank look at the consent before anything of the job is imported; return the site's silos.

    Raises:
        InputError: on all ranks, if a rank finds that the consent does not cover what the welcome tells.
    """
    invitation, problem, silos = Invitation.model_validate_json(told["invitation"]), "", list[str]()
    names = [silo for member in invitation.site for silo in member.silos]
    try:
        silos = admitted(site_folder(ASKER, ASKED_FOR), invitation, told["job"], names, link).silos
        if (digest := federation_digest(told["spec"])) != invitation.federation:
            other = f"{digest[:8]}..., and the invitation is to {invitation.federation[:8]}..."
            raise InputError(f"{link}: the welcome has federation {other}; nothing is answered")
    except InputError as error:
        problem = str(error)
    agree_on(transport, problem, {}, Names(names))
    return silos


def _answer(run: SiteRun, built: build.Built, invitation: Invitation) -> bool:
    """Open the shards, and answer letters at rank 0."""
    assert isinstance(built.spec, FederationSpec)
    ranks, names = SiteRanks(built.exchange, run.places(), run.kept()), built.exchange.names
    for silo, fault in ranks.open().items():
        say(f"silo {names[silo]} cannot take part: {fault}")
    for line in run.compared(built.exchange.membership.about):
        say(line)
    if built.job.secure:
        run.under_masks(built.job, built.spec, built.exchange.knowledge.algorithm)
    elements = sum(value.numel() for value in built.server.model.state_dict().values())
    return run.answer_letters(ranks, built.spec, invitation.job_digest, elements)
