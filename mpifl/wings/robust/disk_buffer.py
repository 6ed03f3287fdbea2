"""Vectors in files that nobody else sees: for more silos on a rank than its memory holds."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mpifl.common import InputError


class DiskBuffer:
    """Hands out vectors that lie in files of a folder; a file has no name, and is gone with its vector."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self.empty(1)
        except OSError as error:
            why = error.strerror or str(error)
            raise InputError(
                f"[aggregation] disk_buffer = '{folder}': no file can be made there ({why})"
            ) from None

    def empty(self, length: int) -> Tensor:
        """Return a float32 vector of any content.

        Raises:
            OSError: there is no room for it.
        """
        if length == 0:
            return torch.empty(0)
        with tempfile.TemporaryFile(prefix="mpifl-", dir=self._folder) as file:
            # or a full disk would kill who writes to the map
            os.posix_fallocate(file.fileno(), 0, 4 * length)
            return torch.from_numpy(np.frombuffer(mmap.mmap(file.fileno(), 4 * length), np.float32))
