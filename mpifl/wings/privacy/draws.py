"""Random numbers that only a site can draw: they follow from its secret and from the question.

The same question draws the same numbers. So repeated questions get the same answer, and nobody can average
the noise away. Without the secret the numbers cannot be told from random ones.
"""

from __future__ import annotations

import hashlib
import hmac
import math

import numpy as np
import torch
from torch import Tensor

from mpifl.wings.privacy import normal
from mpifl.wings.site import BLOCK, keystream

EDITION = 4
"""A part of every question that gets a noised answer. It grows when code changes the noise or the rounding.

The same question under another edition is another question, with separate noise."""
AT_A_TIME = 1 << 15
"""How many numbers are drawn at a time; even."""
HIGH_BITS = 40
"""The high bits of a deviation. `whole_normal` draws the bits below them separately."""
_ZEROS = bytes(max(8 * AT_A_TIME, 4 * normal.words_of(normal.AT_A_TIME)))


class Draws:
    """A stream of numbers: AES-256 in counter mode, keyed by HMAC-SHA256 of a secret and a purpose."""

    def __init__(self, secret: bytes, *purpose: str | int) -> None:
        name = "\0".join(["mpifl draws", *map(str, purpose)]).encode()
        self._stream = keystream(hmac.new(secret, name, hashlib.sha256).digest())

    def words(self, count: int) -> Tensor:
        """Return the next whole numbers in [-2^63, 2^63), int64 of shape [count]."""
        drawn = bytearray(8 * count + BLOCK)  # the cipher needs one spare block
        self._stream.update_into(memoryview(_ZEROS)[: 8 * count], drawn)
        return torch.frombuffer(drawn, dtype=torch.int64, count=count)

    def below(self, count: int, limit: int) -> Tensor:
        """Return whole numbers from 0 to `limit` - 1, uniformly drawn, int64 of shape [count]."""
        parts = [self.words(min(AT_A_TIME, count - i)) for i in range(0, count, AT_A_TIME)]
        return torch.cat(parts or [torch.empty(0, dtype=torch.int64)]).remainder_(limit)

    def chosen(self, count: int, rate: float) -> Tensor:
        """Return the indices of the drawn ones of `count` examples, each with probability `rate`."""
        if rate >= 1:
            return torch.arange(count)
        few = math.floor(rate * 2**64) - 2**63
        parts = [self.words(min(AT_A_TIME, count - i)) < few for i in range(0, count, AT_A_TIME)]
        return torch.cat(parts).nonzero().flatten()

    def add_normal(self, vector: Tensor, deviation: float) -> None:
        """Add normal numbers of a standard deviation to a vector, float32, contiguous, of shape [n].

        The module `normal` documents their range and resolution. They are drawn on the CPU, piece by piece,
        whatever the vector's device.
        """
        if not vector.is_cpu:
            vector.add_(self.normal(len(vector)).mul_(deviation).to(vector.device))
            return
        values, at_a_time = vector.numpy(), normal.AT_A_TIME
        drawn = np.empty(normal.words_of(min(len(values), at_a_time)) + BLOCK // 4, dtype=np.int32)
        for first in range(0, len(values), at_a_time):
            part = values[first : first + at_a_time]
            count = normal.words_of(len(part))
            self._stream.update_into(memoryview(_ZEROS)[: 4 * count], drawn.view(np.uint8))
            normal.add(part, drawn[:count], deviation)

    def normal(self, count: int) -> Tensor:
        """Return numbers from the standard normal distribution, float32 of shape [count]; see `normal`."""
        found = torch.zeros(count, device="cpu")  # a user's code may have changed the default device
        self.add_normal(found, 1.0)
        return found

    def exact_normal(self, count: int) -> Tensor:
        """Return numbers from the standard normal distribution, float64 of shape [count] (Box & Muller 1958).

        All their 53 bits are noise; the largest magnitude is 8.6. They use PyTorch's logarithm, sine and
        cosine, whose last bit differs between processors.
        """
        found = torch.empty(count, dtype=torch.float64)
        for part in torch.split(found, AT_A_TIME):
            half = -(-len(part) // 2)
            drawn = self.words(2 * half).bitwise_and_(2**53 - 1).double().mul_(2.0**-53)
            radius = drawn[:half].add_(2.0**-54).log_().mul_(-2.0).sqrt_()
            angle = drawn[half:].mul_(2 * math.pi)
            part[:half] = radius * angle.cos()
            part[half:] = (radius * angle.sin())[: len(part) - half]
        return found

    def whole_normal(self, count: int, deviation: float) -> Tensor:
        """Return normal numbers rounded to whole ones, deviation up to 2^57, int64 of shape [count].

        A float has 53 bits. Larger numbers get their lower bits from a separate draw, so all bits are noise.
        """
        low = max(math.frexp(deviation)[1] - HIGH_BITS, 0)
        found = self.exact_normal(count).mul_(deviation / 2.0**low).round_().long()
        if not low:
            return found
        parts = [self.words(min(AT_A_TIME, count - i)) for i in range(0, count, AT_A_TIME)]
        below = torch.cat(parts).bitwise_and_(2**low - 1)
        return found.mul_(2**low).add_(below).sub_(2 ** (low - 1))
