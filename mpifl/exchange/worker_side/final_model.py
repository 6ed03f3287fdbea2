"""The end of a training: the final model, left where each silo can use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from mpifl.algorithms import Algorithm
from mpifl.common import sha256_of
from mpifl.run.folder import MADE_WITH, checkpoint
from mpifl.silo import Silo
from mpifl.silo.parameters import FlatModel


class FinalModel:
    """Writes the server's model where a rank's run folder is not the server's, and silos' own models.

    Args:
        run: The run folder.
        algorithm: The job's.
        model: The one that silos are lent.
        personal: The folder of silos' own models; by default one in the run folder.
    """

    def __init__(
        self, run: Path, algorithm: Algorithm, model: FlatModel, personal: Path | None = None
    ) -> None:
        self._run, self._algorithm, self._model = run, algorithm, model
        self._personal = personal or run / "personal"
        self._written = ""
        """The sha256 of the final model that is known to lie in the run folder."""

    def leave(self, silo: Silo, vectors: Mapping[str, Tensor], sha256: str) -> None:
        """Leave the final model where a silo can use it, and the silo's own if it has one.

        Raises:
            Unwritable: it cannot be written.
        """
        self._model.put_back(vectors.get("statistics"))
        message = {name: vector for name, vector in vectors.items() if name != "statistics"}
        own = self._algorithm.personal_model(silo, **message)
        if own is vectors.get("w"):
            self._leave_global(own, sha256)
        else:
            self._leave_own(silo, own, sha256)

    def _leave_own(self, silo: Silo, own: Tensor, sha256: str) -> None:
        """Write a silo's own model, which says with which of the server's it was made."""
        silo.model.trained.copy_(own)
        if (statistics := self._algorithm.personal_statistics(silo)) is not None:
            silo.model.statistics.write(statistics)
        path = self._personal / f"silo_{silo.id:04d}.safetensors"
        checkpoint.write_model(path, silo.model, {MADE_WITH: sha256})

    def _leave_global(self, w: Tensor, sha256: str) -> None:
        """Write the server's model where the run folder has none, or that of an earlier end."""
        path = self._run / "model.safetensors"
        if self._written != sha256 and not (path.exists() and sha256_of(path) == sha256):
            self._model.shared.copy_(w)
            checkpoint.write_model(path, self._model)
        self._written = sha256
