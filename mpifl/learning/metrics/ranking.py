"""Areas under curves: of single examples where all are at hand, else from counts over fine places.

Counts add up over silos. Examples at one place count as equal, as examples of one probability do. So an area
of counts differs from that of all single examples by a bound that the counts tell. `places.py` has what a
place is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mpifl.learning.metrics.metric import Metric
from mpifl.learning.metrics.places import ProbabilityRanges, coded, decoded
from mpifl.learning.metrics.summed_metrics import Sums
from mpifl.learning.tasks import TaskFacts

GROUPS = 50
"""Parts of the positives, and of the negatives, that a curve is told by."""
NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
MOST_SINGLE = 1 << 22
"""The most probabilities, of all columns together, that are kept one by one."""


@dataclass(frozen=True)
class Ranked:
    """Counts of one column at n probabilities, from the lowest up.

    Attributes:
        p: The probabilities, float64 [n]: those of examples, or the middle of each place that has examples.
        yes, no: How many positives and negatives each has, float64 [n].
        single: Whether these are the probabilities of examples.
    """

    p: Tensor
    yes: Tensor
    no: Tensor
    single: bool = False

    @classmethod
    def of_places(cls, counts: Tensor, places: ProbabilityRanges) -> Ranked:
        """Return the counts of one column, given negatives and positives at all places, [places, 2]."""
        at = torch.unique_consecutive(counts.flatten().nonzero().flatten() // 2)
        no, yes = counts[at].double().T
        return cls(places.probabilities(at), yes, no)

    @classmethod
    def of_single(cls, codes: Tensor) -> Ranked:
        """Return the counts of one column, given the codes of its probabilities, as `coded` returns them."""
        different, many = torch.unique(codes[codes >= 0], return_counts=True)
        p, yes = decoded(different)
        return cls(p, many * yes, many * (1 - yes), single=True).with_others([])

    @property
    def below(self) -> Tensor:
        """For each place the negatives that a positive there is ranked above; equal ones count 1/2."""
        return self.no.cumsum(0) - self.no / 2

    def with_others(self, others: Sequence[Ranked]) -> Ranked:
        """Return the counts of several columns together."""
        every = [self, *others]
        p, place = torch.unique(torch.cat([one.p for one in every]), return_inverse=True)
        yes, no = (torch.zeros(len(p), dtype=torch.float64).index_add(0, place, torch.cat(of).double())
                   for of in ([one.yes for one in every], [one.no for one in every]))  # fmt: skip
        return Ranked(p, yes, no, all(one.single for one in every))

    def area(self) -> float:
        """Return the area under the ROC curve, NaN without positives or without negatives."""
        pairs = float(self.yes.sum() * self.no.sum())
        return float((self.yes * self.below).sum()) / pairs if pairs else math.nan

    def area_within(self) -> float:
        """Return how far `area` may be from that of all single examples."""
        if self.single:
            return 0.0
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
        if self.single or not total:
            return 0.0 if self.single else math.nan
        right, called = self._from_the_top()
        yes, no = self.yes.flip(0), self.no.flip(0)
        each = yes.long()
        nth = torch.arange(1, total + 1) - (each.cumsum(0) - each).repeat_interleave(each)
        before, wrong = (right - yes).repeat_interleave(each), (called - right).repeat_interleave(each)
        hits = before + nth
        least = float((hits / (hits + wrong)).sum()) / total
        most = float((hits / (hits + wrong - no.repeat_interleave(each))).sum()) / total
        return max(most - self.precision(), self.precision() - least, 0.0)

    def told(self) -> list[list[float | int]]:
        """Return groups of neighbours, the lowest first: mean probability, positives, negatives.

        A group has about one of GROUPS parts of the positives, or of the negatives. No group is on both sides
        of 1/2.
        """
        yes, no, p = self.yes, self.no, self.p
        parts = [(GROUPS * (of.cumsum(0) - of) / of.sum().clamp(min=1)).floor() for of in (yes, no)]
        _, group = torch.unique_consecutive(parts[0] + parts[1] + (p > 0.5), return_inverse=True)
        sums = [torch.zeros(int(group[-1]) + 1, dtype=torch.float64).index_add(0, group, of)
                for of in (p * (yes + no), yes, no)]  # fmt: skip
        means = (sums[0] / (sums[1] + sums[2])).tolist()
        each = zip(means, sums[1].tolist(), sums[2].tolist(), strict=True)
        return [[float(f"{mean:.4g}"), int(right), int(wrong)] for mean, right, wrong in each]

    def confusion(self, threshold: float) -> Tensor | None:
        """Return no and yes by what is answered, yes above a threshold, shape [2, 2]; None where places do
        not tell it."""
        if threshold != 0.5 and not self.single:
            return None
        high = self.p > threshold
        return torch.stack([torch.stack([of[~high].sum(), of[high].sum()]) for of in (self.no, self.yes)])

    def _from_the_top(self) -> tuple[Tensor, Tensor]:
        """Return how many are rightly called, and how many are called, down to each place."""
        right = self.yes.flip(0).cumsum(0)
        return right, right + self.no.flip(0).cumsum(0)


class RankingMetric(Sums):
    """Counts of positives and negatives of each column by place, and the probabilities one by one while they
    are few.

    Args:
        columns: C, the columns of probabilities.
        ignore: A target that does not count, if an example has several targets.

    Attributes:
        counts: What adds up over silos.
        single: Codes of all examples' probabilities, as `coded` returns them, shape [n, C] each; None where
            they are more than MOST_SINGLE, or not known, as behind a sum of counts.
    """

    higher_is_better = True
    counts: Tensor

    def __init__(self, columns: int, ignore: int | None) -> None:
        super().__init__()
        self.places, self.ignore = ProbabilityRanges.of_columns(columns), ignore
        self.sums((columns, self.places.count, 2), "counts")
        self.single: list[Tensor] | None = []

    def update(self, predictions: Tensor, y: Tensor) -> None:
        """Add probabilities, shape [n] or [n, C], and 0 and 1 of that shape or the true column, shape [n]."""
        wide = predictions.reshape(len(y), -1)
        columns, places = self.counts.shape[:2]
        each = torch.arange(columns, device=wide.device)
        yes = (y if y.shape == predictions.shape else y.unsqueeze(1) == each).reshape(wide.shape)
        key = (each * places + self.places.of(wide)) * 2 + yes
        counted = None if self.ignore is None or yes.dtype == torch.bool else yes != self.ignore
        kept = key.reshape(-1) if counted is None else key[counted]
        self.counts.view(-1).index_add_(0, kept, torch.ones_like(kept))
        if self.single is not None:
            self.keep([*self.single, coded(wide, yes, counted)])

    def keep(self, single: list[Tensor]) -> None:
        """Take these as the codes of all examples' probabilities, if they are few enough."""
        self.single = single if sum(one.numel() for one in single) <= MOST_SINGLE else None

    def keep_counted(self, single: Tensor) -> None:
        """Take these as the codes of all that was counted, if they are of as many positives and negatives."""
        kept = [((single >= 0) & (single & 1 == yes)).sum(0) for yes in (0, 1)]
        if torch.equal(torch.stack(kept, 1), self.counts.sum(1)):
            self.keep([single])

    def ranked(self) -> list[Ranked]:
        """Return the counts of each column."""
        if self.single is None:
            return [Ranked.of_places(counts, self.places) for counts in self.counts.cpu()]
        none = torch.zeros((0, len(self.counts)), dtype=torch.int32)
        return [Ranked.of_single(codes) for codes in torch.cat([none, *(one.cpu() for one in self.single)]).T]

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
