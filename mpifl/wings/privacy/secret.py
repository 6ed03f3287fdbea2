"""A secret of rank 0's: noise is drawn from it, and a training goes on with the one that it began with."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpifl.common import InputError
from mpifl.wings.privacy.draws import Draws
from mpifl.wings.privacy.site_budget import SiteFolder
from mpifl.wings.site import VARIABLE

FOLDER = "privacy"
"""In a run folder: rank 0's secret, and its ledger if it has one."""
KEY = "privacy key"
"""In the server's state: by what its secret is known."""


class Secret:
    """A secret in a folder that nobody else looks into; opened, and made, when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def site(self) -> SiteFolder:
        """The folder, opened."""
        return SiteFolder(self.folder, f"{self.folder}")

    @property
    def known_by(self) -> int:
        """A number that tells one secret from another, and nothing more of it."""
        found = hmac.new(self.site.secret, b"mpifl known by", hashlib.sha256).digest()
        return int.from_bytes(found[:6], "big")

    def check(self, state: Mapping[str, Any]) -> None:
        """See that this is the secret with which a training has begun, if it has.

        Raises:
            InputError: it is not.
        """
        if KEY in state and (not (self.folder / "key").exists() or state[KEY] != self.known_by):
            what = "has not the secret that this run began with, so its noise cannot be drawn again"
            raise InputError(f"{self.folder}: {what}; put the folder back, or start anew with another --out")

    def draws(self, *purpose: str | int) -> Draws:
        """Return a stream of numbers that follow from the secret and what they are for."""
        return Draws(self.site.secret, *purpose)


def own_secret(run: Path) -> Secret:
    """Return the secret of rank 0's site: all its runs have that of MPIFL_SITE, else each run its own."""
    named = os.environ.get(VARIABLE)
    return Secret(Path(named).expanduser() if named else run / FOLDER)
