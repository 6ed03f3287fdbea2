"""Vectors in unnamed files, for a rank whose silos do not fit in memory."""

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
    """Returns vectors that lie in files of a folder. A file has no name, and disappears with its vector."""

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
        """Return a float32 vector with undefined content.

        Raises:
            OSError: the disk has no room for it.
        """
        if length == 0:
            return torch.empty(0)
        with tempfile.TemporaryFile(prefix="mpifl-", dir=self._folder) as file:
            # otherwise a full disk would kill the process when it writes to the map
            os.posix_fallocate(file.fileno(), 0, 4 * length)
            return torch.from_numpy(np.frombuffer(mmap.mmap(file.fileno(), 4 * length), np.float32))
