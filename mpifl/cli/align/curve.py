"""Points of Curve25519 for ids, and masks that commute, by the package PyNaCl."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mpifl.common import InputError
from mpifl.common.machine import floors

POINT = 32
"""The number of bytes in a point."""
TOGETHER = 2000
"""The number of points that share one inversion."""
PRIME = 2**255 - 19
PURPOSE = b"mpifl align 1"


class Masker:
    """A party's secret, new for each alignment. Without it, nobody can link a masked id to an id.

    PyNaCl releases Python's lock while it computes, so threads work in parallel.
    """

    def __init__(self, threads: int = 1, secret: bytes | None = None) -> None:
        self._secret = os.urandom(POINT) if secret is None else secret
        self._threads, self._pool = threads, ThreadPoolExecutor(threads)
        self._nacl = _bindings()

    def points(self, ids: Sequence[bytes], nonce: bytes) -> bytes:
        """Return a point for each id, 32 bytes each.

        Elligator 2 maps a hash to the curve. A hash used directly as a point would be on the curve for half
        of the ids and on its twist for the others. Masks would not hide that difference.
        """
        parts = (ids[at : at + TOGETHER] for at in range(0, len(ids), TOGETHER))
        return b"".join(point for part in parts for point in self._points(part, nonce))

    def _points(self, ids: Sequence[bytes], nonce: bytes) -> Iterator[bytes]:
        hashes = [hashlib.sha256(PURPOSE + nonce + id).digest() for id in ids]
        return montgomery(self._each(self._nacl.crypto_core_ed25519_from_uniform, hashes))

    def mask(self, points: bytes) -> bytes:
        """Multiply points by this party's secret (X25519, RFC 7748).

        Raises:
            InputError: a point has small order; its product would be zero and reveal the id without a mask.
        """
        apart = [points[at : at + POINT] for at in range(0, len(points), POINT)]
        try:
            return b"".join(self._each(self._masked, apart))
        except self._nacl_error as error:
            raise InputError(
                "a point of small order, whose product is zero; an honest party sends none"
            ) from error

    @property
    def _nacl_error(self) -> Any:
        return importlib.import_module("nacl.exceptions").RuntimeError

    def _masked(self, point: bytes) -> bytes:
        product: bytes = self._nacl.crypto_scalarmult(self._secret, point)
        return product

    def _each(self, work: Any, given: list[bytes]) -> list[bytes]:
        """Return `work(one)` for each, in order, by all threads."""
        if self._threads == 1:
            return [work(one) for one in given]
        step = -(-len(given) // self._threads) or 1
        parts = [given[at : at + step] for at in range(0, len(given), step)]
        return [one for part in self._pool.map(lambda part: [*map(work, part)], parts) for one in part]


def montgomery(points: Iterable[bytes]) -> Iterator[bytes]:
    """Yield u = (1 + y) / (1 - y) mod 2^255 - 19 for points of Ed25519, of which none is zero.

    One inversion serves all points (Montgomery's trick). This is eighteen times as fast as libsodium's own
    conversion, which also checks each point's order. from_uniform already ensures the order.
    """
    heights = [int.from_bytes(point, "little") & (1 << 255) - 1 for point in points]
    before, product = [], 1
    for y in heights:
        before.append(product)
        product = product * (1 - y) % PRIME
    inverse, found = pow(product, -1, PRIME), []
    for y, rest in zip(reversed(heights), reversed(before), strict=True):
        found.append((1 + y) * inverse * rest % PRIME)
        inverse = inverse * (1 - y) % PRIME
    return (u.to_bytes(POINT, "little") for u in reversed(found))


def _bindings() -> Any:
    try:
        bindings = importlib.import_module("nacl.bindings")
    except ImportError:
        what = "aligning needs PyNaCl; pip install 'mpifl[align]'"
        raise InputError(f"{what}, or have all parties use --plain with a key") from None
    floors.hold("align")
    return bindings
