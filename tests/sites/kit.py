"""A run over sites on one machine: keys, invitation, consents and folders, as commands would make them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpifl import __version__
from mpifl.data.shards import read_federation
from mpifl.run.job import read_job
from mpifl.wings.site import Identity, identity_of, make_identity
from mpifl.wings.sites.consents import (
    ConsentedRun,
    HttpsServer,
    Invitation,
    RunHome,
    add_consent,
    federation_digest,
    in_singles,
    shared_job,
    signed_invitation,
    write_invitation,
)
from mpifl.wings.sites.consents.needed_numbers import needed_numbers
from mpifl.wings.sites.coordinating import point_to
from mpifl.wings.sites.letters import Member
from mpifl.wings.sites.told_job import welcome_text

SITES = {"north": ["silo 0", "silo 1"], "south": ["silo 2", "silo 3"], "west": ["silo 4", "silo 5"]}
COORDINATOR = "bern"
FIGURES = ["train_loss", "accuracy", "test_accuracy", "test_loss", "loss"]


def set_up(
    base: Path,
    job: Path,
    sites: Mapping[str, Sequence[str]] = SITES,
    changes: Sequence[str] = (),
    https: HttpsServer | None = None,
) -> str:
    """Make BASE/link with the invitation, BASE/run, and BASE/home-SITE for each; return the run's id."""
    run = os.urandom(16).hex()
    identities = {name: _identity(base, name) for name in (COORDINATOR, *sites)}
    resolved = read_job(job)
    told = welcome_text(resolved, read_federation(Path(resolved.shards)))
    members = [
        Member(name=name, key=identities[name].public, silos=list(silos)) for name, silos in sites.items()
    ]
    own = identities[COORDINATOR]
    invitation = Invitation(
        run=run,
        mpifl=__version__,
        coordinator=COORDINATOR,
        key=own.public,
        run_key=RunHome(home(base, COORDINATOR), run).key().public.hex(),
        federation=federation_digest(told["spec"]),
        site=sorted(members, key=lambda member: member.key),
        job=told["job"],
        https=https,
        signature="0" * 128,
    )
    (base / "link").mkdir()
    write_invitation(base / "link", signed_invitation(invitation, own))
    point_to(base / "run", base / "link")
    listing = "".join(identities[name].listing(silos) for name, silos in sites.items())
    for name, silos in sites.items():
        if resolved.secure:
            (home(base, name) / "sites.toml").write_text(listing)
        consent = ConsentedRun(
            coordinator=own.public,
            job=invitation.job_digest,
            federation=invitation.federation,
            silos=list(silos),
            masks="required" if resolved.secure else "none",
            singles=bool(in_singles(shared_job(told["job"]))),
            figures=[*FIGURES, *needed_numbers(shared_job(told["job"]))],
            questions=1000,
        )
        add_consent(home(base, name), consent)
    return run


def home(base: Path, name: str) -> Path:
    return base / f"home-{name}"


def key_of(base: Path, name: str) -> str:
    """Return a party's public key."""
    found = identity_of(home(base, name))
    assert found is not None
    return found.public


def _identity(base: Path, name: str) -> Identity:
    home(base, name).mkdir(mode=0o700, parents=True, exist_ok=True)
    if (found := identity_of(home(base, name))) is not None:
        return found
    return make_identity(home(base, name), name)
