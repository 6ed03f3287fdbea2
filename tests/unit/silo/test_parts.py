"""Gradients by parts: those of the batch, dropout that knows its part, one order of addition."""

import pytest
import torch
from torch import nn
from unit.builders import batches, cross_entropy, net, same_bits, stream, training

from mpifl.learning.tasks import Classification
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.step import counted_of
from mpifl.silo.steps.training import Loss
from mpifl.wings.crews.batch_parts import ByParts, PartOf, Parts, by_tree, cut, take_here
from mpifl.wings.fast import quickly


def trained(model, count, summed=None, objective=cross_entropy, **settings):
    """Train a net by so many parts, None for the plain way; return its delta and its loss."""
    start = model.trained.clone()
    method = None
    if count is not None:
        vectors = [torch.empty_like(start) for _ in range(count)]
        method = Parts(count, take_here, PartOf("fp32", 7), vectors)
    asked = LocalTraining(**{"lr": 0.1, "batch_size": 10, **settings})
    run = quickly(
        training(
            model, batches(24), start, asked, stream(0), objective, method=method, forms={"summed": summed}
        )
    )
    return run.delta.clone(), run.loss


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9, "weight_decay": 0.01}, {"optimizer": "adam"}])
@pytest.mark.parametrize("count", [2, 3, 4, 16])
def test_parts_train_as_the_whole_to_rounding(count, settings):
    settings = {"lr": 0.01, **settings}
    delta, loss = trained(FlatModel(net()), None, **settings)
    found, its = trained(FlatModel(net()), count, **settings)
    assert torch.allclose(found, delta, rtol=1e-4, atol=1e-6)
    assert its == pytest.approx(loss, rel=1e-5)


def test_a_gradient_of_parts_is_that_of_the_batch():
    model, (x, y) = FlatModel(net()), next(batches(24).in_order(24))
    expected = model.flatten(model.gradients(cross_entropy(model.module, x, y))).clone()
    vectors = [torch.empty_like(expected) for _ in range(4)]
    by = Parts(4, take_here, PartOf("fp32", 7), vectors)
    gradient = ByParts(by, training(model, batches(24), None, LocalTraining()))
    found = model.flatten(gradient([(x, y)]))
    assert torch.linalg.vector_norm(found - expected) <= 1e-6 * torch.linalg.vector_norm(expected)
    loss = float(cross_entropy(model.module, x, y).detach())
    assert float(gradient.total) == pytest.approx(24 * loss, rel=1e-6)


def test_parts_with_unequal_numbers_of_targets_are_as_one_batch():
    """A mean of the parts' means would be another."""
    task = Classification(ignore=0)
    objective, (x, y) = task.objective, next(batches(24).in_order(24))
    y = torch.where(torch.arange(24) < 9, 0, y)
    model = FlatModel(net())
    expected = model.flatten(model.gradients(objective(model.module, x, y))).clone()
    vectors = [torch.empty_like(expected) for _ in range(3)]

    def counted(module, x, y):
        return task.loss(task.outputs(module, x), y)

    asked = training(model, batches(24), None, LocalTraining(), None, objective, forms={"summed": counted})
    found = model.flatten(ByParts(Parts(3, take_here, PartOf("fp32", 7), vectors), asked)([(x, y)]))
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert not vectors[0].isnan().any()


def test_dropout_has_a_stream_for_each_part_and_step():
    """Whoever takes it, and whatever was drawn before."""
    model, (x, y) = FlatModel(nn.Sequential(net(), nn.Dropout(0.5))), next(batches(24).in_order(24))
    x, y = x[:6], y[:6]
    counted = counted_of(Loss(cross_entropy))

    def of(part, step):
        torch.rand(3)
        vectors = [torch.empty_like(model.trained) for _ in range(part + 1)]
        take_here(model, counted, PartOf("fp32", 7, step=step), {part: (x, y)}, vectors)
        return vectors[part]

    assert same_bits(of(1, 2), of(1, 2))
    assert not same_bits(of(0, 2), of(1, 2))
    assert not same_bits(of(1, 2), of(1, 3))


@pytest.mark.parametrize(("rows", "count"), [(10, 4), (4, 4), (3, 4), (1, 4), (7, 1)])
def test_parts_hold_each_example_once_and_none_is_empty(rows, count):
    x, y = torch.arange(rows), {"a": torch.arange(rows)}
    parts = cut((x, y), count)
    assert torch.equal(torch.cat([x for x, _ in parts.values()]), x)
    assert torch.equal(torch.cat([y["a"] for _, y in parts.values()]), x)
    sizes = [len(x) for x, _ in parts.values()]
    assert list(parts) == [*range(min(rows, count))]
    assert max(sizes) - min(sizes) <= 1


def test_the_tree_pairs_neighbours():
    assert by_tree(list("abcde"), lambda a, b: f"({a}{b})") == "(((ab)(cd))e)"
