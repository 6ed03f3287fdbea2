"""Packing of codes of a few bits each into bytes, without gaps."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack codes below 2^bits, uint8, lowest bits first; return ceil(n * bits/8) bytes."""
    group, size = _group(bits)
    columns = pad(codes, (0, -len(codes) % group)).view(-1, group)
    packed = torch.zeros(len(columns), size, dtype=torch.uint8, device=codes.device)
    for column, byte, shift in _overlaps(bits):
        code = columns[:, column]
        packed[:, byte] |= code << shift if shift >= 0 else code >> -shift
    return packed.view(-1)[: -(-len(codes) * bits // 8)]


def unpack(packed: Tensor, bits: int, length: int) -> Tensor:
    """Read back what `pack` wrote: uint8, shape [length]."""
    group, size = _group(bits)
    columns = pad(packed, (0, -len(packed) % size)).view(-1, size)
    codes = torch.zeros(len(columns), group, dtype=torch.uint8, device=packed.device)
    for column, byte, shift in _overlaps(bits):
        part = columns[:, byte]
        codes[:, column] |= part >> shift if shift >= 0 else part << -shift
    return codes.bitwise_and_((1 << bits) - 1).view(-1)[:length]


def _group(bits: int) -> tuple[int, int]:
    """Return the least number of codes that fill whole bytes, and the number of these bytes."""
    common = math.gcd(8, bits)
    return 8 // common, bits // common


def _overlaps(bits: int) -> list[tuple[int, int, int]]:
    """Return (code, byte, shift of the code to its place in the byte) for all that overlap in a group."""
    group, size = _group(bits)
    pairs = [(code, byte, bits * code - 8 * byte) for code in range(group) for byte in range(size)]
    return [(code, byte, shift) for code, byte, shift in pairs if -bits < shift < 8]
