"""Trainings of several silos as one: each the plain one to rounding, its bits its own, its errors, too."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from unit.builders import (
    FEATURES,
    Keeper,
    batch_norm_net,
    batches,
    cross_entropy,
    net,
    same_bits,
    stream,
    training,
)

from mpifl.data.shards.shards import Features
from mpifl.learning.models.image_models import cnn
from mpifl.learning.models.perceptrons import logreg
from mpifl.learning.models.text_models import char_lstm
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_optimizers import Constant, Proximal
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training import Loss
from mpifl.silo.steps.training_loop import USUAL
from mpifl.wings.fast import quickly as train, stacked_training

SIZES = [23, 10, 5, 3, 31, 17, 8]
"""Of the silos: in batches of 5 most have a smaller last one, one has that alone."""
IMAGES = Features(shape=(1, 8, 8), dtype="float32")
WAYS = {
    "plain": {"epochs": 2},
    "momentum": {"epochs": 2, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "clip_norm": 0.3},
    "adamw": {"optimizer": "adamw", "lr": 0.01, "epochs": 2, "weight_decay": 0.1},
    "scheduled": {"batch_size": 8, "steps": 7, "schedule": "cosine", "warmup": 2},
    "dropped": {"batch_size": 4, "epochs": 3, "drop_last": True},
}


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    monkeypatch.setattr(stacked_training, "_TOLD", set())


def ask(model, silo, settings, kind=None, features=FEATURES, weighted=True, objective=cross_entropy, **more):
    """What silo k asks: it has examples, an order of them and a correction of its own."""
    start = torch.linspace(-0.5, 0.5, len(model.trained)) if features is FEATURES else model.initial
    vector = torch.linspace(-1, 1, len(start)) * 0.1 * silo
    correct = {None: None, "constant": Constant(vector), "proximal": Proximal(vector, 0.3)}[kind]
    given = {"lr": 0.1, "batch_size": 5, **settings}
    own = batches(SIZES[silo], seed=silo, features=features)
    weighted = CLASSIFICATION.weighted_objective if weighted else None
    local = LocalTraining(**given)
    forms = {"weighted": weighted}
    return training(model, own, start, local, stream(silo), objective, correct, forms=forms, **more)


def run_of(outcome, asked):
    run = outcome(asked)
    return run.delta.clone(), run.loss, run.steps, run.examples


def trained(asking, silos, size=4):
    """Train some silos together; return what came of each by silo."""
    outcomes = stacked_training.train_together([asking(k) for k in silos], size)
    assert all(isinstance(outcome, stacked_training.Ended) for outcome in outcomes), (
        "they were trained by themselves"
    )
    return {k: run_of(outcome, asking(k)) for k, outcome in zip(silos, outcomes, strict=True)}


def assert_alike(found, expected, close=1e-4):
    assert (found[0] - expected[0]).abs().max() <= close * expected[0].abs().max()
    assert found[1] == pytest.approx(expected[1], rel=1e-5)
    assert found[2:] == expected[2:]


@pytest.mark.parametrize("kind", [None, "constant", "proximal"])
@pytest.mark.parametrize("way", WAYS)
def test_a_silo_trains_as_by_itself_whoever_trains_with_it(way, kind):
    """Alike to rounding; and the bits are the same, wherever and with whom it is in a chunk."""
    model = FlatModel(net())

    def asking(silo):
        return ask(model, silo, WAYS[way], kind)

    every = range(len(SIZES))
    together_, otherwise = trained(asking, every), trained(asking, [5, 3, 1, 6, 0, 2, 4])
    for silo in every:
        (alone,) = trained(asking, [silo]).values()
        assert same_bits(together_[silo][0], otherwise[silo][0])
        assert same_bits(together_[silo][0], alone[0])
        assert together_[silo][1:] == otherwise[silo][1:] == alone[1:]
        assert_alike(together_[silo], run_of(train, asking(silo)))


def curved():
    """A model whose exponentials a CPU rounds otherwise at a vector's end."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 21), nn.Sigmoid(), nn.Linear(21, 3), nn.Softplus(), nn.SiLU()
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("factory", "size"),
    [(lambda: cnn((1, 8, 8), 3), 3), (lambda: logreg((1, 8, 8), 3), 5), (curved, 3)],
    ids=["cnn", "logreg", "curved"],
)
def test_products_and_convolutions_give_a_silo_its_bits_in_any_place(factory, size, threads):
    model = FlatModel(factory())
    model.initial = model.trained.clone()

    def asking(silo):
        return ask(model, silo, {"batch_size": 7}, features=IMAGES)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        one, other = trained(asking, [0, 4, 5], size), trained(asking, [5, 6, 0], size)
    finally:
        torch.set_num_threads(before)
    for silo in (0, 5):
        assert same_bits(one[silo][0], other[silo][0])
        assert_alike(one[silo], run_of(train, asking(silo)), close=1e-3)


def test_what_a_model_keeps_of_its_first_pass_is_none_of_the_trace():
    model = FlatModel(net(Keeper()))
    for found, silo in zip(trained(lambda k: ask(model, k, {}), [0, 1]).values(), [0, 1], strict=True):
        assert_alike(found, run_of(train, ask(model, silo, {})))


def test_what_an_optimizer_keeps_is_each_silos_own():
    model, settings = FlatModel(net()), {"momentum": 0.9, "keep_optimizer_state": True, "steps": 3}

    def asking(silo):
        kept = ([torch.full_like(model.trained, 0.1 * silo)], silo) if silo else None
        return ask(model, silo, settings, kept=kept)

    for silo, outcome in enumerate(stacked_training.train_together([asking(k) for k in range(3)], 2)):
        found, expected = outcome(asking(silo)).optimizer, train(asking(silo)).optimizer
        assert found.steps == expected.steps == silo + 3
        assert torch.allclose(found.state[0], expected.state[0], rtol=1e-5, atol=1e-6)


