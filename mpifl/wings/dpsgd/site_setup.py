"""What a rank keeps at its site, and what it says of itself."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mpifl.common import InputError
from mpifl.data.shards import AnySpec
from mpifl.exchange import KindsAlone
from mpifl.run.job import Job, is_silo_level
from mpifl.training import device_name
from mpifl.training.beforehand import about_plain
from mpifl.wings.dpsgd.budget_room import room_of
from mpifl.wings.dpsgd.privacy_plan import guard_of, run_of, stated_noise
from mpifl.wings.dpsgd.private_silo import PrivateSilo
from mpifl.wings.privacy import Site, site_of_worker
from mpifl.wings.site import SITES_FILE, VARIABLE, Seal, site_folder
from mpifl.wire.launching import started_by


def kept_at_site(
    job: Job, spec: AnySpec, noise: Sequence[float], run: Path, is_worker: bool, id: str = ""
) -> dict[str, Any]:
    """Return what of a worker's context keeps at the site what the server is not to know.

    Args:
        job: The job.
        spec: The federation.
        noise: Each silo's noise multiplier, by `[privacy]`.
        run: The run folder, which may be the server's.
        is_worker: Whether the rank hosts silos, for which their site's folder is needed.
        id: What tells this run from others of the job where sums are masked.

    Raises:
        InputError: the site's folder is missing, not the user's own or damaged, or allows no such job. Or the
            server tells another noise than the job.
    """
    for stated, told in zip(stated_noise(job, spec), noise, strict=False):
        if stated is not None and told != stated:
            what = f"the server tells a noise of {told:g}; it is broken, or not to be trusted"
            raise InputError(f"[privacy] noise = {stated:g}: {what}")
    if is_worker and not job.secure:
        _refuse_unmasked()
    site = site_of_worker(job.privacy is not None and not is_silo_level(job)) if is_worker else None
    kept: dict[str, Any] = {}
    if (guard := guard_of(job, spec, noise, site)) is not None:
        kept |= {"silo": partial(PrivateSilo, guard=guard), "check": room_of(job, spec, guard)}
    if site is not None:
        _hold_against_budget(job, site)
        kept["site"] = site
    if job.privacy or job.secure:
        kept["tells"] = KindsAlone
    if job.secure and is_worker:
        folder = site_folder("[security]", "this site's secret and its silos' own models")
        known = run_of(job, spec, id)
        kept["seal"] = Seal(Site(folder).secret, known.job)
        kept["personal"] = folder / "personal" / f"{run.name}-{known.run[:8]}"
    return kept


def _hold_against_budget(job: Job, site: Site) -> None:
    """See that a site with a budget is asked for nothing that the budget does not count.

    Raises:
        InputError: it is.
    """
    if site.budget is None or job.privacy is None:
        return
    path = site.folder / "budget.toml"
    if job.privacy.evaluate_unprotected and not site.budget.evaluate_unprotected:
        what = "has no evaluate_unprotected = true, and the job asks for figures without noise"
        raise InputError(
            f"{path}: {what} by this key of [privacy]; write it there, or leave it out of the job"
        )
    if job.privacy.in_sum and not _lists_sites():
        what = "noise_at = 'sum' takes the other sites' part of the noise on the server's word"
        raise InputError(
            f"{path}: [privacy] {what}; list the sites in {SITES_FILE}, or take noise_at = 'silo'"
        )


def _refuse_unmasked() -> None:
    """See that no site that lists others for masked sums is asked for a sum without masks.

    Raises:
        InputError: it is.
    """
    if _lists_sites():
        what = f"{os.environ[VARIABLE]} has a {SITES_FILE}, and the job has no [security] with masks"
        raise InputError(f"{what}; give it one, or start this site without {VARIABLE}")


def _lists_sites() -> bool:
    named = os.environ.get(VARIABLE)
    # a link that leads nowhere is no absence
    return bool(named) and os.path.lexists(Path(str(named)).expanduser() / SITES_FILE)


BOTTOMS = "bottoms"
"""Of what a rank says of itself: the parameters of each bottom of a split network that it has."""


def about_rank(
    device: torch.device, silos: int, job: Job, bits: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what a rank says of itself.

    Args:
        device: On which it trains.
        silos: How many it hosts.
        job: The job.
        bits: What it says of how it computes the model; None where ranks have models of their own.
    """
    about = {
        "host": socket.gethostname(),
        "device": device_name(device),
        "threads": str(torch.get_num_threads()),
    }
    computes = about_plain(device) if bits is None else bits
    return about | {"silos": str(silos), "pid": str(os.getpid())} | dict(computes) | whose(job)


def whose(job: Job) -> dict[str, str]:
    """Return what a rank says of itself where sums are masked: whose it is, what has started it, and whether
    its site lists the keys of others."""
    if not job.secure:
        return {}
    return {"user": user_name(), "launcher": launcher(), "sites": "yes" if _lists_sites() else "no"}


def user_name() -> str:
    """Return the name of this process's user, or the number of one that has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def launcher() -> str:
    """Return what has started all ranks, such as `srun (Slurm)`; "" if it is not known."""
    found = started_by()
    return f"{Path(found[0]).name} ({found[1]})" if found else ""
