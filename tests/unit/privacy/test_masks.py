"""Masks: those of HKDF and AES in counter mode, written out here, and gone in the sum over all parties."""

from __future__ import annotations

import hashlib
import hmac
import sys

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings, strategies as st
from scipy import stats

from mpifl.common import InputError
from mpifl.wings.masked import add_masks
from mpifl.wings.masked.pair_masks import PIECE

SECRET, CONTEXT = bytes(range(32)), bytes(range(100, 132))


def mask_of(secret: bytes, context: bytes, count: int, low: int, high: int) -> np.ndarray:
    """RFC 5869 with one block, and NIST SP 800-38A 6.5 with counters from zero on, written out."""
    extracted = hmac.new(context, secret, hashlib.sha256).digest()
    key = hmac.new(extracted, b"mpifl mask %d %d\x01" % (low, high), hashlib.sha256).digest()
    counters = b"".join(block.to_bytes(16, "big") for block in range(-(-count // 2)))
    block_by_block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counters)
    return np.frombuffer(block_by_block, "<u8")[:count]


def as_words(sums: list[torch.Tensor]) -> np.ndarray:
    return torch.cat(sums).numpy().view(np.uint64)


def parties(count: int) -> list[dict[int, bytes]]:
    """Return the secrets of each party."""
    pairs = {(i, j): hashlib.sha256(b"%d %d" % (i, j)).digest() for i in range(count) for j in range(i)}
    return [{j: pairs[max(i, j), min(i, j)] for j in range(count) if j != i} for i in range(count)]


@pytest.mark.parametrize(("own", "sign"), [(1, 1), (5, -1)])
def test_a_mask_is_the_keystream_that_the_standards_describe(own, sign):
    lengths = (3, 0, 2 * PIECE + 5, 1, 7)
    sums = [torch.arange(length) - 2 for length in lengths]
    before = as_words(sums)
    add_masks(sums, {3: SECRET}, own, CONTEXT)
    mask = mask_of(SECRET, CONTEXT, sum(lengths), min(own, 3), max(own, 3))
    expected = before + mask if sign > 0 else before - mask
    assert (as_words(sums) == expected).all()


def test_masks_of_several_parties_add_up_in_whatever_order_they_are_named():
    secrets = {rank: hashlib.sha256(b"%d" % rank).digest() for rank in (1, 2, 4)}
    one, other = torch.zeros(11, dtype=torch.int64), torch.zeros(11, dtype=torch.int64)
    add_masks([one], secrets, 3, CONTEXT)
    add_masks([other], dict(reversed(secrets.items())), 3, CONTEXT)
    drawn = {
        rank: mask_of(secret, CONTEXT, 11, min(rank, 3), max(rank, 3)) for rank, secret in secrets.items()
    }
    assert torch.equal(one, other)
    assert (as_words([one]) == drawn[4] - drawn[1] - drawn[2]).all()


def sum_of(sums: list[list[torch.Tensor]], contexts: list[bytes]) -> np.ndarray:
    """Mask all parties' sums and add them up."""
    masked = [[one.clone() for one in own] for own in sums]
    for rank, secrets in enumerate(parties(len(sums))):
        add_masks(masked[rank], secrets, rank, contexts[rank])
    return sum((as_words(own) for own in masked), np.zeros(1, np.uint64))


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.data(), st.integers(2, 6), st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_masked_sums_add_up_to_the_plain_sum_and_only_in_one_context(data, count, lengths):
    seed = data.draw(st.integers(0, 2**32 - 1))
    draws = np.random.default_rng(seed)
    whole = np.iinfo(np.int64)
    sums = [
        [torch.from_numpy(draws.integers(whole.min, whole.max, n, endpoint=True)) for n in lengths]
        for _ in range(count)
    ]
    plain = sum((as_words(own) for own in sums), np.zeros(1, np.uint64))
    assert (sum_of(sums, [CONTEXT] * count) == plain).all()
    at, bit = data.draw(st.integers(0, len(CONTEXT) - 1)), data.draw(st.integers(0, 7))
    other = bytearray(CONTEXT)
    other[at] ^= 1 << bit
    contexts = [CONTEXT] * count
    contexts[data.draw(st.integers(0, count - 1))] = bytes(other)
    assert (sum_of(sums, contexts) != plain).all(), "by chance in one of 2^64"


def test_a_masked_sum_looks_like_chance():
    sums = [torch.zeros(1 << 17, dtype=torch.int64)]
    add_masks(sums, {2: SECRET}, 1, CONTEXT)
    counts = np.bincount(sums[0].numpy().view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    bits = np.unpackbits(sums[0].numpy().view(np.uint8)).astype(np.float64) - 0.5
    assert abs(np.corrcoef(bits[:-64], bits[64:])[0, 1]) < 6 / np.sqrt(len(bits)), "word by word"


def test_two_pairs_of_one_secret_have_masks_that_do_not_cancel():
    """A party may offer a key that stands for another's: the secrets are equal then, the signs opposite."""
    masked = torch.zeros(11, dtype=torch.int64)
    add_masks([masked], {1: SECRET, 3: SECRET}, 2, CONTEXT)
    one, other = mask_of(SECRET, CONTEXT, 11, 2, 3), mask_of(SECRET, CONTEXT, 11, 1, 2)
    assert (as_words([masked]) == one - other).all()
    assert (as_words([masked]) != 0).all()


def test_what_cannot_be_masked_is_refused():
    with pytest.raises(TypeError, match=r"int64, not torch\.float64"):
        add_masks([torch.zeros(2, dtype=torch.float64)], {2: SECRET}, 1, CONTEXT)
    with pytest.raises(ValueError, match="rank 1 has no secret with itself"):
        add_masks([torch.zeros(2, dtype=torch.int64)], {1: SECRET}, 1, CONTEXT)


@pytest.mark.parametrize("library", ["kdf.hkdf", "ciphers"])
def test_without_the_library_a_line_says_what_to_install(monkeypatch, library):
    monkeypatch.setitem(sys.modules, f"cryptography.hazmat.primitives.{library}", None)
    with pytest.raises(InputError, match=r"needs cryptography; install it: pip install 'mpifl\[privacy\]'"):
        add_masks([torch.zeros(2, dtype=torch.int64)], {2: SECRET}, 1, CONTEXT)
