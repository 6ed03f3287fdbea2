"""The secret of rank 0. Noise is drawn from it, and a training must continue with the same secret."""

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
"""The folder in a run folder with rank 0's secret, and its ledger if there is one."""
KEY = "privacy key"
"""The entry of the server's state that identifies its secret."""


class Secret:
    """A secret in a private folder. Both are made when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def site(self) -> SiteFolder:
        """The folder, opened."""
        return SiteFolder(self.folder, f"{self.folder}")

    @property
    def known_by(self) -> int:
        """A number that identifies the secret and reveals nothing else about it."""
        found = hmac.new(self.site.secret, b"mpifl known by", hashlib.sha256).digest()
        return int.from_bytes(found[:6], "big")

    def check(self, state: Mapping[str, Any]) -> None:
        """Check that this is the secret with which the training has begun, if it has begun.

        Raises:
            InputError: it is another secret, or missing.
        """
        if KEY in state and (not (self.folder / "key").exists() or state[KEY] != self.known_by):
            what = "has not the secret that this run began with, so its noise cannot be drawn again"
            raise InputError(f"{self.folder}: {what}; put the folder back, or start again with another --out")

    def draws(self, *purpose: str | int) -> Draws:
        """Return a stream of numbers that follow from the secret and a purpose."""
        return Draws(self.site.secret, *purpose)


def own_secret(run: Path) -> Secret:
    """Return rank 0's secret: the one of the folder MPIFL_SITE, if set, else one of this run alone."""
    named = os.environ.get(VARIABLE)
    return Secret(Path(named).expanduser() if named else run / FOLDER)
