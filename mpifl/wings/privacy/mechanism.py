"""The Gaussian mechanism over silos: noise on the sum of clipped updates hides each update.

The sum is divided by the expected number of silos. The number that answered would reveal who took part
(McMahan et al. 2018, "Learning differentially private recurrent language models", the fixed denominator).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpifl.wings.privacy.accountant import Steps

RATE = 0.2
"""The learning rate of the logarithm of an adaptive clip."""
BITS = 20
"""The noise on an adaptive clip's bits has the deviation m / BITS, for m expected silos."""


@dataclass(frozen=True)
class SiloMechanism:
    """The noise of one round's release, and its privacy cost.

    Attributes:
        expected: m, the expected number of silos in a round.
        rate: q, the probability that a silo is drawn, if the draw is secret; else 1.
        noise: z, the noise multiplier of a round's whole release.
        quantile: The share of updates that an adaptive clip leaves whole; None for a fixed clip.
    """

    expected: float
    rate: float
    noise: float
    quantile: float | None = None

    @property
    def step(self) -> Steps:
        """The cost of one round."""
        return Steps(self.noise, self.rate, 1)

    @property
    def bits_deviation(self) -> float:
        """The deviation of the noise on the sum of an adaptive clip's bits."""
        return self.expected / BITS

    @property
    def noise_of_updates(self) -> float:
        """The noise multiplier of the updates.

        An adaptive clip's bits use up a part of z. The updates have (z^-2 - (2 sigma_b)^-2)^(-1/2), since
        each bit changes the sum of bits by 1/2 (Andrew et al. 2021, "Differentially private learning with
        adaptive clipping").
        """
        if self.quantile is None:
            return self.noise
        return float((self.noise**-2 - (2 * self.bits_deviation) ** -2) ** -0.5)

    def deviation(self, clip: float) -> float:
        """Return the deviation of the noise on each element of the mean."""
        return self.noise_of_updates * clip / self.expected

    def share(self, halves: float, noise: float) -> float:
        """Return the noised share of updates whose norm is at most the clip.

        Args:
            halves: The sum over updates of +1/2 if the norm is at most the clip, else -1/2.
            noise: A standard normal number.
        """
        return 0.5 + (halves + self.bits_deviation * noise) / self.expected

    def next_clip(self, clip: float, share: float) -> float:
        """Return the next round's clip: C exp(-0.2 (share - quantile)); a fixed clip stays."""
        if self.quantile is None:
            return clip
        return clip * math.exp(-RATE * (share - self.quantile))
