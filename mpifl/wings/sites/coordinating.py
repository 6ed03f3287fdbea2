"""The start of a coordinator: a run folder that `mpifl sites init` has made names the link of its run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mpifl.common import InputError, write_atomic
from mpifl.run.job import Job
from mpifl.training import Wing, WingsOf
from mpifl.wings import OVER_SITES
from mpifl.wings.dpsgd import OfExamples, OfExamplesElsewhere
from mpifl.wings.site import identity_of, site_folder
from mpifl.wings.sites.consents import RunHome, read_invitation
from mpifl.wings.sites.coordinator_wing import Coordinating, Coordinator
from mpifl.wings.sites.correspondence import Correspondence
from mpifl.wings.sites.site_member import others_of


def point_to(out: Path, link: Path) -> None:
    """Note in a run folder that its silos are at sites.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / OVER_SITES, f"{link.absolute()}\n".encode())
    except OSError as error:
        raise InputError(f"{out / OVER_SITES}: cannot be written ({error.strerror or error})") from None


def over_sites(out: Path, wings_of: WingsOf) -> WingsOf:
    """Return what makes the wings of a training in a run folder that names a link.

    Raises:
        InputError: the link has no invitation of this coordinator.
    """
    link = Path((out / OVER_SITES).read_text().rstrip("\n"))
    site = site_folder("a run over sites", "the coordinator's keys")
    if (identity := identity_of(site)) is None:
        raise InputError(f"{site}: has no identity; make one by `mpifl identity make NAME`")
    invitation = read_invitation(link, identity.public)
    letters = Correspondence(invitation, identity, RunHome(site, invitation.run), out, link)

    return lambda job: coordinators(job, wings_of(job), letters)


def coordinators(job: Job, wings: Sequence[Wing], letters: Coordinating) -> list[Wing]:
    """Return the wings of a coordinator's training, given those that the job asks for."""
    others = [OfExamplesElsewhere(job) if isinstance(one, OfExamples) else one for one in others_of(wings)]
    return [*others, Coordinator(job, letters)]
