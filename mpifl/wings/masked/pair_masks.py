"""Masks that cancel: in each pair of parties one adds a secret mask, and the other subtracts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mpifl.wings.site import BLOCK, derived, keystream

PIECE = 1 << 15
"""How many numbers are masked at a time: 256 KiB, which fit in the cache together with their masks."""
PURPOSE = b"mpifl mask"
_ZEROS = bytes(8 * PIECE)


def add_masks(sums: Sequence[Tensor], secrets: Mapping[int, bytes], own: int, context: bytes) -> None:
    """Mask a party's sums in place, so that only the sum over all parties reveals anything.

    A pair's mask is AES-256 in counter mode over all sums, in their order. HKDF-SHA256 derives its key from
    the pair's secret, the context and the pair's two ranks. The ranks make masks differ even if two pairs
    have equal secrets. This can happen: different public keys of X25519 may be equivalent, and a party may
    offer the equivalent of another's key (RFC 7748, section 6.1). The party of the lower rank adds the mask,
    the other subtracts it, modulo 2^64.

    Args:
        sums: int64 vectors.
        secrets: The secret shared with each other party, by its rank.
        own: This party's rank.
        context: The digest of the question. It must never be used for other sums.

    Raises:
        TypeError: a sum is not int64.
        ValueError: `secrets` has an entry for this party itself.
    """
    if wrong := [one.dtype for one in sums if one.dtype is not torch.int64]:
        raise TypeError(f"masks are for sums of int64, not {wrong[0]}")
    if own in secrets:
        raise ValueError(f"rank {own} has no secret with itself")
    drawn = bytearray(8 * PIECE + BLOCK)
    masks = torch.frombuffer(drawn, dtype=torch.int64, count=PIECE)
    streams = [
        (keystream(derived(secrets[rank], context, PURPOSE + b" %d %d" % pair)), 1 if own < rank else -1)
        for rank in sorted(secrets)
        for pair in [(min(own, rank), max(own, rank))]
    ]
    for piece in (piece for one in sums for piece in torch.split(one.view(-1), PIECE)):
        zeros = memoryview(_ZEROS)[: 8 * len(piece)]
        for stream, sign in streams:
            stream.update_into(zeros, drawn)
            piece.add_(masks[: len(piece)], alpha=sign)
