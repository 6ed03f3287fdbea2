"""Areas under curves from counts over fine places, which add up over silos.

Examples at one place count as equal, as examples of one probability do. So an area differs from that of all
single examples by a bound that the counts tell. `places.py` has what a place is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.metrics.places import ProbabilityRanges
from mpifl.learning.metrics.summed_metrics import Sums
from mpifl.learning.tasks import TaskFacts

GROUPS = 50
"""Parts of the positives, and of the negatives, that a curve is told by."""
NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Ranked:
    """Counts of one column at the n places that have examples, from the lowest probability up.

    Attributes:
        at: The places, int64 [n].
        yes, no: How many positives and negatives each has, float64 [n].
    """

    at: Tensor
    yes: Tensor
    no: Tensor

    @classmethod
    def of(cls, counts: Tensor) -> Ranked:
        """Return the counts of one column, given negatives and positives at all places, [places, 2]."""
        at = torch.unique_consecutive(counts.flatten().nonzero().flatten() // 2)
        no, yes = counts[at].double().T
        return cls(at, yes, no)

    @property
    def below(self) -> Tensor:
        """For each place the negatives that a positive there is ranked above; equal ones count 1/2."""
        return self.no.cumsum(0) - self.no / 2

    def with_others(self, others: Sequence[Ranked]) -> Ranked:
        """Return the counts of several columns together."""
        every = [self, *others]
        at, place = torch.unique(torch.cat([one.at for one in every]), return_inverse=True)
        yes, no = (torch.zeros(len(at), dtype=torch.float64).index_add(0, place, torch.cat(of))
                   for of in ([one.yes for one in every], [one.no for one in every]))  # fmt: skip
        return Ranked(at, yes, no)

    def area(self) -> float:
        """Return the area under the ROC curve, NaN without positives or without negatives."""
        pairs = float(self.yes.sum() * self.no.sum())
        return float((self.yes * self.below).sum()) / pairs if pairs else math.nan

    def area_within(self) -> float:
        """Return how far `area` may be from that of all single examples."""
        pairs = float(self.yes.sum() * self.no.sum())
        return float((self.yes * self.no).sum()) / 2 / pairs if pairs else math.nan

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the area (DeLong et al. 1988), NaN with fewer than two of a kind."""
        positives, negatives, area = float(self.yes.sum()), float(self.no.sum()), self.area()
        if min(positives, negatives) < 2:
            return math.nan, math.nan
        above = (positives - self.yes.cumsum(0) + self.yes / 2) / positives
        of_yes = float((self.yes * (self.below / negatives - area).square()).sum()) / (positives - 1)
        of_no = float((self.no * (above - area).square()).sum()) / (negatives - 1)
        half = NORMAL * math.sqrt(of_yes / positives + of_no / negatives)
        return max(area - half, 0.0), min(area + half, 1.0)

    def precision(self) -> float:
        """Return the average precision: precision at each place, weighted by the recall that it adds."""
        right, called = self._from_the_top()
        known = called > 0
        total = float(self.yes.sum())
        return float((self.yes.flip(0) * right / called)[known].sum()) / total if total else math.nan

    def precision_within(self) -> float:
        """Return how far `precision` may be from that of all single examples."""
        total = int(self.yes.sum())
        if not total:
            return math.nan
        right, called = self._from_the_top()
        yes, no = self.yes.flip(0), self.no.flip(0)
        each = yes.long()
        nth = torch.arange(1, total + 1) - (each.cumsum(0) - each).repeat_interleave(each)
        before, wrong = (right - yes).repeat_interleave(each), (called - right).repeat_interleave(each)
        hits = before + nth
        least = float((hits / (hits + wrong)).sum()) / total
        most = float((hits / (hits + wrong - no.repeat_interleave(each))).sum()) / total
        return max(most - self.precision(), self.precision() - least, 0.0)

    def told(self, places: ProbabilityRanges) -> list[list[float | int]]:
        """Return groups of neighbouring places, the lowest first: mean probability, positives, negatives.

        A group has about one of GROUPS parts of the positives, or of the negatives. No group is on both sides
        of 1/2.
        """
        yes, no, p = self.yes, self.no, places.probabilities(self.at)
        parts = [(GROUPS * (of.cumsum(0) - of) / of.sum().clamp(min=1)).floor() for of in (yes, no)]
        _, group = torch.unique_consecutive(
            parts[0] + parts[1] + (self.at > places.middle), return_inverse=True
        )
        sums = [torch.zeros(int(group[-1]) + 1, dtype=torch.float64).index_add(0, group, of)
                for of in (p * (yes + no), yes, no)]  # fmt: skip
        means = (sums[0] / (sums[1] + sums[2])).tolist()
        each = zip(means, sums[1].tolist(), sums[2].tolist(), strict=True)
        return [[float(f"{mean:.4g}"), int(right), int(wrong)] for mean, right, wrong in each]

    def confusion(self, places: ProbabilityRanges) -> Tensor:
        """Return no and yes by what is answered, where that is yes above 1/2, shape [2, 2]."""
        high = self.at > places.middle
        return torch.stack([torch.stack([of[~high].sum(), of[high].sum()]) for of in (self.no, self.yes)])

    def _from_the_top(self) -> tuple[Tensor, Tensor]:
        """Return how many are rightly called, and how many are called, down to each place."""
        right = self.yes.flip(0).cumsum(0)
        return right, right + self.no.flip(0).cumsum(0)


