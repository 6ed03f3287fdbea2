"""What a site draws in secret: the same for the same question, and like chance for any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from mpifl.wings.privacy import Draws

SECRET = bytes(range(32))


def test_the_same_question_draws_the_same_bits():
    one, other = (Draws(SECRET, "q", 3, "noise").normal(1001) for _ in range(2))
    assert one.numpy().tobytes() == other.numpy().tobytes()
    assert one.dtype == torch.float32
    assert len(one) == 1001


@pytest.mark.parametrize("other", [("q", 4, "noise"), ("p", 3, "noise"), ("q", 3, "batch")])
def test_another_question_draws_what_has_nothing_to_do_with_it(other):
    one, other = (Draws(SECRET, *name).normal(200_000) for name in (("q", 3, "noise"), other))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(200_000)


def test_another_secret_draws_what_has_nothing_to_do_with_it():
    one, other = (Draws(secret, "q").normal(200_000) for secret in (SECRET, bytes(32)))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(200_000)


def test_noise_is_normal():
    drawn = Draws(SECRET, "normal").normal(400_001).numpy().astype(np.float64)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert abs(drawn.mean()) < 5 / np.sqrt(len(drawn))
    assert drawn.var() == pytest.approx(1, abs=5 * np.sqrt(2 / len(drawn)))
    halves = np.corrcoef(drawn[:200_000], drawn[200_000:400_000])[0, 1]
    assert abs(halves) < 5 / np.sqrt(200_000), (
        "cosine and sine of one draw have nothing to do with each other"
    )


def test_each_example_is_drawn_by_its_own_chance():
    counts = [len(Draws(SECRET, "b", step).chosen(500, 0.1)) for step in range(2000)]
    assert np.mean(counts) == pytest.approx(50, abs=5 * np.sqrt(45 / 2000))
    assert np.var(counts) == pytest.approx(45, rel=0.2), "a binomial number, not a fixed one"
    assert Draws(SECRET, "b").chosen(7, 1.0).tolist() == list(range(7))
