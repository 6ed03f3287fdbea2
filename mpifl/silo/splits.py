"""The splits of a silo: whether a task can learn them."""

from __future__ import annotations

import numpy as np

from mpifl.common import ShardError
from mpifl.data import Array, Ragged
from mpifl.data.shards import Shard
from mpifl.learning.tasks import Task


def learnable(shard: Shard, task: Task) -> Shard:
    """Return the shard, after a check that the task can learn from its targets.

    Raises:
        ShardError: the task cannot; the line names the file, the split and the row.
    """
    for name, split in shard.splits.items():
        try:
            task.check_targets(name, split.y)
            if task.aligned:
                _check_aligned(split.x, split.y)
        except ValueError as wrong:
            raise ShardError(
                f"{shard.path}: {name}: {wrong}; correct the source and partition again"
            ) from None
    return shard


def _check_aligned(x: Array, y: Array) -> None:
    """Check that ragged inputs and targets have equally many rows; raise ValueError if not."""
    if isinstance(x, Ragged) and isinstance(y, Ragged) and (apart := x.lengths != y.lengths).any():
        row = int(np.argmax(apart))
        raise ValueError(f"row {row} has {x.lengths[row]} rows of inputs and {y.lengths[row]} of targets")
