"""Harrell's concordance, a metric of pairs, so its states do not add up."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.tasks import TaskFacts

ROWS = 1000
"""Examples that are compared with all others at a time."""


class ConcordanceIndex:
    """Harrell's concordance (Harrell et al. 1996): the share of comparable pairs where the earlier event has
    the higher risk.

    A pair is comparable if the earlier one had its event. At equal times, it is comparable if exactly one had
    its event. Equal risks count 1/2.
    """

    higher_is_better = True
    share = True

    def __init__(self) -> None:
        self.risks: list[Tensor] = []
        self.pairs: list[Tensor] = []

    def update(self, risk: Tensor, y: Tensor) -> None:
        """Add risks, shape [n], and targets, shape [n, 2]: the time, and whether there was an event."""
        self.risks.append(risk)
        self.pairs.append(y)

    def compute(self) -> float:
        """Return the concordance of all examples so far; NaN without a comparable pair."""
        risk = torch.cat(self.risks) if self.risks else torch.zeros(0)
        y = torch.cat(self.pairs) if self.pairs else torch.zeros(0, 2)
        right, pairs = 0.0, 0
        for mine in torch.split(torch.nonzero(y[:, 1] > 0).squeeze(1), ROWS):
            earlier = y[mine, :1] < y[:, 0]
            tied = (y[mine, :1] == y[:, 0]) & (y[:, 1] == 0)
            comparable, ahead = earlier | tied, risk[mine, None] - risk
            pairs += int(comparable.sum())
            right += float((comparable & (ahead > 0)).sum()) + float((comparable & (ahead == 0)).sum()) / 2
        return right / pairs if pairs else math.nan


def c_index(form: str, facts: TaskFacts) -> Metric:
    """Return Harrell's concordance: the share of comparable pairs whose order by risk is right."""
    return ConcordanceIndex()
