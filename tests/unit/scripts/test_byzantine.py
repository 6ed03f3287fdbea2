"""The job of Karimireddy et al. 2022 starts as the authors' code does on a GPU: held against their logs."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from data_prep.sources import SOURCES
from jobs.papers.byzantine import BATCH, HONEST, LIARS, _seen, cnn, uniform

MNIST = Path(os.environ.get("MPIFL_DATA", "no-data-folder"), "mnist")


def test_the_generator_gives_the_known_answer():
    """Random123's known-answer test of philox4x32, 10 rounds, with key and counter 0."""
    assert uniform(0, 1, 0)[0] == np.float32(0x6627E8D5) * np.float32(2**-32) + np.float32(2**-33)


def first_batches(labels):
    """Yield the examples of the first batch of each silo, as the authors' samplers draw them."""
    by_label = np.argsort(labels, kind="stable")
    each = len(labels) // HONEST
    for silo in range(HONEST):
        order = torch.randperm(each, generator=torch.Generator().manual_seed(silo**3))
        yield by_label[silo * each :][order[:BATCH]]
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).numpy()
    for liar in range(LIARS):
        yield order[liar::HONEST][:BATCH]


@pytest.mark.parametrize(
    ("seed", "line"), [(0, "2.3022 9.8750"), (1, "2.3107 10.8750"), (2, "2.3085 10.8750")]
)
def test_the_first_losses_are_those_of_their_logs(seed, line):
    """epfml/byzantine-robust-noniid-optimizer at 0e27349, exp3, E1B0: the weights and masks are theirs."""
    if not MNIST.exists():
        pytest.skip("MPIFL_DATA names no folder with mnist")
    mnist = SOURCES["mnist"](MNIST, 0)
    labels, model = np.asarray(mnist.y), cnn((1, 28, 28), 10, seed)
    losses, hits = [], []
    for rows in first_batches(labels):
        x, y = torch.from_numpy(_seen(mnist.x[rows])), torch.from_numpy(labels[rows]).long()
        with torch.no_grad():
            told = model(x.reshape(-1, 1, 28, 28))
        losses.append(F.cross_entropy(told, y).item())
        hits.append((told.argmax(1) == y).float().mean().item())
    assert f"{np.mean(losses):.4f} {100 * np.mean(hits):.4f}" == line
