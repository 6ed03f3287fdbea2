"""Arrays of shards that stay on a GPU if they fit, so that batches are gathered there."""

from __future__ import annotations

import functools
import weakref

import numpy as np
import torch
from torch import Tensor

SHARE = 8
"""Arrays take at most 1/SHARE of the GPU's memory that is free when the first one comes."""


class Resident:
    """The arrays that a device keeps because they are used repeatedly.

    An array without room replaces only arrays that were not used since its own last use. So if silos take
    turns and do not all fit, some stay, instead of each one replacing the next.
    """

    def __init__(self, device: torch.device, limit: int) -> None:
        self._device, self._limit = device, limit
        self._kept: dict[int, Tensor] = {}
        self._used: dict[int, int] = {}
        """When each array was used last, also for arrays that are not kept."""
        self._uses = 0

    def use(self, array: np.ndarray, column: Tensor) -> None:
        """Note that an array with the host tensor `column` is used; keep it if it fits."""
        key, self._uses = id(array), self._uses + 1
        if key not in self._used:
            weakref.finalize(array, self._forget, key).atexit = False
        before, self._used[key] = self._used.get(key, 0), self._uses
        if key not in self._kept and self._has_room(column.nbytes, before):
            self._kept[key] = column.to(self._device, copy=True)

    def of(self, array: np.ndarray, column: Tensor) -> Tensor:
        """Return the array's kept tensor, else the one on the host."""
        return self._kept.get(id(array), column)

    @property
    def nbytes(self) -> int:
        """The number of kept bytes."""
        return sum(one.nbytes for one in self._kept.values())

    def _has_room(self, nbytes: int, before: int) -> bool:
        """Make room by removing arrays that were last used before a time; return whether there is enough."""
        free = self._limit - self.nbytes
        idle = sorted((used, key) for key, used in self._used.items() if key in self._kept and used < before)
        if free + sum(self._kept[key].nbytes for _, key in idle) < nbytes:
            return False
        for _, key in idle:
            if free >= nbytes:
                break
            free += self._kept.pop(key).nbytes
        return True

    def _forget(self, key: int) -> None:
        self._kept.pop(key, None)
        self._used.pop(key, None)


@functools.cache
def resident_on(device: torch.device) -> Resident | None:
    """Return this process's `Resident` of a GPU; None for a device that does not tell its free memory."""
    tell = getattr(getattr(torch, device.type), "mem_get_info", None)
    return None if tell is None else Resident(device, tell(device)[0] // SHARE)
