"""The Gaussian mechanism over silos: clipped updates are added up, and one draw of noise hides each of them.

The sum is divided by the silos that a round expects, not by those that answered, which would tell of each
(McMahan et al. 2018, "Learning differentially private recurrent language models", the fixed denominator).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpifl.wings.privacy.accountant import Steps

RATE = 0.2
"""How fast an adaptive clip moves, in its logarithm."""
BITS = 20
"""The noise of an adaptive clip's bits has the deviation of the expected silos divided by this."""


@dataclass(frozen=True)
class SiloMechanism:
    """What one round releases of the silos' updates, and what that costs.

    Attributes:
        expected: m, the silos that a round expects.
        rate: q, the chance of a silo to be drawn, if that is secret; else 1.
        noise: z, the noise multiplier of all that a round releases together.
        quantile: The share of updates that an adaptive clip lets through whole; None where it is fixed.
    """

    expected: float
    rate: float
    noise: float
    quantile: float | None = None

    @property
    def step(self) -> Steps:
        """What a round costs."""
        return Steps(self.noise, self.rate, 1)

    @property
    def bits_deviation(self) -> float:
        """The deviation of the noise of the sum of bits of an adaptive clip."""
        return self.expected / BITS

    @property
    def noise_of_updates(self) -> float:
        """The noise multiplier of the updates.

        The bits of an adaptive clip take their part of z: (z^-2 - (2 sigma_b)^-2)^(-1/2), as each moves its
        sum by a half (Andrew et al. 2021, "Differentially private learning with adaptive clipping").
        """
        if self.quantile is None:
            return self.noise
        return float((self.noise**-2 - (2 * self.bits_deviation) ** -2) ** -0.5)

    def deviation(self, clip: float) -> float:
        """Return the deviation of the noise of each element of the mean."""
        return self.noise_of_updates * clip / self.expected

    def share(self, halves: float, noise: float) -> float:
        """Return the noised share of updates that are not longer than the clip.

        Args:
            halves: The sum of +1/2 for each update that is not, and -1/2 for each that is.
            noise: Standard normal.
        """
        return 0.5 + (halves + self.bits_deviation * noise) / self.expected

    def next_clip(self, clip: float, share: float) -> float:
        """Return the clip of the next round: C exp(-0.2 (share - quantile)); a fixed one stays."""
        if self.quantile is None:
            return clip
        return clip * math.exp(-RATE * (share - self.quantile))
