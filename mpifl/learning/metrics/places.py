"""Places: ranges of probabilities, narrow where the scores of models lie close together.

Codes are the probabilities of single examples.
"""

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
FINEST = 14
"""The most bits of the mantissa that tell places apart."""
LARGEST = 1 << 19
"""The most numbers of a state, unless columns are so many that each has 2 bits."""
NOT_COUNTED = -1
"""The code of a target that does not count."""


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
        """Return the places of each of so many columns, as narrow as a state of LARGEST numbers allows.

        They are narrowest from one part of so many on, about which probabilities of classes lie, up to 1/2.
        """
        near = 2 + int(math.log2(max(columns, 1)))
        for most in range(FINEST, 2, -1):
            less = (0,) * near + (2,) * 4 + (3,) * 6 + (5,) * LOW
            found = cls(tuple(max(most - by, 2) for by in less[:LOW]))
            if 2 * max(columns, 1) * found.count <= LARGEST:
                return found
        return cls((2,) * LOW)

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
        p = _float32(probabilities)
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


def coded(probabilities: Tensor, yes: Tensor, counted: Tensor | None = None) -> Tensor:
    """Return a code of each probability as a float32 and of its target, int32 of the same shape.

    Codes are ordered as probabilities are. The last bit is the target.

    Args:
        probabilities: From 0 to 1; NaN is taken as 0.
        yes: The targets, 0 and 1, of the same shape.
        counted: Which of them count, of the same shape; by default all.
    """
    found = _float32(probabilities).contiguous().view(torch.int32) * 2 + (yes == 1)
    return found if counted is None else found.masked_fill(~counted, NOT_COUNTED)


def decoded(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probabilities and the targets of codes, float64 and int64 of the same shape."""
    return (codes >> 1).view(torch.float32).double(), codes.long() & 1


def are_codes(codes: Tensor) -> bool:
    """Return whether all numbers are such as `coded` returns."""
    most = 2 * int(torch.ones(1).view(torch.int32)) + 1
    return not codes.numel() or bool(codes.min() >= NOT_COUNTED and codes.max() <= most)


def _float32(probabilities: Tensor) -> Tensor:
    """Return probabilities as float32 from 0 to 1, without a negative zero."""
    return probabilities.float().nan_to_num(nan=0.0).clamp(0.0, 1.0) + 0.0
