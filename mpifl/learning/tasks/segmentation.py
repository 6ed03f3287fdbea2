"""The task of a class for each pixel or voxel."""

from __future__ import annotations

from typing import Any, ClassVar

from mpifl.learning.metrics import VOXELS
from mpifl.learning.tasks.class_tasks import OfPlaces
from mpifl.learning.tasks.losses import cross_entropy, dice, dice_ce


class Segmentation(OfPlaces):
    """A class for each pixel or voxel: Dice loss with cross entropy, and the Dice coefficient.

    Outputs are logits, shape [n, classes, ...]; targets are labels, shape [n, ...]. Class 0 is the
    background.
    """

    kind = "segmentation"
    losses: ClassVar[dict[str, Any]] = {"dice_ce": dice_ce, "dice": dice, "cross_entropy": cross_entropy}
    catalogue = VOXELS
    takes = "several class numbers an example"
    usual = ("dice",)
