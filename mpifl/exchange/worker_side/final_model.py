"""The end of a training: each silo gets the final model as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from mpifl.algorithms import Algorithm
from mpifl.common import sha256_of
from mpifl.run.folder import MADE_WITH, checkpoint, told_round
from mpifl.silo import Silo
from mpifl.silo.parameters import FlatModel


class FinalModel:
    """Writes silos' own models, and the server's model if this rank's run folder is not the server's.

    Args:
        run: The run folder.
        algorithm: The algorithm of the job.
        model: The model that silos are lent.
        personal: The folder for silos' own models; by default one in the run folder.
    """

    def __init__(
        self, run: Path, algorithm: Algorithm, model: FlatModel, personal: Path | None = None
    ) -> None:
        self._run, self._algorithm, self._model = run, algorithm, model
        self._personal = personal or run / "personal"
        self._written = ""
        """The sha256 of the final model in the run folder, as far as this object knows."""

    def leave(self, silo: Silo, vectors: Mapping[str, Tensor], sha256: str, kept: int = 0) -> None:
        """Write the model that a silo uses from now on: its own if it has one, else the final model.

        Args:
            vectors: The final model.
            sha256: The digest of the server's file of it.
            kept: The round that it is of, if it is the best one; else 0.

        Raises:
            Unwritable: the model cannot be written.
        """
        self._model.put_back(vectors.get("statistics"))
        message = {name: vector for name, vector in vectors.items() if name != "statistics"}
        own = self._algorithm.personal_model(silo, **message)
        if own is vectors.get("w"):
            self._leave_global(own, sha256, kept)
        else:
            self._leave_own(silo, own, sha256)

    def _leave_own(self, silo: Silo, own: Tensor, sha256: str) -> None:
        """Write a silo's own model; its file names the server's model that it was made with."""
        silo.model.trained.copy_(own)
        if (statistics := self._algorithm.personal_statistics(silo)) is not None:
            silo.model.statistics.write(statistics)
        path = self._personal / f"silo_{silo.id:04d}.safetensors"
        checkpoint.write_model(path, silo.model, {MADE_WITH: sha256})

    def _leave_global(self, w: Tensor, sha256: str, kept: int) -> None:
        """Write the server's model, unless the run folder has this very model already."""
        path = self._run / "model.safetensors"
        if self._written != sha256 and not (path.exists() and sha256_of(path) == sha256):
            self._model.shared.copy_(w)
            checkpoint.write_model(path, self._model, told_round(kept))
        self._written = sha256
