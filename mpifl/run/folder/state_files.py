"""The files of what silos keep, as the rank that hosts them writes and reads them: plain, or sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mpifl.common import Buffer, write_atomic
from mpifl.run.folder import checkpoint, serialization
from mpifl.run.folder.writer import StateWriter


class Seal(Protocol):
    """What makes a text such that nobody else reads it, or puts another in its place."""

    def close(self, text: Buffer, *about: str | int) -> bytes:
        """Return a text, sealed; it opens as what it is about alone."""

    def open(self, sealed: Buffer, *about: str | int) -> bytes:
        """Return the text; raise ValueError if it is not what was sealed of this."""


class StateFiles:
    """Silos' files in the checkpoints of a run.

    Args:
        run: The run folder, which may be the server's.
        seal: A site's, if nobody else is to read them or to put others in their place.
    """

    def __init__(self, run: Path, seal: Seal | None = None) -> None:
        self._run, self._seal = run, seal
        self._writer = StateWriter()

    def begin(self, round: int, silo: int, state: Mapping[str, Any], oldest: int = 0) -> None:
        """Begin to write what a silo keeps; nothing is copied,
        since what is kept is replaced and never changed.

        Args:
            round: Of the checkpoint.
            silo: Whose state it is.
            state: What it keeps.
            oldest: The oldest checkpoint that the server still has; files of older ones are removed.
        """
        checkpoint.drop_silos(self._run, min(oldest, round))
        seal, path = self._seal, self.path(round, silo)
        if seal is None:
            return self._writer.begin(path, state)

        def write(path: Path, state: Mapping[str, Any]) -> str:
            sealed = seal.close(serialization.packed(state), *_about(round, silo))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, sealed)
            return hashlib.sha256(sealed).hexdigest()

        self._writer.begin(path, state, write)

    def writing(self, round: int, silo: int) -> bool:
        """Whether a silo's file is still to be written."""
        return self._writer.writing(self.path(round, silo))

    def digest(self, round: int, silo: int) -> str:
        """Wait until a silo's file is written and return its sha256.

        Raises:
            CheckpointError: it could not be written, or was never begun here.
        """
        return self._writer.digest(self.path(round, silo))

    def read(self, round: int, silo: int, sha256: str) -> dict[str, Any]:
        """Read what a silo kept.

        Raises:
            CheckpointError: the file is missing, is not the one with this sha256, or holds no state; if it is
                sealed, it is of another round, silo, run or site.
        """
        seal, path = self._seal, self.path(round, silo)
        if seal is None:
            return checkpoint.read_state(path, sha256)
        return checkpoint.read_state(path, sha256, lambda sealed: seal.open(sealed, *_about(round, silo)))

    def path(self, round: int, silo: int) -> Path:
        """Return where a silo's file lies."""
        plain = checkpoint.silo_file(self._run, round, silo)
        return plain.with_suffix(".sealed") if self._seal else plain


def _about(round: int, silo: int) -> tuple[str | int, ...]:
    """Return what a sealed state is of, beside the run."""
    return "round", round, "silo", silo
