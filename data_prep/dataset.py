"""What a source hands over: labelled examples in memory, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpifl.shards import Features


@dataclass(frozen=True)
class Dataset:
    """Labelled examples that a source has read and checked.

    Attributes:
        where: The file or folder they came from, as messages name it.
        x: Features of shape [n, *shape], as they are to be stored.
        y: Labels of shape [n], int64 in [0, classes).
        classes: How many classes there are.
        files: The sha256 of every file read, by its base name.
        scale: What a model multiplies stored features by; None leaves them alone.
        test: The server's own test set (x, y), if the source has one.
        silo: The silo that each example belongs to by nature, integers or names of shape [n], if the source knows.
    """

    where: str
    x: np.ndarray
    y: np.ndarray
    classes: int
    files: dict[str, str]
    scale: float | None = None
    test: tuple[np.ndarray, np.ndarray] | None = None
    silo: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def features(self) -> Features:
        """Describe one example for `federation.json`."""
        return Features.model_validate({"shape": self.x.shape[1:], "dtype": self.x.dtype.name, "scale": self.scale})
