"""Metrics of all silos together: the states that silos send, added up, are those of all examples."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torchmetrics import MeanSquaredError
from torchmetrics.classification import BinaryAUROC

from mpifl.tasks.base import Task
from mpifl.tasks.classification import CLASSIFICATION
from mpifl.tasks.pooling import COUNTS, pack_states, pooled, state_lengths


class Chance(Task):
    """Whether something happens: a probability for each example."""

    def loss(self, outputs, y):
        return (outputs - y).square().sum(), len(y)

    def metrics(self):
        return {"auroc": BinaryAUROC(thresholds=20), "mse": MeanSquaredError()}


def examples(seed, n):
    drawn = torch.Generator().manual_seed(seed)
    return torch.rand(n, generator=drawn), torch.randint(2, (n,), generator=drawn)


def states_of(task, silos):
    """Return what each silo sends."""
    found = []
    for outputs, y in silos:
        metrics = task.metrics()
        for metric in metrics.values():
            metric.update(outputs, y)
        found.append(pack_states(metrics))
    return found


def total(parts):
    return {name: sum(part[name] for part in parts) for name in parts[0]}


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 40)), min_size=1, max_size=6))
def test_the_metrics_of_all_silos_are_those_of_their_examples_in_one_place(drawn):
    task, silos = Chance(), [examples(*one) for one in drawn]
    every = [torch.cat(part) for part in zip(*silos, strict=True)]
    auroc, mse = (metric for metric in task.metrics().values())
    auroc.update(*every)
    mse.update(*every)
    found = pooled(task, total(states_of(task, silos)))
    assert found["auroc"] == float(auroc.compute())
    assert found["mse"] == pytest.approx(float(mse.compute()), rel=1e-6)


def test_counts_travel_in_one_vector_and_other_states_each_in_its_own():
    states = states_of(Chance(), [examples(0, 10)])[0]
    assert {name: len(state) for name, state in states.items()} == state_lengths(Chance())
    assert state_lengths(Chance()) == {COUNTS: 20 * 4 + 1, "metric mse.sum_squared_error": 1}
    assert all(state.dtype == torch.float64 for state in states.values())


def test_counts_beyond_float32_are_exact():
    logits, y = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 1])
    sums = total(states_of(CLASSIFICATION, [(logits, y)]))
    assert sums[COUNTS].tolist() == [1.0, 2.0]
    many = 2.0**24 + 1
    assert pooled(CLASSIFICATION, {COUNTS: torch.tensor([1.0, many], dtype=torch.float64)}) == {
        "accuracy": 1 / many
    }


def test_what_is_undefined_or_did_not_come_is_left_out():
    assert pooled(CLASSIFICATION, {COUNTS: torch.zeros(2, dtype=torch.float64)}) == {}
    assert pooled(CLASSIFICATION, {}) == {}
    assert math.isnan(CLASSIFICATION.metrics()["accuracy"].compute())