def test_the_lent_model_holds_a_silos_own_parameters_when_it_has_its_run():
    model = FlatModel(net())
    asked = [ask(model, k, {}) for k in range(2)]
    for silo, outcome in enumerate(stacked_training.train_together(asked, 2)):
        run = outcome(asked[silo])
        assert same_bits(model.trained, run.end)
        assert same_bits(run.end - asked[silo].start, run.delta)


def test_numbers_that_are_none_stay_with_their_silo():
    model = FlatModel(net())

    def asking(silo, poisoned=False):
        asked = ask(model, silo, {"epochs": 2})
        act = (lambda x, y: x.fill_(torch.nan)) if poisoned else (lambda x, y: None)
        return replace(asked, data=asked.data.rewritten(act))

    whole = trained(asking, [0, 1, 2, 4])
    with_it = stacked_training.train_together([asking(k, poisoned=k == 1) for k in (0, 1, 2, 4)], 4)
    found = {k: run_of(outcome, asking(k)) for k, outcome in zip((0, 1, 2, 4), with_it, strict=True)}
    assert found[1][0].isnan().all()
    for silo in (0, 2, 4):
        assert same_bits(found[silo][0], whole[silo][0])


@pytest.mark.parametrize("batch", [1, 3])
def test_an_error_while_a_silo_draws_is_its_own(batch):
    model = FlatModel(net())

    def failing(silo):
        asked, seen = ask(model, silo, {"epochs": 2}), []

        def change(batch_, generator):
            seen.append(1)
            if len(seen) == batch:
                raise OSError("the disk is gone")
            return batch_

        return replace(asked, data=asked.data.changed(change, stream()))

    def asking(silo):
        return failing(silo) if silo == 0 else ask(model, silo, {"epochs": 2})

    whole = trained(lambda silo: ask(model, silo, {"epochs": 2}), [0, 1, 4], 3)
    lost, *others = stacked_training.train_together([asking(k) for k in (0, 1, 4)], 3)
    with pytest.raises(OSError, match="the disk is gone"):
        lost(asking(0))
    for silo, outcome in zip((1, 4), others, strict=True):
        assert same_bits(outcome(asking(silo)).delta, whole[silo][0])


def count(outcomes):
    return sum(isinstance(outcome, stacked_training.Ended) for outcome in outcomes)


def summed_up(module, x, y):
    """A loss that is no mean over examples."""
    return F.cross_entropy(module(x), y, reduction="sum") / 5


@pytest.mark.parametrize(
    ("factory", "settings", "more", "why"),
    [
        (batch_norm_net, {}, {}, "the model learns running statistics (BatchNorm)"),
        (
            lambda: net(nn.Dropout(0.5)),
            {},
            {},
            "the model draws random numbers (dropout), and would draw others",
        ),
        (net, {}, {"method": USUAL}, "gradients are taken in a way of their own"),
        (net, {}, {"objective": lambda m, x, y: m(x).sum()}, "neither a function of a module nor a method"),
        (net, {}, {"objective": summed_up}, "a gradient of several at once is another one than alone"),
    ],
    ids=["statistics", "dropout", "method", "lambda", "no mean"],
)
def test_what_is_of_one_silo_alone_takes_the_plain_way_and_a_line_says_so(
    factory, settings, more, why, capsys
):
    model = FlatModel(factory())
    for _ in range(2):
        assert not count(
            stacked_training.train_together([ask(model, k, settings, **more) for k in range(3)], 2)
        )
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert line.startswith("[local] batch_silos = true: ")
    assert line.endswith("; such silos train one after another")


def test_a_layer_without_a_rule_takes_the_plain_way(capsys):
    text = Features(shape=(4,), dtype="uint8")
    model = FlatModel(char_lstm(3, embedding=3, hidden=5, layers=1))
    model.initial = model.trained.clone()
    asked = [ask(model, k, {"batch_size": 5}, features=text, weighted=False) for k in (1, 2)]
    asked = [replace(one, loss=Loss(of_last)) for one in asked]
    assert not count(stacked_training.train_together(asked, 2))
    assert "vmap has no rule for lstm" in capsys.readouterr().err


def of_last(module, x, y):
    return F.cross_entropy(module(x)[..., -1], y)


def test_an_objective_that_is_no_mean_over_examples_is_batched_where_batches_are_of_one_size(capsys):
    model = FlatModel(net())
    asked = [ask(model, k, {}, weighted=False, objective=summed_up) for k in (0, 1, 2)]
    assert [isinstance(one, stacked_training.Ended) for one in stacked_training.train_together(asked, 2)] == [
        False,
        True,
        True,
    ]
    assert "unequal sizes, and the loss is not a mean" in capsys.readouterr().err


def test_corrections_by_a_function_take_the_plain_way(capsys):
    model = FlatModel(net())
    asked = replace(ask(model, 0, {}), correct=lambda gradient, at, batch: None)
    assert not count(stacked_training.train_together([asked], 2))
    assert "by a function of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"compile": True}, "compile makes a step of one"),
        ({"deadline": 1.0}, "deadline stops each by its clock"),
        ({"accumulate_batches": 2}, "accumulate_batches takes steps of several batches"),
        ({"batch_size": "full"}, "'full' gives each another shape"),
        ({"precision": "fp16"}, "fp16 leaves steps of single silos out"),
        ({"batch_silos": False, "silos_per_step": 8}, "silos_per_step is of batched steps"),
    ],
)
def test_settings_that_can_never_be_batched_are_refused(given, why):
    with pytest.raises(ValueError, match=why):
        LocalTraining(**{"batch_silos": True, **given})
