"""Numbers that only a site can draw: they follow from its secret and from what is asked of it.

The same question draws the same numbers. So a question that is asked again is answered by the same bits, and
no noise is averaged away. Whoever lacks the secret cannot tell them from chance.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpifl.common import InputError


class Draws:
    """A stream of numbers: AES-256 in counter mode, keyed by HMAC-SHA256 of a secret and what it is for."""

    def __init__(self, secret: bytes, *purpose: str | int) -> None:
        name = "\0".join(["mpifl draws", *map(str, purpose)]).encode()
        self._stream = _cipher(hmac.new(secret, name, hashlib.sha256).digest())

    def words(self, count: int) -> np.ndarray:
        """Return the next whole numbers in [0, 2^64), shape [count]."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype="<u8")

    def chosen(self, count: int, rate: float) -> Tensor:
        """Return which of `count` examples are drawn, each by itself with the chance `rate`."""
        if rate >= 1:
            return torch.arange(count)
        return torch.from_numpy(np.flatnonzero(self.words(count) < np.uint64(math.floor(rate * 2**64))))

    def normal(self, count: int) -> Tensor:
        """Return float32 numbers from the standard normal distribution, shape [count] (Box & Muller 1958)."""
        half = -(-count // 2)
        drawn = torch.from_numpy((self.words(2 * half) >> np.uint64(11)).astype(np.float64)).mul_(2.0**-53)
        radius = drawn[:half].add_(2.0**-54).log_().mul_(-2.0).sqrt_()
        angle = drawn[half:].mul_(2 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count].float()


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        what = "drawing in secret needs cryptography"
        raise InputError(f"[privacy]: {what}; install it: pip install 'mpifl[privacy]'") from None
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
