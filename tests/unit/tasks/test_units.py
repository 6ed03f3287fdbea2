"""Values that are learned in deviations from their mean, and judged and predicted in their own units."""

import pytest
import torch
from unit.tasks.test_metrics import federation

from mpifl.common import InputError
from mpifl.learning.tasks import TASKS


def regression(shape=(), **keys):
    task = TASKS["regression"].model_validate(keys)
    return task.for_federation(federation(None, shape, "float32", labels=()))


def values(task, outputs, y):
    found = {}
    for name, metric in task.metrics().items():
        metric.update(*task.scored(outputs, y))
        found[name] = float(metric.compute())
    return found


@pytest.mark.parametrize("width", [(), (1,)])
def test_a_value_is_learned_in_deviations_and_judged_in_its_own_unit(width):
    plain, task = regression(), regression(mean=150.0, deviation=75.0)
    y, outputs = torch.tensor([75.0, 150.0, 300.0]), torch.tensor([-1.0, 0.5, 1.0])
    total, count = task.loss(outputs.reshape(3, *width), y)
    assert (float(total), count) == (0.5**2 + 1.0**2, 3)
    assert torch.equal(task.predict(outputs), torch.tensor([75.0, 187.5, 225.0]))
    said = torch.tensor([75.0, 187.5, 225.0])
    assert values(task, outputs.reshape(3, *width), y) == values(plain, said.reshape(3, *width), y)


def test_each_column_has_its_own_mean_and_deviation():
    task = regression((2,), mean=[100.0, 1.0], deviation=[10.0, 0.5])
    y, outputs = torch.tensor([[110.0, 2.0], [90.0, 1.0]]), torch.tensor([[1.0, 2.0], [-1.0, 1.0]])
    assert [float(part) for part in task.loss(outputs, y)] == [1.0, 4.0]
    assert torch.equal(task.predict(outputs), torch.tensor([[110.0, 2.0], [90.0, 1.5]]))
    assert values(task, outputs, y)["mae"] == 0.125


@pytest.mark.parametrize("keys", [{"mean": 2.0}, {"deviation": 2.0}, {"mean": [2.0, 3.0], "deviation": 2.0}])
def test_what_is_left_out_changes_nothing(keys):
    task, outputs = regression((2,), **keys), torch.tensor([[1.0, 2.0]])
    mean, deviation = torch.tensor(keys.get("mean", 0.0)), keys.get("deviation", 1.0)
    assert torch.equal(task.predict(outputs), outputs * deviation + mean)
    assert float(task.loss(outputs, outputs * deviation + mean)[0]) == 0.0


def test_losses_of_a_batch_can_be_weighed_one_by_one():
    task = regression((2,), mean=[100.0, 1.0], deviation=[10.0, 0.5])
    x, y = torch.tensor([[1.0, 2.0], [-1.0, 1.0]]), torch.tensor([[110.0, 2.0], [90.0, 1.0]])
    module = torch.nn.Identity()
    assert float(task.weighted_objective(module, x, y, torch.tensor([1.0, 3.0]))) == 1.5


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"mean": [1.0, 2.0, 3.0]}, r"\[task\] mean: 3 are given; use 2, one for each column of targets"),
        ({"deviation": [1.0]}, r"\[task\] deviation: 1 are given; use 2"),
    ],
)
def test_as_many_are_taken_as_there_are_columns(keys, line):
    with pytest.raises(InputError, match=line):
        regression((2,), **keys)
