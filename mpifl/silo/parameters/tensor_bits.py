"""Tensors of any dtype as bits: compared, and as whole numbers that float64 holds."""

from __future__ import annotations

import torch
from torch import Tensor

WORD = 2.0**32
"""Each number stands for four bytes, and is below this."""


def bytes_of(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor's bytes, uint8 of shape [n]."""
    flat = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return flat.reshape(-1).view(torch.uint8)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one shape and dtype have the same bits. NaN equals itself; -0 differs
    from 0."""
    return torch.equal(_integers(one), _integers(other))


def words_of(tensor: Tensor) -> Tensor:
    """Return a tensor's bits as whole numbers below 2^32, float64 of shape [n]."""
    raw = bytes_of(tensor)
    whole = torch.cat([raw, raw.new_zeros(-len(raw) % 4)])
    return (whole.view(torch.int32).to(torch.int64) & 0xFFFFFFFF).to(torch.float64)


def count_of(tensor: Tensor) -> int:
    """Return how many numbers `words_of` returns for a tensor."""
    return -(-tensor.numel() * tensor.element_size() // 4)


def from_words(words: Tensor, like: Tensor) -> Tensor:
    """Return the tensor that the numbers of `words_of` stand for, with the shape and dtype of `like`.

    Raises:
        ValueError: the numbers are not the bits of such a tensor.
    """
    if not bool(((words == words.round()) & (words >= 0) & (words < WORD)).all()):
        raise ValueError("is not a tensor's bits")
    whole = words.to(torch.int64)
    raw = torch.where(whole < 1 << 31, whole, whole - (1 << 32)).to(torch.int32).view(torch.uint8)
    raw = raw[: like.numel() * like.element_size()]
    if like.dtype == torch.bool and bool((raw > 1).any()):
        raise ValueError("holds flags that are neither true nor false")
    return raw.clone().view(like.dtype).reshape(like.shape)


def ordered(tensor: Tensor) -> Tensor:
    """Return real numbers as int64 keys in the same order, -0 before 0; see `unordered`."""
    if not tensor.is_floating_point():
        return tensor.to(torch.int64)
    found = tensor.to(torch.float64).view(torch.int64)
    return torch.where(found < 0, found ^ 0x7FFFFFFFFFFFFFFF, found)


def unordered(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers that keys of `ordered` stand for."""
    if not dtype.is_floating_point:
        return keys.to(dtype)
    bits = torch.where(keys < 0, keys ^ 0x7FFFFFFFFFFFFFFF, keys)
    return bits.view(torch.float64).to(dtype)


def _integers(tensor: Tensor) -> Tensor:
    """Return the bits of a tensor as whole numbers, without a copy if possible."""
    size = {1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(tensor.element_size(), torch.int64)
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(size)
