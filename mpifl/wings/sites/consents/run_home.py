"""The private folder of one run, `MPIFL_SITE/runs/RUN`: the run's key, its lock, journal and outbox."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpifl.common import InputError, lock, read_whole
from mpifl.wings.site import Exchange, make_once, make_own

KEY_FILE, SESSION_KEY = "run.key", "session.key"
INBOX, TRAINING = "inbox", "training"
"""The folders of letters that came over HTTPS, and of what silos keep."""
KEY_BYTES = 32


class RunHome:
    """The folder of one run, at a site or at the coordinator.

    Attributes:
        folder: The folder.
        journal: The path of the journal.
    """

    def __init__(self, site: Path, run: str) -> None:
        """Make the folder if it is missing.

        Raises:
            InputError: the run has no valid id, or the folder is not private.
        """
        if not re.fullmatch("[0-9a-f]{32}", run):
            raise InputError(f"run {run[:80]!r}: a run's id has 32 digits 0-9a-f; ask the coordinator")
        self.folder = site / "runs" / run
        for folder in (self.folder.parent, self.folder):
            make_own(folder, str(folder))
        self.journal = self.folder / "journal.jsonl"

    def outbox(self, other: str) -> Path:
        """Return the folder of letters to one other party, by its public key; make it if it is missing.

        Raises:
            InputError: it is not private.
        """
        folder = self.folder / "outbox" / other[:16]
        for one in (folder.parent, folder):
            make_own(one, str(one))
        return folder

    def inbox(self) -> Path:
        """Return the folder of what came over HTTPS; make it if it is missing.

        Raises:
            InputError: it is not private.
        """
        make_own(folder := self.folder / INBOX, str(folder))
        return folder

    def key(self, name: str = KEY_FILE) -> Exchange:
        """Return a key pair of this run, by default that of its letters; it is drawn when first asked for.

        Raises:
            InputError: its file is damaged, or others can read it.
        """
        path = self.folder / name
        if not os.path.lexists(path):
            make_once(path, os.urandom(KEY_BYTES).hex().encode())
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = read_whole(path, 2 * KEY_BYTES).decode("ascii", "replace")
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
        if mode & 0o077:
            raise InputError(f"{path}: has mode {mode:04o}, others may read it; chmod 600 {path}")
        if not re.fullmatch(rf"[0-9a-f]{{{2 * KEY_BYTES}}}", text):
            raise InputError(f"{path}: what is there is no key; put back a copy that is whole")
        return Exchange(bytes.fromhex(text))

    def forget(self, name: str) -> None:
        """Remove a file at the end of the run, such as a key."""
        (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[str | None]:
        """Keep other programs out of the folder while the context lasts.

        Yields:
            A warning if the file system has no locks; then the journal's lives alone tell programs apart.

        Raises:
            InputError: another program holds the folder.
        """
        with lock.hold(self.folder, named=False) as warning:
            yield warning
