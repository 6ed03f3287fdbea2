"""Plain steps of large layers by one product each: PyTorch's own, whatever comes before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.builders import batches, cross_entropy, stream, training

from mpifl.common.machine import DEBUGGING
from mpifl.learning.models import Classifier
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_optimizers import Constant, Proximal
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.training import LocalRun
from mpifl.wings.fast import compiled, quickly as train
from mpifl.wings.fast.chains import chain_steps, large_layer_step
from mpifl.wings.fast.chains.chain_steps import ChainStep

Factory = Callable[[], nn.Module]


class Own(nn.Module):
    """A part that is no known layer; `act` stands for what it may do with its own layer."""

    def __init__(
        self, act: Callable[[Any, Tensor], Tensor] = lambda own, x: torch.tanh(own.layer(x))
    ) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(4, 4), act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self, x)


def perceptron(**more: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5, **more), nn.Tanh(), nn.Linear(5, 3))


def behind(*front: nn.Module, width: int = 4) -> nn.Module:
    return nn.Sequential(*front, nn.ReLU(), nn.Flatten(), nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, 3))


def convolutions() -> nn.Module:
    """Images of 2 x 2 pixels; what is drawn for the dropout is the same on all ways."""
    layers = nn.Conv2d(1, 3, 2, padding=1), nn.BatchNorm2d(3), nn.Dropout2d(0.2), nn.MaxPool2d(2)
    features = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), *layers, nn.ReLU(), nn.Flatten(), nn.Linear(3, 6))
    return Classifier(features, nn.Linear(6, 3))


def of_the_chain() -> nn.Module:
    """A part before it that uses its weights, and does not say so."""
    net = behind(Own(lambda own, x: own.layer(x) + own.others[0](x)))
    net[0].others = [nn.Linear(4, 4)]
    net.insert(3, net[0].others[0])
    return net


def frozen(net: nn.Module) -> nn.Module:
    net[0].layer.weight.requires_grad_(False)
    net[0].layer.weight.copy_(torch.linspace(-0.5, 0.5, 16).view(4, 4))  # trained ones are set
    return net


def tied() -> nn.Module:
    net = behind(Own())
    net[3].weight = nn.Parameter(torch.ones(5, 4))
    net[0].also = net[3].weight
    return net


def hooked() -> nn.Module:
    net = perceptron()
    net[0].register_forward_hook(lambda layer, given, answer: 2 * answer)
    return net


MODELS: dict[str, tuple[Factory, int]] = {
    "perceptron": (perceptron, 2),
    "no bias": (lambda: perceptron(bias=False), 2),
    "in place": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)), 2),
    "convolutions": (convolutions, 2),
    "another layer": (lambda: behind(Own()), 2),
    "nothing to learn before": (lambda: behind(nn.Dropout(0.1)), 2),
    "places": (lambda: behind(nn.Unflatten(1, (4, 1)), nn.Linear(1, 2), nn.Softmax(-1), width=8), 2),
    "without part in the loss": (lambda: behind(Own(lambda own, x: x + 0 * own.layer(x).detach())), 2),
    "weights used elsewhere": (of_the_chain, 3),
    "frozen": (lambda: frozen(behind(Own())), 2),
    "recomputed": (
        lambda: behind(
            Own(lambda own, x: torch.utils.checkpoint.checkpoint(own.layer, x, use_reentrant=False))
        ),
        2,
    ),
    "tied": (tied, 0),
    "hooked": (hooked, 0),
    "not flattened": (lambda: nn.Sequential(Own(), nn.Linear(4, 3)), 0),
    "behind it": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.LayerNorm(3)), 0),
    "one that asks by itself": (lambda: Own(lambda own, x: own.layer(x)[:, :3]), 0),
}
"""What a model is, and how many products take part in its step; none where PyTorch takes it."""


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_steps, "SMALLEST", 1)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products took part in each step."""
    counted: list[int] = []
    take, learn = ChainStep.__call__, ChainStep._learn

    def step(self: Any, *given: Any) -> None:
        counted.append(0)
        take(self, *given)

    def noted(self: Any, part: Any, lr: float) -> None:
        counted[-1] += part.link.layer in self._large
        learn(self, part, lr)

    monkeypatch.setattr(ChainStep, "__call__", step)
    monkeypatch.setattr(ChainStep, "_learn", noted)
    return counted


