"""Numbers that only a site can draw: they follow from its secret and from what is asked of it.

The same question draws the same numbers. So a question that is asked again is answered by the same bits, and
no noise is averaged away. Whoever lacks the secret cannot tell them from chance.
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
"""Part of every question whose answer is noised: it grows where the same question would draw other noise, or
its answer be rounded otherwise. An older edition was asked another question, with noise of its own."""
AT_A_TIME = 1 << 15
"""Numbers that are drawn at a time; even."""
HIGH_BITS = 40
"""Bits of a deviation above those that are drawn by themselves."""
_ZEROS = bytes(max(8 * AT_A_TIME, 4 * normal.words_of(normal.AT_A_TIME)))


class Draws:
    """A stream of numbers: AES-256 in counter mode, keyed by HMAC-SHA256 of a secret and what it is for."""

    def __init__(self, secret: bytes, *purpose: str | int) -> None:
        name = "\0".join(["mpifl draws", *map(str, purpose)]).encode()
        self._stream = keystream(hmac.new(secret, name, hashlib.sha256).digest())

    def words(self, count: int) -> Tensor:
        """Return the next whole numbers in [-2^63, 2^63), int64 of shape [count]."""
        drawn = bytearray(8 * count + BLOCK)  # which the cipher wants to spare
        self._stream.update_into(memoryview(_ZEROS)[: 8 * count], drawn)
        return torch.frombuffer(drawn, dtype=torch.int64, count=count)

    def below(self, count: int, limit: int) -> Tensor:
        """Return whole numbers from 0 to `limit` - 1, all alike likely, int64 of shape [count]."""
        parts = [self.words(min(AT_A_TIME, count - i)) for i in range(0, count, AT_A_TIME)]
        return torch.cat(parts or [torch.empty(0, dtype=torch.int64)]).remainder_(limit)

    def chosen(self, count: int, rate: float) -> Tensor:
        """Return which of `count` examples are drawn, each by itself with the chance `rate`."""
        if rate >= 1:
            return torch.arange(count)
        few = math.floor(rate * 2**64) - 2**63
        parts = [self.words(min(AT_A_TIME, count - i)) < few for i in range(0, count, AT_A_TIME)]
        return torch.cat(parts).nonzero().flatten()

    def add_normal(self, vector: Tensor, deviation: float) -> None:
        """Add normal numbers of a deviation to a vector, float32, contiguous, of shape [n].

        What they are, and how large and how fine they come, says `normal`. They are made on the CPU, whatever
        the vector's device, piece by piece.
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
        found = torch.zeros(count, device="cpu")  # whatever a user's code has made the default
        self.add_normal(found, 1.0)
        return found

    def exact_normal(self, count: int) -> Tensor:
        """Return numbers from the standard normal distribution, float64 of shape [count] (Box & Muller 1958).

        All their 53 bits are noise; the largest are 8.6. Logarithm, sine and cosine are those of PyTorch,
        which differ in the last bit between processors.
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
        """Return whole numbers from the normal distribution of a deviation of up to 2^57, int64 of [count].

        A float has 53 bits. Below those of the numbers, bits are drawn by themselves, so that all are noise.
        """
        low = max(math.frexp(deviation)[1] - HIGH_BITS, 0)
        found = self.exact_normal(count).mul_(deviation / 2.0**low).round_().long()
        if not low:
            return found
        parts = [self.words(min(AT_A_TIME, count - i)) for i in range(0, count, AT_A_TIME)]
        below = torch.cat(parts).bitwise_and_(2**low - 1)
        return found.mul_(2**low).add_(below).sub_(2 ** (low - 1))