class RankingMetric(Sums):
    """Counts of positives and negatives of each column by place.

    Args:
        columns: C, the columns of probabilities.
        ignore: A target that does not count, if an example has several targets.
    """

    higher_is_better = True
    counts: Tensor

    def __init__(self, columns: int, ignore: int | None) -> None:
        super().__init__()
        self.places, self.ignore = ProbabilityRanges.of_columns(columns), ignore
        self.sums((columns, self.places.count, 2), "counts")

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities, shape [n] or [n, C], and 0 and 1 of that shape or the true column, shape [n]."""
        wide = predictions.reshape(len(y), -1)
        columns, places = self.counts.shape[:2]
        each = torch.arange(columns, device=wide.device)
        yes = (y if y.shape == predictions.shape else y.unsqueeze(1) == each).reshape(wide.shape)
        key = (each * places + self.places.of(wide)) * 2 + yes
        kept = key.reshape(-1) if self.ignore is None or yes.dtype == torch.bool else key[yes != self.ignore]
        self.counts.view(-1).index_add_(0, kept, torch.ones_like(kept))

    def ranked(self) -> list[Ranked]:
        """Return the counts of each column."""
        return [Ranked.of(counts) for counts in self.counts.cpu()]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval; NaN where no method for it is known."""
        return math.nan, math.nan


class AreaUnderROC(RankingMetric):
    """The area under the ROC curve, averaged over columns with positives and negatives."""

    def compute(self) -> Tensor:
        """Return the area so far."""
        return _mean([one.area() for one in self.ranked()])

    @property
    def within(self) -> float:
        """How far the value may be from that of all single examples."""
        return float(_mean([one.area_within() for one in self.ranked()]))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of one column (DeLong et al. 1988); NaN for several."""
        found = self.ranked()
        return found[0].interval() if len(found) == 1 else (math.nan, math.nan)


class AveragePrecision(RankingMetric):
    """The average precision, averaged over columns with positives."""

    def compute(self) -> Tensor:
        """Return the average precision so far."""
        return _mean([one.precision() for one in self.ranked()])

    @property
    def within(self) -> float:
        """How far the value may be from that of all single examples."""
        return float(_mean([one.precision_within() for one in self.ranked()]))


def auroc(form: str, facts: TaskFacts) -> Metric:
    """Return the area under the ROC curve of each class against all others, averaged over classes."""
    return AreaUnderROC(_columns(form, facts), facts.ignore if form == "Multilabel" else None)


def average_precision(form: str, facts: TaskFacts) -> Metric:
    """Return the average precision of each class against all others, averaged over classes."""
    return AveragePrecision(_columns(form, facts), facts.ignore if form == "Multilabel" else None)


def _columns(form: str, facts: TaskFacts) -> int:
    return {"Multiclass": facts.classes or 1, "Multilabel": facts.columns}.get(form, 1)


def _mean(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).nanmean()
