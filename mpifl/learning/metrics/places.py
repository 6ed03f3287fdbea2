"""Places: ranges of probabilities, narrow where the scores of models lie close together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate

import torch
from torch import Tensor

LOW, HIGH = 40, 24
"""Halvings of 1/2 that places tell apart: of a probability below 1/2, and of its distance from 1 above."""
HALF = 126
"""The biased exponent of 1/2 as a float32."""
MANTISSA = 23
"""The bits of a float32's mantissa."""
FINE = (14,) * 2 + (12,) * 4 + (11,) * 6 + (9,) * (LOW - 12)
"""Bits of the mantissa that tell places of one column apart, by halving: [1/4, 1/2) first."""


@dataclass(frozen=True)
class ProbabilityRanges:
    """Ranges of probabilities, numbered from the lowest up: some leading bits of the number.

    Places are as narrow near 1 as they are near 0: above 1/2 the distance from 1 is looked at.

    Attributes:
        bits: Of how many bits of the mantissa, by halving: [1/4, 1/2) first, LOW of them.
    """

    bits: tuple[int, ...]

    @classmethod
    @cache
    def of_columns(cls, columns: int) -> ProbabilityRanges:
        """Return the places of each of so many columns: FINE for one, 7 bits for ten.

        A state of one column has about 2^18 numbers, one of ten 2^17. More columns keep fewer bits each, at
        least 2: an average over columns needs less of each.
        """
        few = max(2, 9 - math.ceil(0.6 * math.log2(max(columns, 1))))
        return cls(FINE if columns <= 1 else (few,) * LOW)

    @cached_property
    def starts(self) -> list[int]:
        """The first place of each halving, and the place of 1/2 before them."""
        return [*accumulate((1 << bits for bits in reversed(self.bits)), initial=0)][::-1]

    @property
    def middle(self) -> int:
        """The place of 1/2."""
        return self.starts[0]

    @property
    def count(self) -> int:
        """How many there are."""
        return 2 * self.middle - self.starts[HIGH] + 1

    def of(self, probabilities: Tensor) -> Tensor:
        """Return the place of each probability, int64 of the same shape; NaN is at the lowest place."""
        p = probabilities.float().nan_to_num(nan=0.0).clamp(0.0, 1.0)
        number = torch.where(p > 0.5, 1.0 - p, p).contiguous().view(torch.int32).long()
        halving = (HALF - 1 - (number >> MANTISSA)).clamp(-1, LOW - 1)
        dropped = [MANTISSA, *(MANTISSA - bits for bits in self.bits)]
        starts, drops = (torch.tensor(of, device=p.device) for of in (self.starts, dropped))
        low = starts[halving + 1] + ((number & ((1 << MANTISSA) - 1)) >> drops[halving + 1])
        low = torch.where(number >> MANTISSA < HALF - LOW, 0, low)
        return torch.where(p > 0.5, (2 * self.middle - low).clamp(max=self.count - 1), low)

    def probabilities(self, places: Tensor) -> Tensor:
        """Return the middle of the probabilities at each place, float64 of the same shape."""
        low = self.middle - (places - self.middle).abs()
        starts = torch.tensor(self.starts[:0:-1])
        nth = torch.searchsorted(starts, low.clamp(max=self.middle - 1), right=True) - 1  # from the lowest up
        drops = MANTISSA - torch.tensor(self.bits[::-1])[nth]
        number = ((HALF - LOW + nth) << MANTISSA) + ((low - starts[nth]) << drops)
        low, high = (
            one.to(torch.int32).view(torch.float32).double() for one in (number, number + (1 << drops))
        )
        mean = (low + high) / 2
        mean = torch.where(places == self.middle, 0.5, mean)
        return torch.where(places > self.middle, 1 - mean, mean)
