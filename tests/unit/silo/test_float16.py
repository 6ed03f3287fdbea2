"""Float16 with a scaled loss, on the CPU: near float32, by the rules of torch's scaler, anew each time."""

import math

import pytest
import torch
from pydantic import ValidationError
from unit.builders import batches, cross_entropy, net, same_bits, stream, training

from mpifl.algorithms import ALGORITHMS
from mpifl.silo.parameters import FlatModel
from mpifl.silo.steps import step
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.fast import quickly


def trained(objective=cross_entropy, **settings):
    model = FlatModel(net())
    given = LocalTraining(**{"lr": 0.1, "batch_size": 6, "epochs": 2, **settings})
    return quickly(training(model, batches(24), model.trained.clone(), given, stream(), objective))


@pytest.mark.parametrize(
    "settings",
    [{}, {"accumulate_batches": 2}, {"momentum": 0.9, "clip_norm": 0.2}, {"optimizer": "adam", "lr": 0.01}],
    ids=str,
)
def test_float16_trains_as_float32_does_but_for_rounding(settings):
    exact, rounded = trained(**settings), trained(**settings, precision="fp16")
    gap = (rounded.delta - exact.delta).norm() / exact.delta.norm()
    assert 0 < gap < 0.02
    assert rounded.loss == pytest.approx(exact.loss, rel=0.01)


def test_a_step_that_overflows_is_left_out_and_each_training_begins_anew():
    calls = []

    def objective(module, x, y):
        calls.append(len(y))
        factor = math.inf if len(calls) % 8 == 2 else 1.0  # the second step of eight has no finite gradient
        return cross_entropy(module, x, y) * factor

    found, again = trained(objective, precision="fp16"), trained(objective, precision="fp16")
    assert found.delta.isfinite().all()
    assert found.optimizer.steps == 7
    assert same_bits(found.delta, again.delta)


def test_the_factor_goes_as_that_of_torch(monkeypatch):
    monkeypatch.setattr(step, "GROWTH", 3)
    ours = step.LossScale()
    theirs = torch.amp.GradScaler("cpu", init_scale=step.SCALE, growth_interval=3)
    parameter = torch.zeros(2, requires_grad=True)
    optimizer, moved = torch.optim.SGD([parameter], 1.0), 0.0
    for value in (1.0, 1.0, math.inf, 1.0, 1.0, 1.0, math.nan, 1.0, 1.0, 1.0, 1.0):
        assert theirs.scale(torch.ones(())) == ours.factor
        parameter.grad = torch.tensor([value, 1.0]) * ours.factor
        theirs.step(optimizer)
        theirs.update()
        moved += ours.allows(torch.tensor([value, 1.0]))
    assert theirs.get_scale() == ours.factor
    assert parameter[1] == -moved == -9.0


@pytest.mark.parametrize("name", ["scaffold", "fednova", "fsvrg", "fedsgd", "qfedavg", "qfedsgd"])
def test_algorithms_that_count_steps_refuse_it(name):
    with pytest.raises(ValidationError, match="precision out"):
        ALGORITHMS[name](local=LocalTraining(precision="fp16"))