def trained(
    module: nn.Module, correct: Any = None, objective: Any = cross_entropy, **settings: Any
) -> LocalRun:
    model = FlatModel(module)
    start = torch.linspace(-0.9, 0.9, len(model.trained))
    local = LocalTraining(lr=0.1, batch_size=5, epochs=2, **settings)
    forms = {"of_outputs": F.cross_entropy if objective is cross_entropy else None}
    correct = correct and correct(len(start))
    torch.manual_seed(3)
    return train(training(model, batches(23), start, local, stream(0), objective, correct, forms=forms))


def plainly(*given: Any, **more: Any) -> LocalRun:
    """Train by PyTorch's own gradients."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(DEBUGGING, "1")
        return trained(*given, **more)


def assert_alike(found: LocalRun, other: LocalRun) -> None:
    assert (found.end - other.end).abs().max() <= 2e-6 * other.end.abs().max()
    assert found.loss == pytest.approx(other.loss, rel=1e-6)
    assert found.delta.abs().max() > 0.01


@pytest.mark.parametrize(("model", "expected"), MODELS.values(), ids=MODELS)
def test_a_step_by_products_is_the_plain_one(products: list[int], model: Factory, expected: int) -> None:
    other = plainly(model())
    assert not products
    net = model()
    assert_alike(trained(net), other)
    assert products == [expected] * (10 if expected else 0)


@pytest.mark.parametrize("model", [perceptron, convolutions])
@pytest.mark.parametrize(
    "correct",
    [lambda n: Constant(torch.linspace(-1, 1, n)), lambda n: Proximal(torch.linspace(1, -1, n), 0.5)],
)
def test_corrections_are_taken_with_it(products: list[int], model: Factory, correct: Any) -> None:
    assert_alike(trained(model(), correct), plainly(model(), correct))
    assert len(products) == 10


def test_it_takes_the_steps_of_torchs_own_sgd(products: list[int]) -> None:
    found, again, drawn = trained(convolutions()), convolutions(), stream(0)
    nn.utils.vector_to_parameters(torch.linspace(-0.9, 0.9, len(found.end)), again.parameters())
    sgd = torch.optim.SGD(again.parameters(), lr=0.1)
    torch.manual_seed(3)
    for _ in range(2):
        for x, y in batches(23).shuffled(5, drawn):
            sgd.zero_grad()
            F.cross_entropy(again(x), y).backward()
            sgd.step()
    end = nn.utils.parameters_to_vector(again.parameters()).detach()
    assert (found.end - end).abs().max() <= 2e-6
    assert products


def test_what_comes_before_is_asked_once_a_step() -> None:
    asked: list[int] = []

    def counts(own: Any, x: Tensor) -> Tensor:
        asked.append(len(x))
        return torch.tanh(own.layer(x))

    trained(behind(Own(counts)))
    assert asked == [5, 5, 5, 5, 3] * 2


def test_what_was_changed_in_place_is_refused_in_torchs_own_words() -> None:
    def spoilt(own: Any, x: Tensor) -> Tensor:
        h = own.layer(x)
        answer = torch.tanh(h) * h
        h.zero_()
        return answer

    for way in (plainly, trained):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            way(behind(Own(spoilt)))


@pytest.mark.parametrize(
    "settings", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"accumulate_batches": 2}], ids=str
)
def test_other_steps_need_the_gradient_itself(products: list[int], settings: dict[str, Any]) -> None:
    for model in (perceptron, convolutions):
        assert torch.equal(trained(model(), **settings).end, plainly(model(), **settings).end)
    assert not products


def test_a_loss_that_sees_more_than_outputs_is_left_to_pytorch(products: list[int]) -> None:
    def penalised(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(module, x, y) + 0.1 * sum(p.square().sum() for p in module.parameters())

    trained(perceptron(), objective=penalised)
    assert not products


def test_small_layers_are_left_alone(products: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has 20 weights, the last 15."""
    monkeypatch.setattr(chain_steps, "SMALLEST", 20)
    trained(perceptron())
    assert products == [1] * 10
    monkeypatch.setattr(chain_steps, "SMALLEST", 21)
    assert torch.equal(trained(perceptron()).end, plainly(perceptron()).end)


def wide() -> nn.Module:
    """Layers whose sizes no tile of the loop divides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 97), nn.ReLU(), nn.Linear(97, 131), nn.Tanh(), nn.Linear(131, 3))


@pytest.fixture
def in_one_pass(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each layer's step in one pass wrote the delta; the middle layer alone is large."""
    if large_layer_step.compiled() is None:
        pytest.skip("no loop for this processor")
    threads, taken, step = torch.get_num_threads(), [], large_layer_step.step
    monkeypatch.setattr(chain_steps, "SMALLEST", 1000)
    monkeypatch.setattr(large_layer_step, "_ALIKE", {})

    def noted(*given: Any) -> None:
        taken.append(len(given) > 5 and given[5] is not None)
        step(*given)

    monkeypatch.setattr(large_layer_step, "step", noted)
    torch.set_num_threads(1)
    yield taken
    torch.set_num_threads(threads)


