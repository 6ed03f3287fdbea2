"""Losses of FLamby's baselines that differ from the package's."""

from __future__ import annotations

from torch import Tensor

from mpifl.learning.tasks.losses import cox


def cox_by_patients(risk: Tensor, y: Tensor) -> tuple[Tensor, int]:
    """Return the negative log partial likelihood of a batch, and the number of its patients.

    FLamby divides by all patients (`fed_tcga_brca/loss.py`), `cox` by those with an event.
    """
    return cox(risk, y)[0], len(y)
