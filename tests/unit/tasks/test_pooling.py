"""Metrics of all silos together: the states that silos send, added up, are those of all examples."""

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torchmetrics import MeanSquaredError
from torchmetrics.classification import BinaryAUROC

from mpifl.learning.metrics.pooled_metrics import COUNTS, pack_states, pooled, state_lengths
from mpifl.learning.metrics.summed_metrics import R2
from mpifl.learning.tasks.classification import CLASSIFICATION
from mpifl.learning.tasks.task import Task
from mpifl.sums.exact import ExactSum


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


class Two(Task):
    """Two values of each example."""

    def loss(self, outputs, y):
        return (outputs - y).square().sum(), len(y)

    def metrics(self):
        return {"r2": R2(2)}


def test_each_column_adds_up_on_a_grid_of_its_own():
    """Beside a residual of 1e10 in one sum, one of 2 came out as 0, and the small column as explained."""
    lengths = state_lengths(Two())
    assert {f"metric r2.residual[{column}]": 1 for column in (0, 1)}.items() <= lengths.items()
    draw = torch.Generator().manual_seed(1)
    y = torch.randn(500, 2, generator=draw, dtype=torch.float64) * torch.tensor([2e4, 0.1])
    y += torch.tensor([1e5, 0.5])
    outputs = y + torch.randn(500, 2, generator=draw, dtype=torch.float64) * torch.tensor([1e4, 0.07])
    silos = list(zip(outputs.split(50), y.split(50), strict=True))
    sums = {
        name: exactly([part[name] for part in states_of(Two(), silos)]) for name in states_of(Two(), silos)[0]
    }
    expected = R2(2)
    expected.update(outputs, y)
    assert pooled(Two(), sums)["r2"] == pytest.approx(float(expected.compute()), rel=1e-6)


def exactly(vectors):
    """Add vectors up as the exchange does."""
    found = ExactSum(len(vectors[0]), len(vectors))
    for vector in vectors:
        found.add(vector, 1.0, float(vector.abs().max()), torch.zeros_like(vector))
    return sum(found.windows.values())


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
