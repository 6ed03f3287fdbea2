"""Files of silos' states, which the rank that hosts the silos writes and reads, plain or encrypted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mpifl.common import Buffer, write_atomic
from mpifl.run.folder import checkpoint, serialization
from mpifl.run.folder.writer import StateWriter


class Seal(Protocol):
    """Encrypts texts so that nobody else can read them, or replace them unnoticed."""

    def close(self, text: Buffer, *about: str | int) -> bytes:
        """Return the encrypted text; it opens only with the same `about`."""

    def open(self, sealed: Buffer, *about: str | int) -> bytes:
        """Return the text; raise ValueError if `sealed` was not encrypted with this `about`."""


class StateFiles:
    """Silos' files in the checkpoints of a run.

    Args:
        run: The run folder, which may be the server's.
        seal: The seal of the silos' site if nobody else may read or replace their files.
    """

    def __init__(self, run: Path, seal: Seal | None = None) -> None:
        self._run, self._seal = run, seal
        self._writer = StateWriter()

    def begin(self, round: int, silo: int, state: Mapping[str, Any], oldest: int = 0) -> None:
        """Begin to write a silo's state, without a copy: kept values are replaced and never changed in place.

        Args:
            round: The round of the checkpoint.
            oldest: The round of the server's oldest checkpoint; files of older checkpoints are removed.
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
        """Return whether a silo's file is not yet written."""
        return self._writer.writing(self.path(round, silo))

    def digest(self, round: int, silo: int) -> str:
        """Wait until a silo's file is written and return its sha256.

        Raises:
            CheckpointError: the file could not be written, or this rank never began it.
        """
        return self._writer.digest(self.path(round, silo))

    def read(self, round: int, silo: int, sha256: str) -> dict[str, Any]:
        """Read a silo's state.

        Raises:
            CheckpointError: the file is missing, has another sha256, or holds no state; an encrypted file
                belongs to another round, silo, run or site.
        """
        seal, path = self._seal, self.path(round, silo)
        if seal is None:
            return checkpoint.read_state(path, sha256)
        return checkpoint.read_state(path, sha256, lambda sealed: seal.open(sealed, *_about(round, silo)))

    def path(self, round: int, silo: int) -> Path:
        """Return the path of a silo's file."""
        plain = checkpoint.silo_file(self._run, round, silo)
        return plain.with_suffix(".sealed") if self._seal else plain


def _about(round: int, silo: int) -> tuple[str | int, ...]:
    """Return the `about` of an encrypted state: its round and silo."""
    return "round", round, "silo", silo
