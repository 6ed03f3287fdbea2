"""Plain steps of dense layers by one product: PyTorch's own, whatever a model does with its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from unit.builders import FEATURES, Batches, batches, cross_entropy, stream

from mpifl.silo import dense
from mpifl.silo.flat import FlatModel
from mpifl.silo.local import Constant, LocalRun, LocalTraining, Proximal, train

Objective = Callable[..., Tensor]


class Net(nn.Module):
    """Four features, two dense layers; `between` stands for what a model may do."""

    def __init__(self, between: Callable[[Net, Tensor], Tensor] | None = None, **layers: nn.Module) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.between = between or (lambda _, h: h)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, torch.tanh(self.first(x))))


def twice(net: Any, h: Tensor) -> Tensor:
    return torch.tanh(net.more(torch.tanh(net.more(h))))


def places(net: Any, h: Tensor) -> Tensor:
    """Ask a layer of examples of three places each, which is a batch of three dimensions."""
    return torch.tanh(net.more(torch.stack([h, 2 * h, -h], 1))).mean(1)


def penalised(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Add a multiple of the weights' norm, which autograd finds by another way than the layer's."""
    return cross_entropy(module, x, y) + 0.1 * sum(p.square().sum() for p in module.parameters())


def smooth(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Add the norm of the gradient with respect to the inputs: a gradient that is itself differentiated."""
    x = x.detach().requires_grad_()
    loss = cross_entropy(module, x, y)
    [found] = torch.autograd.grad(loss, x, create_graph=True)
    return loss + found.square().sum()


def in_float16(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return cross_entropy(module, x, y).float()


def per_example(net: Any, h: Tensor) -> Tensor:
    return torch.func.vmap(net.more)(h)


def other_weights(net: Any, h: Tensor) -> Tensor:
    changed = {name: 2 * p for name, p in net.more.named_parameters()}
    return torch.func.functional_call(net.more, changed, (h,))


def tied() -> Net:
    net = Net(
        lambda net, h: torch.tanh(net.more(torch.tanh(net.other(h)))),
        more=nn.Linear(5, 5),
        other=nn.Linear(5, 5),
    )
    net.other.weight = net.more.weight
    return net


def in_place() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))


def elsewhere(net: Any, h: Tensor) -> Tensor:
    return net.more(h) + F.linear(h, net.more.weight)


def frozen_bias() -> Net:
    net = Net()
    nn.init.constant_(net.first.bias, 0.3).requires_grad_(False)
    return net


def hooked() -> Net:
    net = Net()
    net.first.register_forward_hook(lambda layer, given, answer: 2 * answer)
    return net


def more(between: Callable[[Any, Tensor], Tensor]) -> Callable[[], Net]:
    return lambda: Net(between, more=nn.Linear(5, 5))


MODELS: dict[str, tuple[Callable[[], nn.Module], Objective, int | None]] = {
    "plain": (Net, cross_entropy, 2),
    "no bias": (lambda: Net(first=nn.Linear(4, 5, bias=False)), cross_entropy, 2),
    "in place": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
        cross_entropy,
        2,
    ),
    "asked twice": (more(twice), cross_entropy, 4),
    "three dimensions": (more(places), cross_entropy, 3),
    "tied": (tied, cross_entropy, 4),
    "weights used elsewhere": (
        more(lambda net, h: net.more(h) + F.linear(h, net.more.weight)),
        cross_entropy,
        3,
    ),
    "never asked": (more(lambda net, h: h), cross_entropy, 2),
    "without part in the loss": (more(lambda net, h: h + 0 * net.more(h).detach()), cross_entropy, 3),
    "penalty": (Net, penalised, 2),
    "frozen bias": (frozen_bias, cross_entropy, 1),
    "hooked": (hooked, cross_entropy, 2),
    "recomputed": (more(lambda net, h: checkpoint(net.more, h, use_reentrant=False)), cross_entropy, 3),
    "vmap": (more(per_example), cross_entropy, 2),
    "other weights": (more(other_weights), cross_entropy, 2),
    "convolution": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(4, 3)),
        cross_entropy,
        1,
    ),
    "bfloat16": (Net, in_float16, 0),
    "differentiated twice": (Net, smooth, None),
}
"""What a model is and minimises, and how many products take part in its step; None if it is torch's own."""


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "SMALLEST", 1)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products took part in each step."""
    counted: list[int] = []
    descend = dense.Dense._descend

    def noted(self: Any, calls: Any, found: Any, lr: float) -> None:
        counted.append(len(calls))
        descend(self, calls, found, lr)

    monkeypatch.setattr(dense.Dense, "_descend", noted)
    return counted


def trained(module: nn.Module, objective: Objective, correct: Any = None, **settings: Any) -> LocalRun:
    model = FlatModel(module)
    start = torch.linspace(-0.9, 0.9, len(model.trained))
    local = LocalTraining(lr=0.1, batch_size=5, epochs=2, **settings)
    more = {"of_outputs": F.cross_entropy}  # what Dense is for, though it asks the objective itself
    run = train(
        model, batches(23), start, local, stream(0), objective, correct and correct(len(start)), **more
    )
    assert not any("forward" in vars(part) for part in module.modules())
    return run


def plainly(module: nn.Module, objective: Objective, correct: Any = None) -> LocalRun:
    """Train by PyTorch's own gradients."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dense, "SMALLEST", 1 << 40)
        return trained(module, objective, correct)


