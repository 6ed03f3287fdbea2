"""Batches are scored at once, and no figure shows it."""

import threading

import numpy as np
import pytest
import torch
from torch import nn
from unit.builders import CPU

from mpifl.data.batches.batches import LARGEST, Batches
from mpifl.data.shards.shards import Features, Split
from mpifl.learning.models import build
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.lanes import Lanes
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.scoring import evaluate

PATIENCE = 20
"""Seconds that one batch waits for another."""


def images(examples, side=28):
    draw = np.random.default_rng(1)
    x = draw.integers(0, 256, (examples, 1, side, side), dtype=np.uint8)
    features = Features(shape=(1, side, side), dtype="uint8", scale=1 / 255)
    return Batches(Split(x, draw.integers(0, 10, examples)), features, CPU), features


class Meeting(nn.Module):
    """A linear model that leaves its input in itself while another batch is in it."""

    def __init__(self, meet=lambda: None):
        super().__init__()
        self.linear, self._meet = nn.Linear(784, 10), meet
        self.left, self.threads = None, set()

    def forward(self, x):
        self.left = x
        self._meet()
        self.threads.add(torch.get_num_threads())
        return self.linear(self.left.flatten(1))


def own_objective(module, x, y):
    return nn.functional.cross_entropy(module(x), y) + 1


@pytest.mark.parametrize("lanes", [2, 3, 8])
@pytest.mark.parametrize("objective", [None, own_objective])
def test_figures_do_not_depend_on_the_lanes(lanes, objective):
    batches, features = images(230)
    model = FlatModel(build("cnn", {}, features, 10, 0))
    one, many = (
        evaluate(model, model.trained.clone(), batches, CLASSIFICATION, objective, 25, how)
        for how in (Lanes(), Lanes(lanes))
    )
    assert one == many
    assert one.loss.hex() == many.loss.hex()


def test_two_batches_are_scored_at_once_and_do_not_meet_in_a_module_that_keeps_them():
    torch.manual_seed(0)
    plain = Meeting()
    abreast = Meeting(_Barrier())
    abreast.linear.load_state_dict(plain.linear.state_dict())
    batches, _ = images(80)
    one, two = (
        evaluate(model, model.trained.clone(), batches, CLASSIFICATION, None, 20, how)
        for model, how in ((FlatModel(plain), Lanes()), (FlatModel(abreast), Lanes(2)))
    )
    assert one == two
    assert abreast.threads == {torch.get_num_threads()}


def test_a_module_that_cannot_be_copied_is_scored_batch_by_batch():
    model = FlatModel(Meeting(threading.Lock().locked))
    model.module.lock = threading.Lock()
    batches, _ = images(40)
    assert evaluate(model, model.trained.clone(), batches, CLASSIFICATION, None, 20, Lanes(2)).examples == 40


def test_large_examples_are_scored_batch_by_batch():
    """Each batch takes as much memory as there is for one."""
    side = int((LARGEST / 2) ** 0.5) + 1
    batches, _ = images(2, side)
    seen = set()

    class Seeing(nn.Linear):
        def forward(self, x):
            seen.add(threading.get_ident())
            return super().forward(x.mean((1, 2, 3))[:, None])

    model = FlatModel(Seeing(1, 10))
    evaluate(model, model.trained.clone(), batches, CLASSIFICATION, None, 20, Lanes(2))
    assert seen == {threading.get_ident()}


class _Barrier:
    """Lets calls on in pairs, and twins of a module share it."""

    def __init__(self):
        self._barrier = threading.Barrier(2)

    def __call__(self):
        self._barrier.wait(PATIENCE)

    def __deepcopy__(self, memo):
        return self
