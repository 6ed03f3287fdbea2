"""Schedules, clipped gradients and kept optimizers, held to a plain loop of torch."""

import math

import pytest
import torch
from pydantic import ValidationError
from unit.builders import batches, cross_entropy, net, stream, training

from mpifl.algorithms.algorithm_registry import ALGORITHMS
from mpifl.algorithms.server_optimizers import ServerSGD
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.schedule import RateSchedule
from mpifl.wings.fast import quickly

ADAMW = {"optimizer": "adamw", "lr": 0.02, "weight_decay": 0.1, "batch_size": "full"}
STEPS = 12


def torch_run(steps, clip=None, factor=lambda step: 1.0):
    """Return the parameters after some full-batch steps of torch's own AdamW."""
    module = net()
    optimizer = torch.optim.AdamW(module.parameters(), 0.02, weight_decay=0.1)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    x, y = next(batches(24).in_order(24))
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(module, x, y).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        rates.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def _settings(rounds, more):
    return LocalTraining(**ADAMW, steps=STEPS // rounds, **more)


def in_rounds(rounds, **more):
    """Return the parameters after STEPS full-batch steps in so many rounds, one after the other."""
    model, kept, settings = FlatModel(net()), None, _settings(rounds, more)
    w = model.trained.clone()
    for round in range(rounds):
        run = quickly(
            training(model, batches(24), w, settings, stream(), cross_entropy, round=round, kept=kept)
        )
        w = run.end.clone()
        if settings.keep_optimizer_state:
            kept = [vector.clone() for vector in run.optimizer.state], run.optimizer.steps
    return w


def warmed_cosine(step):
    """By hand: 3 steps up, then half a cosine over the other 9."""
    return (step + 1) / 3 if step < 3 else 0.5 * (1 + math.cos(math.pi * (step - 3) / 9))


@pytest.mark.parametrize("rounds", [1, 3, 12])
def test_a_kept_optimizer_makes_of_several_rounds_one_run(rounds):
    more = {"schedule": "cosine", "warmup": 3, "schedule_rounds": rounds, "keep_optimizer_state": True}
    expected = torch_run(STEPS, clip=0.05, factor=warmed_cosine)
    assert torch.allclose(in_rounds(rounds, clip_norm=0.05, **more), expected, atol=1e-6)


def test_an_optimizer_that_is_not_kept_begins_anew():
    assert not torch.allclose(in_rounds(3), torch_run(STEPS), atol=1e-4)
    assert torch.allclose(in_rounds(1), torch_run(STEPS), atol=1e-6)


def test_a_gradient_is_clipped_only_where_it_is_longer():
    assert torch.equal(in_rounds(1, clip_norm=1e6), in_rounds(1))
    plain = {"lr": 1.0, "batch_size": "full", "steps": 1}
    model = FlatModel(net())
    start = model.trained.clone()
    for bound in (1e-3, 0.01):
        settings = LocalTraining(**plain, clip_norm=bound)
        run = quickly(training(model, batches(24), start, settings, stream(), cross_entropy))
        assert float(run.delta.norm()) == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (RateSchedule("linear", 0, 4), [1, 0.75, 0.5, 0.25, 0, 0]),
        (RateSchedule("constant", 2, 4), [0.5, 1, 1, 1]),
        (RateSchedule("linear", 2, 8, done=4), [4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        (RateSchedule("cosine", 0, 2), [1, 0.5]),
    ],
)
def test_the_factors_of_schedules(schedule, factors):
    assert [schedule.lr(step) for step in range(len(factors))] == pytest.approx(factors)


def test_a_record_tells_the_rates_of_a_round_that_the_job_changes():
    assert LocalTraining(lr=0.5).rates(3) == {}
    assert LocalTraining(lr=0.5, lr_decay=0.5).rates(2) == {"learning_rate": 0.125}
    local = LocalTraining(lr=0.5, steps=2, schedule="linear", warmup=1, schedule_rounds=2)
    assert local.rates(0) == {"learning_rate": 0.5, "learning_rate_last": 0.5}
    assert local.rates(1) == pytest.approx({"learning_rate": 1 / 3, "learning_rate_last": 1 / 6})


def test_nesterov_at_the_server_is_that_of_torch():
    drawn = torch.Generator().manual_seed(0)
    w = torch.randn(50, generator=drawn)
    ours, theirs = {"w": w.clone()}, torch.nn.Parameter(w.clone())
    optimizer = torch.optim.SGD([theirs], lr=0.7, momentum=0.9, nesterov=True)
    server = ServerSGD(lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(20):
        delta = torch.randn(50, generator=drawn)
        server.step(ours, delta.clone())
        theirs.grad = -delta
        optimizer.step()
    assert torch.allclose(ours["w"], theirs.detach(), rtol=1e-6, atol=1e-5)


REFUSED = {
    "nesterov needs momentum": lambda: ServerSGD(nesterov=True),
    "give steps": lambda: LocalTraining(schedule="cosine", schedule_rounds=3),
    "straggler_chance takes fewer": lambda: LocalTraining(steps=4, schedule_rounds=3, straggler_chance=0.5),
    "has nothing to keep": lambda: LocalTraining(keep_optimizer_state=True),
}


@pytest.mark.parametrize("said", REFUSED)
def test_keys_that_do_not_go_together_are_refused(said):
    with pytest.raises(ValidationError, match=said):
        REFUSED[said]()


@pytest.mark.parametrize("name", ["scaffold", "fednova", "qfedavg", "qfedsgd", "fedsgd", "fsvrg"])
@pytest.mark.parametrize(
    ("key", "value"),
    [("clip_norm", 1.0), ("schedule", "cosine"), ("warmup", 2), ("keep_optimizer_state", True)],
)
def test_algorithms_that_such_steps_would_falsify_say_so(name, key, value):
    momentum = {"momentum": 0.9} if key == "keep_optimizer_state" else {}
    with pytest.raises(ValidationError, match=rf"leave \[local\] {key} out"):
        ALGORITHMS[name](local=LocalTraining(**momentum, **{key: value}))


def test_ditto_keeps_no_optimizer_since_it_trains_two_models():
    with pytest.raises(ValidationError, match="two models"):
        ALGORITHMS["ditto"](local=LocalTraining(momentum=0.9, keep_optimizer_state=True))
