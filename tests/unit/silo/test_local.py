"""Local training: torch's optimizers to a millionth, the loop's figures,
and nothing of the loop in a correction."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings as how, strategies as st
from pydantic import ValidationError
from torch import nn
from unit.builders import (
    CPU,
    FEATURES,
    arrays,
    batch_norm_net,
    batches,
    cross_entropy,
    make_silo,
    net,
    same_bits,
    stream,
    training,
)

from mpifl.common.errors import InputError
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.shards import Shard, Split
from mpifl.learning.tasks import CLASSIFICATION, Classification
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.scoring import mean_loss
from mpifl.silo.silo import Silo
from mpifl.silo.steps import steps_of, training_loop as local
from mpifl.silo.steps.local_fits import LOCAL
from mpifl.silo.steps.local_optimizers import Constant, Proximal
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.wings.split import network_part


@how(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 20), st.integers(1, 5), st.booleans())
def test_a_training_of_so_many_steps_ends_after_them(examples, size, steps, accumulate, drop_last):
    table = LocalTraining(steps=steps, batch_size=size, accumulate_batches=accumulate, drop_last=drop_last)
    asked = training(None, batches(examples), None, table)
    drawn = [len(group) for group in itertools.islice(local.USUAL.batches(asked), steps + 1)]
    assert len(drawn) == steps == asked.steps
    assert all(1 <= count <= accumulate for count in drawn)
    table = LocalTraining(steps=steps, batch_size=size, drop_last=drop_last)
    assert len(list(itertools.islice(network_part.order(table, examples, 1, 0), steps + 1))) == steps


def trained(settings, n=24, seed=0, model=None, objective=cross_entropy, **more):
    """Train a fresh small net as the settings say; return the run, its delta and end copied."""
    model = model or FlatModel(net())
    start = model.trained.clone()
    asked = model, batches(n), start, LocalTraining(**settings), stream(seed), objective
    return local.train(training(*asked, **more))


def torch_optimizer(settings, parameters):
    s = LocalTraining(**settings)
    if s.optimizer == "sgd":
        return torch.optim.SGD(parameters, s.lr, s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[s.optimizer]
    return kind(parameters, s.lr, (s.beta1, s.beta2), s.epsilon, s.weight_decay)


OPTIMIZERS = [
    {"lr": 0.1},
    {"lr": 0.1, "weight_decay": 0.02},
    {"lr": 0.05, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02},
    {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    {"lr": 0.05, "momentum": 0.7, "nesterov": True, "weight_decay": 0.02},
    {"optimizer": "adam", "lr": 0.01},
    {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.05},
    {"optimizer": "adam", "lr": 0.01, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3},
    {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
]


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("settings", OPTIMIZERS, ids=str)
def test_twenty_steps_are_those_of_torch(settings, corrected):
    settings = {**settings, "steps": 20, "batch_size": 7}
    run = trained(settings, correct=(lambda gradient, at, batch: None) if corrected else None)
    module = net()
    optimizer = torch_optimizer(settings, module.parameters())
    order = stream()
    seen = [batch for _ in range(5) for batch in batches(24).shuffled(7, order)]
    for x, y in seen[:20]:
        optimizer.zero_grad()
        cross_entropy(module, x, y).backward()
        optimizer.step()
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert run.steps == 20
    assert (run.end - expected).abs().max() < 1e-6
    assert run.delta.abs().max() > 0.01


@pytest.mark.parametrize("settings", [{"lr": 0.1}, {"lr": 1 / 3, "batch_size": 5, "epochs": 3}], ids=str)
def test_a_correction_by_zero_changes_no_bit_of_the_plain_path(settings):
    assert LOCAL.honours("plain", LocalTraining(**settings))
    corrected = trained(
        settings, correct=lambda gradient, at, batch: gradient.add_(torch.zeros_like(gradient))
    )
    plain = trained(settings)
    assert same_bits(corrected.delta, plain.delta)
    assert corrected.loss == plain.loss


@pytest.mark.parametrize(
    "settings", [{"lr": 0.1}, {"lr": 0.05, "momentum": 0.9}, {"optimizer": "adam", "lr": 0.01}], ids=str
)
@pytest.mark.parametrize("kind", ["constant", "proximal"])
def test_the_corrections_with_a_short_cut_are_what_they_say(kind, settings):
    vector = torch.linspace(-1, 1, len(FlatModel(net()).trained))

    def written_out(gradient, at, batch):
        gradient.add_(vector if kind == "constant" else 0.3 * (at - vector))

    short = Constant(vector) if kind == "constant" else Proximal(vector, mu=0.3)
    settings = {**settings, "epochs": 3, "batch_size": 5}
    found, expected = trained(settings, correct=short), trained(settings, correct=written_out)
    assert torch.allclose(found.delta, expected.delta, atol=1e-6)
    assert (found.delta - trained(settings).delta).abs().max() > 0.01
    assert torch.equal(vector, torch.linspace(-1, 1, len(vector)))


def test_a_constant_correction_by_zero_changes_no_bit():
    zero = Constant(torch.zeros_like(FlatModel(net()).trained))
    assert same_bits(trained({"lr": 1 / 3}, correct=zero).delta, trained({"lr": 1 / 3}).delta)


def test_the_objective_is_given_what_is_gathered_beside():
    beside = torch.arange(24.0)
    seen = []

    def objective(module, x, y, extra):
        seen.extend(extra.tolist())
        return cross_entropy(module, x, y)

    trained({"lr": 0.1}, objective=objective, beside=[beside])
    assert sorted(seen) == beside.tolist()


def test_a_correction_gets_the_gradient_where_it_was_taken_and_the_batch():
    calls = []

    def correct(gradient, at, batch):
        calls.append((gradient.clone(), at.clone(), len(batch[1])))
        gradient.fill_(1.0)

    run = trained({"lr": 0.25, "batch_size": 10, "epochs": 1}, correct=correct)
    assert [size for *_, size in calls] == [10, 10, 4]
    assert torch.allclose(calls[1][1], calls[0][1] - 0.25)
    assert torch.allclose(run.delta, torch.full_like(run.delta, -0.75))
    model = FlatModel(net())
    [first, *_] = batches(24).shuffled(10, stream())
    assert same_bits(calls[0][0], model.flatten(model.gradients(cross_entropy(model.module, *first))))


@pytest.mark.parametrize(
    ("settings", "steps", "examples"),
    [
        ({"epochs": 2, "batch_size": 10}, 6, 48),
        ({"batch_size": 10}, 3, 24),
        ({"steps": 2, "batch_size": 10}, 2, 20),
        ({"steps": 4, "batch_size": 10}, 4, 34),
        ({"epochs": 3, "batch_size": "full"}, 3, 72),
        ({"steps": 2, "batch_size": "full"}, 2, 48),
        ({"epochs": 1, "batch_size": 1000}, 1, 24),
        ({"epochs": 1, "batch_size": 24}, 1, 24),
    ],
    ids=str,
)
def test_a_run_goes_as_many_steps_over_as_many_examples_as_it_is_told(settings, steps, examples):
    run = trained({"lr": 0.01, **settings})
    assert (run.steps, run.examples) == (steps, examples)


def test_a_full_batch_is_gradient_descent_and_ignores_the_stream():
    runs = [trained({"lr": 0.1, "epochs": 2, "batch_size": "full"}, seed=seed) for seed in (0, 1)]
    assert same_bits(runs[0].delta, runs[1].delta)


def test_the_order_of_the_examples_comes_from_the_stream():
    runs = [trained({"lr": 0.1, "batch_size": 5}, seed=seed) for seed in (0, 0, 1)]
    assert same_bits(runs[0].delta, runs[1].delta)
    assert not torch.equal(runs[0].delta, runs[2].delta)


def test_the_loss_is_the_mean_over_examples_each_at_its_steps_parameters():
    losses = []

    def objective(module, x, y):
        loss = cross_entropy(module, x, y)
        losses.append((float(loss.detach()), len(y)))
        return loss

    run = trained({"lr": 0.5, "batch_size": 10, "epochs": 2}, objective=objective)
    assert [n for _, n in losses] == [10, 10, 4, 10, 10, 4]
    assert run.loss == pytest.approx(math.fsum(loss * n for loss, n in losses) / 48, rel=1e-6)


def test_the_objective_is_what_is_descended():
    run = trained(
        {"lr": 0.1, "epochs": 1}, objective=lambda module, x, y: sum(p.sum() for p in module.parameters())
    )
    assert torch.allclose(run.delta, torch.full_like(run.delta, -0.1 * run.steps))


def test_a_run_starts_from_where_it_is_told_and_leaves_that_alone():
    model = FlatModel(net())
    start = torch.full_like(model.trained, 0.1)
    run = local.train(training(model, batches(24), start, LocalTraining(lr=0.1), stream(), cross_entropy))
    assert bool((start == torch.full_like(start, 0.1)).all())
    assert torch.equal(run.delta, model.trained - start)
    assert run.end.data_ptr() == model.trained.data_ptr()
    fresh = local.train(
        training(FlatModel(net(seed=9)), batches(24), start, LocalTraining(lr=0.1), stream(), cross_entropy)
    )
    assert same_bits(run.delta, fresh.delta)


def test_the_model_trains_in_training_mode():
    model = FlatModel(net(torch.nn.Dropout(0.5)))
    model.module.eval()
    trained({"lr": 0.1}, model=model)
    assert model.module.training


def test_the_mean_gradient_does_not_depend_on_the_batches_it_is_taken_in():
    def taken(size):
        model = FlatModel(net())
        return local.gradient(model, batches(24).in_order(size), model.trained.clone(), cross_entropy)

    whole, cut = taken(24), taken(7)
    assert (whole.steps, whole.examples, cut.steps, cut.examples) == (1, 24, 4, 24)
    assert torch.allclose(whole.delta, cut.delta, atol=1e-7)
    assert whole.loss == pytest.approx(cut.loss, rel=1e-6)
    model = FlatModel(net())
    [everything] = batches(24).in_order(24)
    gradient = model.flatten(model.gradients(cross_entropy(model.module, *everything)))
    assert torch.allclose(whole.delta, gradient, atol=1e-7)


@pytest.mark.parametrize("n", [1001, 1500])
def test_a_loss_that_is_no_mean_over_examples_has_one_gradient_and_one_value_too(n):
    """Classes weigh 20 to 0.05. Batches of a silo sorted by them were averaged as if all counted alike."""
    task = Classification(weights=[20.0, 1.0, 0.05])
    x, y = arrays(n)
    order = y.argsort(kind="stable")
    shard = Shard(None, {"train": Split(x[order], y[order])})
    model = FlatModel(net())
    w = model.trained.clone()
    silo = Silo(0, shard, FEATURES, [model], state={}, task=task, objective=task.objective)
    found = silo.gradient(w).delta.clone()
    everything = silo.train_locally(w, LocalTraining(lr=1.0, batch_size="full")).delta
    assert (found + everything).norm() <= 1e-4 * everything.norm()
    assert silo.loss(w) == pytest.approx(silo.evaluate(w).loss, rel=1e-6)


def test_no_batch_of_a_full_gradient_has_one_example_alone():
    """Of which BatchNorm knows no deviation."""
    model = FlatModel(batch_norm_net())
    run = make_silo(model, n=1001).gradient(model.trained.clone())
    assert (run.steps, run.examples) == (2, 1001)


def test_the_learning_rate_decays_by_the_round():
    settings = LocalTraining(lr=0.5, lr_decay=0.9, momentum=0.5)
    assert [settings.at_round(t).lr for t in range(3)] == pytest.approx([0.5, 0.45, 0.405])
    assert settings.at_round(2).momentum == 0.5
    assert LocalTraining(lr=0.5).at_round(100).lr == 0.5


def test_epochs_fall_and_batches_grow_by_the_round():
    """To the nearest whole number, and of two as near to the larger: 5, 2.5, 1.25; 6, 9, 13.5."""
    settings = LocalTraining(epochs=5, epochs_decay=0.5, batch_size=6, batch_growth=1.5)
    found = [settings.at_round(t) for t in range(3)]
    assert [(one.epochs, one.batch_size) for one in found] == [(5, 6), (3, 9), (1, 14)]
    assert [steps_of(one, 20) for one in found] == [5 * 4, 3 * 3, 1 * 2]
    each = LocalTraining(epochs_by_silo=[1, 4], epochs_decay=0.6)
    assert [each.at_round(1).of_silo(k, stream()).epochs for k in range(2)] == [1, 2]
    stepped = LocalTraining(steps=7, batch_growth=2.0)
    assert [steps_of(stepped.at_round(t), 20) for t in range(2)] == [7, 7]


def test_silos_may_be_given_epochs_of_their_own():
    settings = LocalTraining(epochs_by_silo=[1, 5, 2])
    assert [settings.of_silo(k, stream()).epochs for k in range(5)] == [1, 5, 2, 1, 5]
    assert LocalTraining(epochs=3).of_silo(4, stream()).epochs == 3


@pytest.mark.parametrize(
    ("settings", "unit", "whole"), [({"epochs": 8}, "epochs", 8), ({"steps": 20}, "steps", 20)]
)
def test_stragglers_do_a_part_of_their_work_as_often_as_they_are_told(settings, unit, whole):
    def work(chance):
        told = LocalTraining(**settings, straggler_chance=chance)
        return [getattr(told.of_silo(0, stream(seed)), unit) for seed in range(400)]

    assert set(work(0.0)) == {whole}
    assert set(work(1.0)) == set(range(1, whole + 1))
    assert 0.4 < sum(done < whole for done in work(0.5)) / 400 * whole / (whole - 1) < 0.6


@pytest.mark.parametrize(
    ("settings", "plain"),
    [({}, True), ({"momentum": 0.5}, False), ({"weight_decay": 0.1}, False), ({"optimizer": "adam"}, False)],
)
def test_only_bare_gradient_descent_is_plain(settings, plain):
    assert LOCAL.honours("plain", LocalTraining(**settings)) is plain


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"epochs": 1, "steps": 3}, "epochs or steps, not both"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum belongs to sgd; adam takes beta1 and beta2"),
        ({"nesterov": True}, "nesterov needs momentum above 0"),
        ({"lr": 0.0}, "greater than 0"),
        ({"lr": math.nan}, "finite"),
        ({"momentum": 1.0}, "less than 1"),
        ({"batch_size": 0}, "greater than 0"),
        ({"batch_size": "half"}, "full"),
        ({"optimizer": "lbfgs"}, "'sgd', 'adam' or 'adamw'"),
        ({"learning_rate": 0.1}, "Extra inputs"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings, reason):
    with pytest.raises(ValidationError, match=reason):
        LocalTraining(**settings)


def test_a_deadline_ends_a_training_early_and_the_run_says_how_far_it_came():
    model = FlatModel(net())
    run = trained({"deadline": 1e-9, "epochs": 5, "batch_size": 4}, n=40, model=model)
    assert (run.steps, run.examples) == (1, 4)
    whole = trained({"deadline": 60, "batch_size": 4}, n=40, model=model)
    assert whole.steps == 10


def of_each_example(module, x, y):
    return nn.functional.cross_entropy(module(x), y, reduction="none")


OBJECTIVES = {
    "each example's": (of_each_example, r"a tensor of shape \[7\]"),
    "a shape of one": (lambda m, x, y: cross_entropy(m, x, y).view(1), r"a tensor of shape \[1\]"),
    "None": (lambda m, x, y: None, "None"),
    "a number": (lambda m, x, y: cross_entropy(m, x, y).item(), "a float"),
}


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"compile": True}], ids=str)
@pytest.mark.parametrize(("objective", "what"), OBJECTIVES.values(), ids=OBJECTIVES)
def test_an_objective_that_is_no_scalar_is_told_so(objective, what, settings):
    with pytest.raises(
        InputError, match=f"^the objective returned {what}; have it return the mean loss over the batch"
    ):
        trained({"lr": 0.1, "batch_size": 7, **settings}, objective=objective)


@pytest.mark.parametrize(("objective", "what"), OBJECTIVES.values(), ids=OBJECTIVES)
def test_an_objective_that_is_no_scalar_is_told_so_wherever_it_is_taken(objective, what):
    model = FlatModel(net())
    w = model.trained.clone()
    takes = [
        lambda: local.gradient(model, batches(7).in_order(7), w, objective),
        lambda: model.gradient_at(w, objective, next(batches(7).in_order(7))),
        lambda: mean_loss(model, w, batches(7), objective),
    ]
    for take in takes:
        with pytest.raises(InputError, match=f"^the objective returned {what}"):
            take()


ACCUMULATED = [
    {"lr": 0.1, "epochs": 3},
    {"lr": 0.1, "steps": 5},
    {"lr": 0.05, "momentum": 0.9, "clip_norm": 0.1, "epochs": 2},
    {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.02, "schedule": "cosine", "warmup": 1, "epochs": 4},
]


@pytest.mark.parametrize("kind", [None, "constant", "proximal", "function"])
@pytest.mark.parametrize("settings", ACCUMULATED, ids=str)
def test_accumulated_batches_are_one_batch_of_them_all(settings, kind):
    vector = torch.linspace(-1, 1, len(FlatModel(net()).trained))

    def of_the_batch(gradient, at, batch):
        gradient.add_(vector, alpha=float(batch[0].mean()))

    corrections = {
        "constant": Constant(vector),
        "proximal": Proximal(vector, mu=0.3),
        "function": of_the_batch,
    }
    correct = corrections.get(kind)
    found = trained({**settings, "batch_size": 4, "accumulate_batches": 4}, n=42, correct=correct)
    expected = trained({**settings, "batch_size": 16}, n=42, correct=correct)
    assert (found.steps, found.examples) == (expected.steps, expected.examples)
    assert (found.delta - expected.delta).abs().max() < 1e-6 < expected.delta.abs().max()
    assert found.loss == pytest.approx(expected.loss, abs=1e-6)


@pytest.mark.parametrize("task", [Classification(ignore=2), Classification(weights=[0.2, 1.0, 3.0]), None])
def test_accumulated_batches_weigh_what_their_losses_count(task):
    one, whole = FlatModel(net()), FlatModel(net())
    runs = []
    for model, settings in ((one, {"batch_size": 3, "accumulate_batches": 4}), (whole, {"batch_size": 12})):
        silo = make_silo(model, 31, task=task or CLASSIFICATION)
        local = LocalTraining(lr=0.2, epochs=2, **settings)
        runs.append(silo.train_locally(model.trained.clone(), local))
    found, expected = runs
    assert found.steps == expected.steps == 6
    assert (found.delta - expected.delta).abs().max() < 1e-6 < expected.delta.abs().max()
    assert found.loss == pytest.approx(expected.loss, abs=1e-6)


def test_where_no_target_of_a_group_counts_only_the_correction_moves_the_model():
    ignoring, start = Classification(ignore=0), FlatModel(net())
    split = Split(arrays(8)[0], np.zeros(8, np.int64))
    model, vector = FlatModel(net()), torch.ones_like(start.trained)
    settings = LocalTraining(lr=0.5, batch_size=2, accumulate_batches=4)
    run = local.train(
        training(
            model,
            Batches(split, FEATURES, CPU),
            start.trained,
            settings,
            stream(),
            ignoring.objective,
            Constant(vector),
            forms={"summed": lambda module, x, y: ignoring.loss(module(x), y)},
        )
    )
    assert torch.allclose(run.delta, -0.5 * vector)


def test_a_schedule_goes_by_the_steps_of_a_silo_that_is_one_small_batch():
    settings = {"lr": 0.1, "schedule": "linear", "epochs": 4, "batch_size": 100}
    dropping, keeping = trained({**settings, "drop_last": True}), trained(settings)
    assert same_bits(dropping.delta, keeping.delta)


def test_accumulating_one_batch_of_everything_is_refused():
    with pytest.raises(ValidationError, match="and 'full' is one; give batch_size a number"):
        LocalTraining(accumulate_batches=2, batch_size="full")


def test_a_deadline_lets_a_step_of_several_batches_end():
    model = FlatModel(net())
    run = trained(
        {"deadline": 1e-9, "epochs": 5, "batch_size": 4, "accumulate_batches": 3}, n=40, model=model
    )
    assert (run.steps, run.examples) == (1, 12)
