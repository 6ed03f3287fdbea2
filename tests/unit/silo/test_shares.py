"""A score that is put together of shares has the bits of one that was made in one place."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from unit.builders import CPU
from unit.tasks.test_kinds import federation

from mpifl.data.batches.batches import Batches
from mpifl.data.ragged_arrays import Ragged
from mpifl.data.shards.shards import Features, Split
from mpifl.learning.tasks.task_registry import TASKS
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.scoring import evaluate
from mpifl.wings.scoring.test_shares import score_of, share_of

FEATURES = Features(shape=(6,), dtype="float32")
EXAMPLES, SIZE = 107, 10
SIZES = [10] * 10 + [7]


def classes(seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(EXAMPLES, 6)).astype("float32")
    return Batches(Split(x, draw.integers(0, 4, EXAMPLES)), FEATURES, CPU)


def values(columns=2):
    draw = np.random.default_rng(1)
    x, y = (draw.normal(size=(EXAMPLES, n)).astype("float32") for n in (6, columns))
    return Batches(Split(x, y, "float32"), FEATURES, CPU)


def net(width):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return FlatModel(nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, width)))


CURVES = ["auroc", "average_precision", "f1", "accuracy"]
CASES = {
    "accuracy": (TASKS["classification"](), {"classes": 4}, classes, 4),
    "curves": (TASKS["classification"](metrics=CURVES), {"classes": 4}, classes, 4),
    "calibration": (TASKS["classification"](metrics=["calibration_error"]), {"classes": 4}, classes, 4),
    "weights": (
        TASKS["classification"](weights=[0.3, 1.7, 0.9, 1.1]),
        {"classes": 4},
        classes,
        4,
    ),
    "regression": (
        TASKS["regression"](metrics=["mae", "rmse", "r2"]),
        {"shape": (2,), "dtype": "float32"},
        values,
        2,
    ),
}


def made(case):
    task, told, batches, width = CASES[case]
    return task.for_federation(federation(**told)), batches(), net(width)


def dealt(task, batches, model, workers, own=None):
    """A score of shares of so many workers, in turns, brought together in another order."""
    parts = [range(first, len(SIZES), workers) for first in range(min(workers, len(SIZES)))]
    shares = [(numbers, share_of(model, task, batches, SIZE, numbers, own)) for numbers in parts]
    return score_of(task, shares[::-1], SIZES, own=own is not None)


def bits(score):
    figures = {"loss": score.loss, **score.metrics}
    return {name: value.hex() for name, value in figures.items()}, score.examples


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("case", CASES)
def test_shares_add_up_to_the_bits_of_a_score_in_one_place(case, workers):
    task, batches, model = made(case)
    here = evaluate(model, model.trained.clone(), batches, task, size=SIZE)
    found = dealt(task, batches, model, workers)
    assert bits(found) == bits(here)
    assert found.states.keys() == here.states.keys()
    assert all(torch.equal(found.states[name], state) for name, state in here.states.items())
    assert {c: sorted(one.tolist()) for c, one in found.single.items()} == {
        c: sorted(one.tolist()) for c, one in here.single.items()
    }
    assert not any(math.isnan(value) for value in here.metrics.values())


def own_objective(module, x, y):
    return nn.functional.cross_entropy(module(x), y) + sum(p.square().sum() for p in module.parameters())


def test_the_mean_of_an_objective_of_the_algorithms_own_is_the_loss():
    task, batches, model = made("accuracy")
    here = evaluate(model, model.trained.clone(), batches, task, own_objective, SIZE)
    assert bits(dealt(task, batches, model, 3, own_objective)) == bits(here)
    assert here.loss > evaluate(model, model.trained.clone(), batches, task, size=SIZE).loss


def test_only_some_batches_of_ragged_examples_are_taken():
    draw = np.random.default_rng(0)
    x = Ragged.of([draw.normal(size=(n, 2)).astype("float32") for n in draw.integers(1, 9, EXAMPLES)])
    features = Features(shape=(8, 2), dtype="float32", ragged=True)
    batches = Batches(Split(x, draw.integers(0, 4, EXAMPLES)), features, CPU)
    all_of_them = list(batches.in_order(SIZE))
    for number, (some, y) in zip([2, 10, 5], batches.in_order(SIZE, [2, 10, 5]), strict=True):
        assert torch.equal(some, all_of_them[number][0])
        assert torch.equal(y, all_of_them[number][1])
