"""The coordinator invites sites to a run: its id, its key, and the signed invitation on the link."""

from __future__ import annotations

import os
from pathlib import Path

from mpifl import __version__
from mpifl.common import InputError
from mpifl.data.shards import FederationSpec, read_any
from mpifl.run.job import Job
from mpifl.wings.site import identity_of, read_sites
from mpifl.wings.sites.consents import (
    FILE,
    HttpsServer,
    Invitation,
    RunHome,
    federation_digest,
    roster_of,
    signed_invitation,
    write_invitation,
)
from mpifl.wings.sites.coordinating import point_to
from mpifl.wings.sites.masks import check_sites
from mpifl.wings.sites.told_job import names_of_silos, welcome_text
from mpifl.wings.sites.what_fits import refuse_unfit


def invite(
    job: Job, sites: Path, link: Path, out: Path, folder: Path, https: HttpsServer | None = None
) -> Invitation:
    """Draw the id and key of a run, and put the signed invitation into the link and the run folder.

    Args:
        sites: The coordinator's list of sites, a `sites.toml`.
        link: The folder that will carry the letters; it is made if it is missing.
        out: The run folder.
        folder: The coordinator's own folder, with its identity.
        https: The server to which sites come; None where something else carries the letters.

    Raises:
        InputError: the job does not go over sites, a silo has no site, there is a run already, or a file
            cannot be written.
    """
    refuse_unfit(job)
    spec = read_any(Path(job.shards))
    if not isinstance(spec, FederationSpec):
        raise InputError(f"{job.shards}: silos with columns of the same rows do not go over sites")
    if (identity := identity_of(folder)) is None:
        raise InputError(f"{folder}: has no identity.key; make it by `mpifl identity make`")
    for place, whose in ((out / FILE, "--out"), (link / FILE, "--link")):
        if os.path.lexists(place):
            what = "is there, and sites know a run by it"
            raise InputError(f"{place}: {what}; name another folder by {whose}")
    told, run = welcome_text(job, spec), os.urandom(16).hex()
    check_sites(job, len(roster := roster_of(read_sites(sites), names_of_silos(spec))), len(spec.silos))
    unsigned = Invitation(
        run=run,
        mpifl=__version__,
        coordinator=identity.name,
        key=identity.public,
        run_key=RunHome(folder, run).key().public.hex(),
        federation=federation_digest(told["spec"]),
        site=roster,
        job=told["job"],
        https=https,
        signature="00" * 64,
    )
    made = signed_invitation(unsigned, identity)
    _write(made, out, link)
    return made


def _write(made: Invitation, out: Path, link: Path) -> None:
    """Put an invitation into the run folder and the link, and note the link in the run folder."""
    point_to(out, link)
    try:
        link.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{link}: cannot be made ({error.strerror or error})") from None
    for place in (out, link):
        write_invitation(place, made)
