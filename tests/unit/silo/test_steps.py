"""Kinds of steps: the bits of PyTorch's own, one learning rate, and errors that say where."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from unit.builders import batches, cross_entropy, net, same_bits, stream, training

from mpifl.common import InputError
from mpifl.common.errors import place_of
from mpifl.common.machine import DEBUGGING
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_optimizers import Constant, Proximal
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training import LocalRun, Training
from mpifl.wings.dpsgd.dpsgd import DPSGD
from mpifl.wings.fast import compiled, quickly as train, stacked_training

N = 23
MODELS: dict[str, Callable[[], nn.Module]] = {
    "chain": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "dropout": lambda: net(nn.Dropout(0.3)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3)
    ),
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"steps": 7},
    {"batch_size": "full"},
    {"drop_last": True},
    {"momentum": 0.9, "weight_decay": 0.1},
    {"momentum": 0.9, "nesterov": True, "clip_norm": 0.5},
    {"optimizer": "adam", "lr": 0.01},
    {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1, "schedule": "cosine", "warmup": 3},
    {"schedule": "linear", "warmup": 2},
    {"clip_norm": 0.3},
    {"accumulate_batches": 2},
    {"accumulate_batches": 3, "optimizer": "adam", "lr": 0.01},
    {"accumulate_batches": 2, "momentum": 0.9, "clip_norm": 0.4, "steps": 5},
    {"precision": "bf16"},
    {"precision": "fp16"},
    {"precision": "fp16", "accumulate_batches": 2},
    {"schedule": "cosine", "steps": 4, "schedule_rounds": 3},
]
CORRECTIONS: dict[str, Callable[[int], Any]] = {
    "none": lambda n: None,
    "constant": lambda n: Constant(torch.linspace(-1, 1, n)),
    "proximal": lambda n: Proximal(torch.linspace(1, -1, n), 0.5),
    "function": lambda n: lambda gradient, at, batch: gradient.mul_(0.5).add_(at, alpha=0.01),
}
METHODS: dict[str, Callable[[int], Any]] = {
    "dp-sgd": lambda n: DPSGD(bytes(32), "p", 1.0, 0.8, 5 / N, 6, 5.0),
}
FORMS = {"of_outputs": CLASSIFICATION.mean_loss, "weighted": CLASSIFICATION.weighted_objective}


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (compiled, stacked_training):
        monkeypatch.setattr(module, "_TOLD", set())


def asked(module: nn.Module, settings: dict[str, Any], correct: str = "none", **more: Any) -> Training:
    model = FlatModel(module)
    start = torch.linspace(-0.5, 0.5, len(model.trained))
    given = {"lr": 0.1, "batch_size": 5, "epochs": None if "steps" in settings else 2, **settings}
    rest = cross_entropy, CORRECTIONS[correct](len(start))
    return training(model, batches(N), start, LocalTraining(**given), stream(1), *rest, forms=FORMS, **more)


def trained(*given: Any, **more: Any) -> LocalRun:
    torch.manual_seed(7)
    return train(asked(*given, **more))


def plainly(*given: Any, **more: Any) -> LocalRun:
    """Train with the variable set by which all steps are PyTorch's own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(DEBUGGING, "1")
        return trained(*given, **more)


def assert_same(one: LocalRun, other: LocalRun) -> None:
    assert same_bits(one.end, other.end)
    assert same_bits(one.delta, other.delta)
    assert (one.steps, one.examples) == (other.steps, other.examples)
    assert one.loss == other.loss or math.isnan(one.loss) is math.isnan(other.loss) is True
    state, its = ([*run.optimizer.state] if run.optimizer else [] for run in (one, other))
    assert all(map(same_bits, state, its))
    assert len(state) == len(its)


