"""Background writing of a checkpoint's files, while the rank continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from mpifl.run.folder import serialization
from mpifl.run.folder.checkpoint import CheckpointError


class StateWriter:
    """Writes states one after another in a thread; this thread never communicates with other ranks."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._folder = Path()
        self._begun: dict[Path, Future[str]] = {}

    def begin(
        self,
        path: Path,
        state: Mapping[str, Any],
        write: Callable[[Path, Mapping[str, Any]], str] = serialization.write_state,
    ) -> None:
        """Begin to write a state; files of another folder are written before it, and then forgotten.

        Args:
            state: Tensors and numbers by name; the tensors must not change until the file is written.
            write: Writes the file, in the thread, and returns its sha256.
        """
        if path.parent != self._folder:
            self._folder, self._begun = path.parent, {}
        self._begun[path] = self._thread.submit(_write, write, path, dict(state), _versions(state))

    def writing(self, path: Path) -> bool:
        """Return whether a file is not yet written."""
        return path in self._begun and not self._begun[path].done()

    def digest(self, path: Path) -> str:
        """Wait until a file is written and return its sha256.

        Raises:
            CheckpointError: the file could not be written, or this rank never began it.
        """
        if path not in self._begun:
            raise CheckpointError(f"{path}: was to be written by a rank that died")
        return self._begun[path].result()


def _write(
    write: Callable[[Path, Mapping[str, Any]], str],
    path: Path,
    state: dict[str, Any],
    versions: dict[str, int],
) -> str:
    try:
        digest = write(path, state)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({error.strerror or error})") from None
    if changed := [name for name, version in _versions(state).items() if version != versions[name]]:
        raise CheckpointError(
            f"{path}: '{changed[0]}' was changed while it was written; keep a new tensor instead"
        )
    return digest


def _versions(state: Mapping[str, Any]) -> dict[str, int]:
    """Return how often each tensor has been written to so far."""
    return {name: 0 if t.is_inference() else t._version for name, t in state.items() if isinstance(t, Tensor)}