def wide_run(start: Tensor, **settings: Any) -> tuple[FlatModel, LocalRun]:
    model, local = FlatModel(wide()), LocalTraining(lr=0.1, batch_size=5, **settings)
    forms = {"of_outputs": F.cross_entropy}
    return model, train(training(model, batches(23), start, local, stream(0), forms=forms))


@pytest.mark.parametrize("settings", [{"steps": 1}, {"steps": 4}, {"epochs": 2}], ids=str)
@pytest.mark.parametrize("diverged", [False, True])
def test_one_pass_gives_the_bits_of_a_copy_and_a_product(
    in_one_pass: list[bool], settings: dict[str, Any], diverged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = FlatModel(wide()).trained.clone()
    start[500] = torch.nan if diverged else 0.5
    before, version = start.clone(), start._version
    model, run = wide_run(start, **settings)
    rounds_otherwise = not any(in_one_pass) and False in large_layer_step._ALIKE.values()
    if not in_one_pass or ("steps" in settings and rounds_otherwise):
        pytest.skip("the loop's own trial found that this processor's products round otherwise")
    # the last batch of an epoch has 3 examples, and no trial
    assert any(in_one_pass) == ("steps" in settings)
    late, unwritten = in_one_pass[-1], model._trained.clone()
    assert diverged or the_same_bits(unwritten, run.end) == (not late)
    held = nn.utils.parameters_to_vector(model.module.parameters()).detach()
    assert start._version == version
    assert the_same_bits(start, before)
    monkeypatch.setattr(large_layer_step, "compiled", lambda: None)
    plain, other = wide_run(start, **settings)
    assert the_same_bits(run.delta, other.delta)
    assert the_same_bits(run.end, other.end)
    assert the_same_bits(held, plain.trained)
    assert bool(run.delta.isnan().any()) == diverged


def the_same_bits(one: Tensor, other: Tensor) -> bool:
    same = one.view(torch.int32) == other.view(torch.int32)
    return bool((same | one.isnan() & other.isnan()).all())


def test_a_loop_that_rounds_otherwise_is_left_out(
    in_one_pass: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, step = FlatModel(wide()).trained.clone(), large_layer_step.step

    def otherwise(out: Tensor, *given: Any) -> None:
        step(out, *given)
        out[-1, -1] *= 1 + 1e-6

    monkeypatch.setattr(large_layer_step, "step", otherwise)
    _, run = wide_run(start, steps=4)
    monkeypatch.setattr(large_layer_step, "compiled", lambda: None)
    assert the_same_bits(run.delta, wide_run(start, steps=4)[1].delta)
    assert set(large_layer_step._ALIKE.values()) == {False}


@pytest.mark.parametrize(("rows", "columns", "examples"), [(1, 1, 2), (3, 32, 1), (7, 33, 9), (50, 100, 32)])
def test_the_loop_steps_by_the_product_of_any_size(
    in_one_pass: list[bool], rows: int, columns: int, examples: int
) -> None:
    w, g, a = torch.randn(rows, columns), torch.randn(examples, rows), torch.randn(examples, columns)
    base, right = torch.randn(rows, columns), w - 0.1 * g.t() @ a
    out = torch.empty_like(w)
    large_layer_step.step(out, w, g, a, 0.1, base)
    assert torch.allclose(out, right - base, atol=1e-5)
    large_layer_step.step(w, w, g, a, 0.1)
    assert torch.allclose(w, right, atol=1e-5)


def test_nothing_is_compiled_where_memory_limits_a_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The middle layer has most of the weights."""
    monkeypatch.setattr(chain_steps, "SMALLEST", 1000)
    monkeypatch.setattr(compiled, "_TOLD", set())
    start = FlatModel(wide()).trained.clone()
    runs = [wide_run(start, steps=2, compile=compile)[1] for compile in (False, True, True)]
    assert all(the_same_bits(run.delta, runs[0].delta) for run in runs)
    line = "[local] compile = true: memory limits a step of layers as large as this model's"
    assert capsys.readouterr().err == f"{line}; the plain step runs instead\n"