@pytest.mark.parametrize("correct", CORRECTIONS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_a_step_has_the_bits_of_pytorchs_own(kind: str, settings: dict[str, Any], correct: str) -> None:
    found = trained(MODELS[kind](), settings, correct)
    assert found.delta.any()
    assert_same(found, plainly(MODELS[kind](), settings, correct))


@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.9}, {"clip_norm": 0.2, "schedule": "cosine"}], ids=str
)
@pytest.mark.parametrize("method", METHODS)
def test_so_have_other_methods(method: str, settings: dict[str, Any]) -> None:
    def of() -> Any:
        return METHODS[method](len(FlatModel(MODELS["chain"]()).trained))

    settings = {"steps": 6, **settings}
    found = trained(MODELS["chain"](), settings, method=of())
    assert_same(found, plainly(MODELS["chain"](), settings, method=of()))


def test_by_the_variable_neither_compiled_nor_batched_steps_are_taken_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = trained(net(), {})
    monkeypatch.setenv(DEBUGGING, "1")
    assert_same(trained(net(), {"compile": True}), plain)
    assert capsys.readouterr().err == (
        f"[local] compile = true: {DEBUGGING} is set; the plain step runs instead\n"
    )
    wanted = [asked(net(), {"batch_silos": True}) for _ in range(2)]
    for one, outcome in zip(wanted, stacked_training.train_together(wanted, 2), strict=True):
        assert_same(outcome(one), plain)
    assert capsys.readouterr().err == (
        f"[local] batch_silos = true: {DEBUGGING} is set; such silos train one after another\n"
    )


@pytest.mark.parametrize("value", ["", "0"])
def test_a_variable_that_is_empty_or_0_changes_nothing(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUGGING, value)
    wanted = [asked(net(), {"batch_silos": True}) for _ in range(2)]
    assert all(isinstance(one, stacked_training.Ended) for one in stacked_training.train_together(wanted, 2))


def test_a_step_that_float16_leaves_out_counts_in_the_schedule() -> None:
    """Four steps along a gradient of ones, of which the second has none that is finite."""
    seen: list[int] = []

    def objective(module: Any, x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(y))
        total = sum(p.sum() for p in module.parameters())
        return total * (math.inf if len(seen) == 2 else 1.0)

    settings = LocalTraining(lr=0.5, steps=4, batch_size=5, precision="fp16", schedule="linear")
    model = FlatModel(net())
    run = train(training(model, batches(N), model.trained.clone(), settings, stream(), objective))
    torch.testing.assert_close(run.delta, torch.full_like(run.delta, -0.5 * (1 + 0.5 + 0.25)))
    assert run.steps == 4


class Fails(nn.Module):
    """Raises at its third batch in training."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.layer, self.error, self.asked = nn.Linear(4, 3), error, 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        if self.asked == 3:
            raise self.error
        return self.layer(x)


@pytest.mark.parametrize("error", [KeyError("depth"), InputError("no such column")], ids=repr)
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"precision": "fp16"}], ids=str)
def test_an_error_says_at_which_step_it_was(error: Exception, settings: dict[str, Any]) -> None:
    with pytest.raises(type(error)) as raised:
        trained(Fails(error), settings, round=6)
    assert raised.value is error
    assert place_of(error) == "round 7, step 3 of 10"


def test_of_several_batches_a_step_it_is_the_step() -> None:
    with pytest.raises(KeyError) as raised:
        trained(Fails(KeyError("depth")), {"accumulate_batches": 2})
    assert place_of(raised.value) == "round 1, step 2 of 6"


def test_it_is_said_of_silos_that_train_together_too() -> None:
    def change(batch: Any, generator: Any) -> Any:
        seen.append(1)
        if len(seen) == 4:
            raise OSError("the disk is gone")
        return batch

    seen: list[int] = []
    wanted = asked(net(), {})
    lost = replace(wanted, data=wanted.data.changed(change, stream()))
    [outcome] = stacked_training.train_together([lost], 2)
    with pytest.raises(OSError, match="the disk is gone") as raised:
        outcome(lost)
    assert place_of(raised.value) == "round 1, step 4 of 10"
