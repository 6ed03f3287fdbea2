"""What a rank keeps at its site, and says of whose it is."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpifl.data import FederationSpec
from mpifl.exchange import KindsAlone
from mpifl.privacy import Seal, Site, site_folder
from mpifl.run import Job
from mpifl.training.accounting import digest_of, silo_maker
from mpifl.wire import started_by


def kept_at_site(
    job: Job, spec: FederationSpec, noise: Sequence[float], run: Path, is_worker: bool
) -> dict[str, Any]:
    """Return what of a worker's context keeps at the site what the server is not to know.

    Args:
        job: The job.
        spec: The federation.
        noise: Each silo's noise multiplier, by `[privacy]`.
        run: The run folder, which may be the server's.
        is_worker: Whether the rank hosts silos, for which their site's folder is needed.

    Raises:
        InputError: the site's folder is missing, not the user's own or damaged, or allows no such job.
    """
    kept: dict[str, Any] = {"silo": silo_maker(job, spec, noise, is_worker)}
    if job.privacy or job.secure:
        kept["tells"] = KindsAlone
    if job.secure and is_worker:
        folder = site_folder("[security]", "this site's secret and its silos' own models")
        kept["seal"] = Seal(Site(folder).secret, digest_of(job, *(entry.sha256 for entry in spec.silos)))
        kept["personal"] = folder / "personal" / run.name
    return kept


def whose(job: Job) -> dict[str, str]:
    """Return what a rank says of itself where sums are masked: whose it is, and what has started it."""
    return {"user": user_name(), "launcher": launcher()} if job.secure else {}


def user_name() -> str:
    """Return the name of this process's user, or the number of one that has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def launcher() -> str:
    """Return the name of the program that has started all ranks, "" if it is not known."""
    found = started_by()
    return Path(found[0]).name if found else ""
