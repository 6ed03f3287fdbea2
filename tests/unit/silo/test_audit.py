"""An audit of DP-SGD with canaries, in one training (Steinke, Nasr & Jagielski 2023).

Each canary is in the training by the toss of a coin. Whoever guesses the tosses from the model better than
epsilon allows has shown that epsilon is not true.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.stats import binom
from torch import nn

from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Features, Split
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters import FlatModel
from mpifl.wings.dpsgd.dpsgd import DPSGD
from mpifl.wings.privacy import Steps, epsilon_of

CANARIES, GUESSES, CLIP, NOISE, DELTA = 1500, 300, 0.5, 1.6, 1e-5


class Noiseless(DPSGD):
    """States noise and adds none: what the audit has to find."""

    def noised(self, model, objective, batch):
        return self.clipped_mean(model, objective, batch)


def p_value(right, epsilon):
    """Return the chance of so many right guesses or more by (epsilon, delta); the paper's Appendix D."""
    share = 1 / (1 + math.exp(-epsilon))
    tail = binom.sf(right - 1, GUESSES, share)
    sums = np.cumsum(binom.pmf(right - np.arange(1, right + 1), GUESSES, share))
    alpha = max(0.0, float((sums / np.arange(1, right + 1)).max()))
    return min(tail + 2 * CANARIES * DELTA * alpha, 1.0)


def lower_bound(right):
    """Return the largest epsilon that so many right guesses rule out with 99 per cent confidence."""
    grid = np.arange(0.0, 12.0, 0.01)
    ruled_out = [epsilon for epsilon in grid if p_value(right, epsilon) < 0.01]
    return max(ruled_out, default=0.0)


def right_guesses(kind):
    """Train one step on the canaries that coins choose, each a direction of its own, and guess the coins."""
    coins = np.random.default_rng(5).integers(0, 2, CANARIES).astype(bool)
    x = np.eye(CANARIES, dtype=np.float32)[coins]
    features = Features(shape=(CANARIES,), dtype="float32")
    examples = Batches(Split(x, np.ones(len(x), dtype=np.int64)), features, torch.device("cpu"))
    model = FlatModel(nn.Sequential(nn.Linear(CANARIES, 2, bias=False)))
    model.trained.zero_()
    way = kind(bytes(range(32)), "audit", CLIP, NOISE, 1.0, 1, CANARIES)
    (batch,) = way.drawn_from(examples)
    (gradient,) = way.noised(model, CLASSIFICATION.objective, batch)
    order = (gradient[0] - gradient[1]).argsort().numpy()
    out, taken = order[: GUESSES // 2], order[-GUESSES // 2 :]
    return int((~coins[out]).sum() + coins[taken].sum())


def test_guesses_from_a_model_show_no_more_than_epsilon():
    bound = lower_bound(right_guesses(DPSGD))
    assert 0.3 < bound <= epsilon_of([Steps(NOISE, 1.0, 1)], DELTA), "one that sees nothing shows nothing"


def test_noise_that_is_left_out_is_found():
    assert lower_bound(right_guesses(Noiseless)) > epsilon_of([Steps(NOISE, 1.0, 1)], DELTA)