@pytest.mark.parametrize(("model", "objective", "expected"), MODELS.values(), ids=MODELS)
def test_a_step_by_products_is_the_plain_one(
    products: list[int], model: Callable[[], nn.Module], objective: Objective, expected: int | None
) -> None:
    other = plainly(model(), objective)
    assert not products
    found = trained(model(), objective)
    assert products == ([] if expected is None else [expected] * 10)
    assert (found.end - other.end).abs().max() <= 2e-6 * other.end.abs().max()
    assert found.loss == pytest.approx(other.loss, rel=1e-6)
    assert (found.end - torch.linspace(-0.9, 0.9, len(found.end))).abs().max() > 0.01


@pytest.mark.parametrize(
    "correct",
    [lambda n: Constant(torch.linspace(-1, 1, n)), lambda n: Proximal(torch.linspace(1, -1, n), 0.5)],
)
def test_corrections_are_taken_with_it(products: list[int], correct: Any) -> None:
    found, other = trained(Net(), cross_entropy, correct), plainly(Net(), cross_entropy, correct)
    assert len(products) == 10
    assert (found.end - other.end).abs().max() <= 2e-6 * other.end.abs().max()


def test_it_takes_the_steps_of_torchs_own_sgd(products: list[int]) -> None:
    net, sgd = Net(), None
    found = trained(net, cross_entropy)
    again = Net()
    nn.utils.vector_to_parameters(torch.linspace(-0.9, 0.9, len(found.end)), again.parameters())
    sgd, drawn = torch.optim.SGD(again.parameters(), lr=0.1), stream(0)
    for _ in range(2):
        for x, y in shuffled(drawn):
            sgd.zero_grad()
            F.cross_entropy(again(x), y).backward()
            sgd.step()
    end = nn.utils.parameters_to_vector(again.parameters()).detach()
    assert (found.end - end).abs().max() <= 2e-6
    assert products


def shuffled(drawn: torch.Generator) -> Any:
    examples: Batches = batches(23)
    return examples.shuffled(5, drawn)


def test_what_was_changed_in_place_is_refused_in_torchs_own_words() -> None:
    """It would be silent: autograd does not look after what a layer was given by weights that it ignores."""

    def spoilt(net: Any, h: Tensor) -> Tensor:
        answer = net.more(h)
        h.zero_()
        return answer

    for way in (plainly, trained):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            way(more(spoilt)(), cross_entropy)


def test_a_layer_is_as_it_was_when_a_training_fails() -> None:
    def fails(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        raise ValueError("on purpose")

    net = Net()
    with pytest.raises(ValueError, match="on purpose"):
        trained(net, fails)
    assert not any("forward" in vars(part) for part in net.modules())


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"accumulate": 2}])
def test_other_steps_need_the_gradient_itself(products: list[int], settings: dict[str, Any]) -> None:
    trained(Net(), cross_entropy, **settings)
    assert not products


def test_small_layers_are_left_alone(products: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has 20 weights, the last 15."""
    monkeypatch.setattr(dense, "SMALLEST", 20)
    trained(Net(), cross_entropy)
    assert products == [1] * 10
    assert FEATURES.shape == (4,)
