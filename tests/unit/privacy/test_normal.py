"""Normal numbers of random words: the right ones, to the ends, and the same bits by both ways."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import torch
from scipy import stats

from mpifl.wings.privacy import Draws, normal

SECRET = bytes(range(32))
MANY = 8_000_000
TURNED = -(2**31)
"""A word whose highest bit alone is set."""
needs_compiler = pytest.mark.skipif(normal.compiled() is None, reason="no C compiler here")


@pytest.fixture(scope="module")
def drawn():
    return Draws(SECRET, "normal").normal(MANY).numpy()


def words(*pairs):
    """Return the words of pairs (high, low, turn) as they lie."""
    return np.array(pairs, dtype=np.int64).T.astype(np.int32).ravel()


def made(given, count=None):
    """Return the numbers of words, by whatever is at hand."""
    found = np.zeros(2 * len(given) // 3 if count is None else count, dtype=np.float32)
    normal.add(found, given, 1.0)
    return found


def some_words(pairs, seed=0):
    """Return words of pairs, many of them close to an end of what they may be."""
    rng = np.random.default_rng(seed)
    high, low, turn = rng.integers(-(2**31), 2**31, (3, pairs))
    small = rng.integers(0, 31, (3, pairs))
    keep = rng.random((3, pairs)) < 0.5
    high = np.where(keep[0], high, high & (TURNED | 2**30) | (high & (2**30 - 1)) >> small[0])
    low = np.where(keep[1], low, low & TURNED | (low & (2**31 - 1)) >> small[1])
    return np.concatenate([high, low, np.where(keep[2], turn, turn >> small[2])]).astype(np.int32)


def by_definition(high, low, turn):
    """Return the pair by the definition, with the numbers of Python."""
    end = ((high & (2**30 - 1)) * 2**31 + (low & (2**31 - 1)) + 0.5) / 2**62
    radius = math.sqrt(-2 * (math.log1p(-end) if high & 2**30 else math.log(end)))
    angle = math.pi / 4 * (turn | 1) / 2**31
    one, other = math.cos(angle), math.sin(angle)
    if low < 0:
        one, other = other, one
    return (-radius * one, -radius * other) if high < 0 else (radius * one, radius * other)


def test_numbers_are_those_of_the_definition():
    given = some_words(3000)
    found = made(given)
    right = np.array([by_definition(*map(int, one)) for one in given.reshape(3, -1).T]).T.ravel()
    assert np.abs(found / right - 1).max() < 4e-7, "a float32 is rounded by 6e-8, in each of a few steps"


@needs_compiler
@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 100_001])
def test_the_compiled_loop_and_arrays_give_the_same_bits(monkeypatch, count):
    given, start = some_words(-(-count // 2), count), np.linspace(-1, 1, count, dtype=np.float32)
    one, other = start.copy(), start.copy()
    normal.add(one, given, 0.3)
    monkeypatch.setattr(normal, "compiled", lambda: None)
    normal.add(other, given, 0.3)
    assert one.tobytes() == other.tobytes()
    assert not np.array_equal(one, start)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_stream_has_these_bits_on_every_machine(monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(normal, "compiled", lambda: None)
    found = Draws(SECRET, "normal").normal(normal.AT_A_TIME + 1001).numpy()
    assert hashlib.sha256(found.astype("<f4").tobytes()).hexdigest()[:16] == "3958eed9e46e43f8"


def test_the_largest_number_is_that_of_the_words_that_are_all_zero():
    largest, small = made(words((0, 0, 0)))
    assert largest == pytest.approx(normal.LARGEST, rel=2e-7)
    assert pytest.approx(9.3455, abs=1e-4) == normal.LARGEST
    assert 2 * stats.norm.sf(normal.LARGEST) < 1e-20, "what is left out comes once in 10^20 numbers"
    assert small == pytest.approx(normal.LARGEST * math.pi / 4 * 2.0**-31, rel=1e-6)
    assert abs(made(some_words(200_000))).max() <= largest
    assert made(words((0, 1, 0)))[0] < largest, "62 bits tell it from the next"


def test_the_smallest_radius_is_2_to_the_minus_31():
    assert made(words((2**30, 0, 0)))[0] == 2.0**-31
    one, two = made(words((2**30, 0, 0), (2**30, 1, 0)))[:2]
    assert two / one == pytest.approx(math.sqrt(3)), "u is 1 - 2^-63, then 1 - 3 * 2^-63"


def test_each_bit_of_a_word_has_its_part():
    high, low, turn = 0x01234567, 0x089ABCDE, 0x13579BDF
    one, other = made(words((high, low, turn)))
    assert made(words((high | TURNED, low, turn))).tolist() == [-one, -other]
    assert made(words((high, low | TURNED, turn))).tolist() == [other, one]
    assert made(words((high, low, ~turn))).tolist() == [one, -other]
    # below an end, single bits of the radius; next to zero, those of the angle
    radii = [made(words((0, 1 << bit, 0)))[0] for bit in range(31)]
    radii += [made(words((1 << bit, 0, 0)))[0] for bit in range(30)]
    assert radii == sorted(radii, reverse=True)
    assert len(set(radii)) == 61
    sines = [made(words((5, 5, 1 << bit)))[1] for bit in range(1, 31)]
    assert sines == sorted(sines)
    assert len(set(sines)) == 30


def test_moments_are_those_of_the_normal_distribution(drawn):
    exact = drawn.astype(np.float64)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs((exact**power).mean() - moment) < 5 * math.sqrt(variance / MANY), power
    halves = exact[: normal.AT_A_TIME].reshape(2, -1)
    assert abs(np.corrcoef(halves)[0, 1]) < 5 / math.sqrt(normal.AT_A_TIME / 2)
    assert abs(np.corrcoef(halves**2)[0, 1]) < 5 / math.sqrt(normal.AT_A_TIME / 2)
    assert abs(np.corrcoef(exact[1:], exact[:-1])[0, 1]) < 5 / math.sqrt(MANY)


def test_the_distribution_is_the_normal_one(drawn):
    assert stats.kstest(drawn.astype(np.float64), "norm").pvalue > 1e-4
    middle = drawn[np.abs(drawn) < 1e-3].astype(np.float64)
    assert stats.kstest(middle, "uniform", (-1e-3, 2e-3)).pvalue > 1e-4, "next to zero it is flat"


@pytest.mark.parametrize("beyond", [1, 2, 3, 4, 5])
def test_tails_are_as_heavy_as_they_must_be(drawn, beyond):
    for tail in (drawn > beyond, drawn < -beyond):
        assert stats.binomtest(int(tail.sum()), MANY, stats.norm.sf(beyond)).pvalue > 1e-4


def test_next_to_zero_numbers_are_many_and_none_is_zero(drawn):
    assert not (drawn == 0).any()
    near = drawn[np.abs(drawn) < 2.0**-10]
    assert len(near) == pytest.approx(MANY * math.erf(2.0**-10.5), rel=5 / math.sqrt(len(near)))
    # of floats so far apart as those next to 1 there are 2^14 here, by which most of these would be twice
    assert len(np.unique(near)) > 0.999 * len(near)


def test_noise_is_added_as_a_multiple_of_the_numbers():
    vector = np.linspace(-3, 3, 70_001, dtype=np.float32)
    noised = torch.from_numpy(vector.copy())
    Draws(SECRET, "add").add_normal(noised, 0.7)
    numbers = Draws(SECRET, "add").normal(len(vector)).numpy()
    assert np.array_equal(noised.numpy(), vector + numbers * np.float32(0.7))
