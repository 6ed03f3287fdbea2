"""Masks that cancel: of each pair of parties the one adds what the other subtracts, unknown to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mpifl.wings.site import BLOCK, derived, keystream

PIECE = 1 << 15
"""Numbers that are masked at a time: 256 KiB, which the processor's cache holds with their masks."""
PURPOSE = b"mpifl mask"
_ZEROS = bytes(8 * PIECE)


def add_masks(sums: Sequence[Tensor], secrets: Mapping[int, bytes], own: int, context: bytes) -> None:
    """Mask a party's sums in place, so that only the sum over all parties tells anything.

    A pair's mask is AES-256 in counter mode over all sums, in their order. Its key follows from the pair's
    secret, the context and the pair's two ranks by HKDF-SHA256. Two pairs have different masks even where
    their secrets are equal: some public keys of X25519 stand for others, so that a party may offer the twin
    of another's (RFC 7748, section 6.1). The party of the lower rank adds the mask, the other subtracts it,
    modulo 2^64.

    Args:
        sums: int64 vectors.
        secrets: The secret shared with each other party, by its rank.
        own: This party's rank.
        context: What the sums are of; a context is used once, or for the same sums again.

    Raises:
        TypeError: a sum is not of int64.
        ValueError: a party has no secret with itself.
    """
    if wrong := [one.dtype for one in sums if one.dtype is not torch.int64]:
        raise TypeError(f"masks are for sums of int64, not {wrong[0]}")
    if own in secrets:
        raise ValueError(f"rank {own} has no secret with itself")
    drawn = bytearray(8 * PIECE + BLOCK)
    masks = torch.frombuffer(drawn, dtype=torch.int64, count=PIECE)
    streams = [
        (keystream(derived(secrets[rank], context, _purpose(own, rank))), 1 if own < rank else -1)
        for rank in sorted(secrets)
    ]
    for piece in (piece for one in sums for piece in torch.split(one.view(-1), PIECE)):
        zeros = memoryview(_ZEROS)[: 8 * len(piece)]
        for stream, sign in streams:
            stream.update_into(zeros, drawn)
            piece.add_(masks[: len(piece)], alpha=sign)


def _purpose(own: int, other: int) -> bytes:
    """Return what the key of a pair's mask is for."""
    return PURPOSE + b" %d %d" % (min(own, other), max(own, other))
