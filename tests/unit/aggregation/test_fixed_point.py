"""Whole numbers that stand for real ones, against exact fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st

from mpifl.sums import kernels
from mpifl.wings.masked.fixed_point import (
    DIGITS,
    LARGEST_NUMBER,
    LOWEST,
    add_to,
    digits_of,
    grid_of,
    numbers_of,
)

NUMBERS = st.floats(-LARGEST_NUMBER / 2, LARGEST_NUMBER / 2, allow_nan=False)


@pytest.mark.parametrize(
    ("largest", "summands", "exponent"),
    [(128.0, 2, 7 - 62 + 1), (128.0 * 600, 64, 17 - 62 + 6), (129.0, 65, 8 - 62 + 7), (1.0, 1, -61)],
)
def test_a_grid_leaves_room_for_all_summands(largest: float, summands: int, exponent: int) -> None:
    assert grid_of(largest, summands) == 2.0**exponent
    assert max(summands, 2) * Fraction(largest) / Fraction(grid_of(largest, summands)) <= 2**62


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", ["c", "tensors"])
def test_summands_are_rounded_to_even_and_added(
    dtype: torch.dtype, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "tensors":
        monkeypatch.setattr(kernels, "compiled", lambda: None)
    vector = torch.tensor([0.5, 1.5, -2.5, 1e-9, -127.9, 0.1], dtype=dtype)
    total = torch.arange(6)
    for scale in (1.0, 2.0**40 * 3):
        before, expected = total.tolist(), [round(Fraction(x) * Fraction(scale)) for x in vector.tolist()]
        add_to(total, vector, scale)
        assert total.tolist() == [b + e for b, e in zip(before, expected, strict=True)]


def test_sums_wrap() -> None:
    total = torch.full((3,), 2**63 - 1)
    add_to(total, torch.ones(3), 2.0)
    assert total.tolist() == [-(2**63) + 1] * 3


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_digits_add_up_to_the_exact_sum(numbers: list[float]) -> None:
    digits = digits_of(torch.tensor(numbers, dtype=torch.float64))
    unit = Fraction(2) ** LOWEST
    exact = sum((math.trunc(Fraction(x) / unit) for x in numbers), start=0) * unit
    found = numbers_of(digits.sum(0, keepdim=True)).item()
    assert digits.shape == (len(numbers), DIGITS)
    assert abs(Fraction(found) - exact) <= abs(exact) * Fraction(2) ** -52


@given(st.lists(st.integers(-(2**45), 2**45), min_size=1, max_size=30))
def test_whole_numbers_add_up_without_error(numbers: list[int]) -> None:
    digits = digits_of(torch.tensor(numbers, dtype=torch.float64)).sum(0, keepdim=True)
    assert numbers_of(digits).item() == sum(numbers)


def test_digits_of_many_summands_of_both_signs_do_not_overflow() -> None:
    draw = random.Random(0)
    numbers = [draw.uniform(-1, 1) * 10.0 ** draw.randint(-18, 18) for _ in range(2000)]
    digits = digits_of(torch.tensor(numbers, dtype=torch.float64)).sum(0, keepdim=True)
    assert numbers_of(digits).item() == pytest.approx(math.fsum(numbers), rel=1e-15, abs=1e-25)
