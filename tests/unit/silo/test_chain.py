"""Gradients of perceptrons by formulas: PyTorch's bits, of whatever is a chain, and of nothing else."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.builders import batches, cross_entropy, make_silo, stream, training

from mpifl.learning.models import Classifier
from mpifl.learning.models.perceptrons import two_nn
from mpifl.learning.tasks import CLASSIFICATION, Classification
from mpifl.silo import steps
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.steps.local_optimizers import Constant, Proximal
from mpifl.silo.steps.local_settings import LocalTraining
from mpifl.silo.steps.step import OptimizerStep
from mpifl.silo.steps.training import LocalRun
from mpifl.wings.fast import quickly as train
from mpifl.wings.fast.chains import chain_steps, dense_passes
from mpifl.wings.fast.chains.chain_formulas import Chain, chain
from mpifl.wings.fast.chains.chain_steps import ByChain, ChainStep, by_formulas
from mpifl.wings.fast.chains.dense_passes import DensePasses


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Own(nn.Module):
    """A model of a user's own, which says that it is a chain."""

    asks_in_turn: ClassVar = True

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6, bias=False), nn.Sequential(nn.Tanh(), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x))


class Skipping(Own):
    """One that inherits that, and does more."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x)
        return self.outer(h) + h[:, :3]


def layers(*between: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(4, 6), *between, nn.Linear(6, 3))


CHAINS: dict[str, Callable[[], nn.Module]] = {
    "2nn": lambda: two_nn((4,), 3),
    "one layer": lambda: nn.Linear(4, 3),
    "own": Own,
    "nested": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Flatten(), nn.Linear(4, 3))[1:],
    "relu first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 3)),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)),
    "one unit": lambda: nn.Sequential(nn.Linear(4, 1), nn.Tanh(), nn.Linear(1, 3)),
    "in place": layers(nn.ReLU(inplace=True)),
    "sigmoid last": lambda: nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()),
    "identities": layers(nn.Identity(), nn.Flatten(), nn.Tanh()),
    "deep": layers(nn.ReLU(), nn.Linear(6, 7), nn.Sigmoid(), nn.Linear(7, 6), nn.Tanh()),
}


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    return net


def asked_twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


def frozen() -> nn.Module:
    net = layers()()
    net[0].bias.requires_grad_(False)
    return net


def hooked(register: str) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        net = layers()()
        getattr(net[0], register)(lambda *given: None)
        return net

    return made


def patched() -> nn.Module:
    net = layers()()
    net[0].forward = lambda x: 2 * F.linear(x, net[0].weight)
    return net


def parametrized() -> nn.Module:
    net = layers()()
    torch.nn.utils.parametrizations.weight_norm(net[0])
    return net


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "dropout": layers(nn.Dropout()),
    "normed": layers(nn.LayerNorm(6)),
    "of another kind": lambda: nn.Sequential(Doubled(4, 3)),
    "inherits the word": Skipping,
    "tied": tied,
    "asked twice": asked_twice,
    "frozen": frozen,
    "hooked": hooked("register_forward_hook"),
    "hooked before": hooked("register_forward_pre_hook"),
    "hooked behind": hooked("register_full_backward_hook"),
    "patched": patched,
    "parametrized": parametrized,
    "a parameter beside": lambda: Classifier(Weighted(), nn.Linear(4, 3)),
    "nothing to learn": nn.Flatten,
}


class Weighted(nn.Sequential):
    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.more


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many layers each gradient was taken through."""
    counted: list[int] = []
    real = Chain.at_outputs

    def noted(self: Any, outputs: Tensor, *given: Any) -> Any:
        counted.append(len(self._links))
        return real(self, outputs, *given)

    monkeypatch.setattr(Chain, "at_outputs", noted)
    monkeypatch.setattr(chain_steps, "passes_of", lambda model, chain: None)
    return counted


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of examples of the batches that C took, on one thread."""
    if dense_passes.compiled() is None:
        pytest.skip("no C compiler, or another BLAS")
    counted: list[int] = []
    real = DensePasses.loss

    def noted(self: Any, batch: Any) -> Any:
        if (loss := real(self, batch)) is not None:
            counted.append(len(batch[0]))
        return loss

    monkeypatch.setattr(DensePasses, "loss", noted)
    monkeypatch.setattr(dense_passes, "_ALIKE", {})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    return counted


def trained(
    module: nn.Module,
    of_outputs: Any = F.cross_entropy,
    correct: Any = None,
    objective: Any = cross_entropy,
    forms: dict[str, Any] | None = None,
    **settings: Any,
) -> LocalRun:
    model = FlatModel(module)
    start = torch.linspace(-0.9, 0.9, len(model.trained))
    local = LocalTraining(**{"lr": 0.1, "batch_size": 5, "epochs": 2, **settings})
    given = correct and correct(len(start))
    asked = model, batches(23), start, local, stream(0), objective, given
    run = train(training(*asked, forms=forms or {"of_outputs": of_outputs}))
    assert (run.end - start).abs().max() > 0.001
    return run


def the_same(one: LocalRun, other: LocalRun) -> bool:
    return torch.equal(one.end, other.end) and torch.equal(one.delta, other.delta) and one.loss == other.loss


@pytest.mark.parametrize("module", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.9, "weight_decay": 0.1}, {"optimizer": "adam"}], ids=str
)
def test_the_bits_are_pytorchs(
    taken: list[int], module: Callable[[], nn.Module], settings: dict[str, Any]
) -> None:
    by_formulas = trained(module(), **settings)
    assert len(taken) == 10
    assert the_same(by_formulas, trained(module(), None, **settings))
    assert len(taken) == 10


IN_C = {"2nn", "one layer", "nested", "no bias", "in place"}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(
    "formula", [steps.without, CLASSIFICATION.loss_by_formula], ids=["autograd", "formula"]
)
def test_passes_in_c_have_pytorchs_bits(passed: list[int], name: str, formula: Any) -> None:
    """The first batch of each size is taken by PyTorch, too; epochs have batches of 5 and 3."""
    forms = {"of_outputs": F.cross_entropy, "formula": formula}
    with_c = trained(CHAINS[name](), forms=forms)
    assert passed == ([5, 5, 5, 5, 5, 5, 5, 3] if name in IN_C else [])
    assert the_same(with_c, trained(CHAINS[name](), None))


@pytest.mark.parametrize("sizes", [(784, 200, 200, 10), (13, 1, 2), (31, 17, 33, 5)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 10, 16, 17, 64, 300])
def test_gradients_of_drawn_batches_have_pytorchs_bits(passed: list[int], sizes: Any, n: int) -> None:
    torch.manual_seed(n)
    dense = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    model = FlatModel(nn.Sequential(*dense[:-1]))
    t = training(model, batches(5), None, LocalTraining())
    way = chain(model, F.cross_entropy, CLASSIFICATION.loss_by_formula)
    by = ByChain(t, way)
    x, y = torch.randn(n, sizes[0]), torch.randint(sizes[-1], (n,))
    first, again = (by([(x, y)]).clone() for _ in range(2))
    if n == 1 and not passed and False in dense_passes._ALIKE.values():
        pytest.skip("their own trial found that this processor's products of one row round otherwise")
    assert passed == [n]
    loss = F.cross_entropy(model.module(x), y)
    assert torch.equal(first, again)
    assert torch.equal(again, model.flatten(model.gradients(loss)))
    assert by.total == 2 * n * loss.detach()


def test_what_has_no_formula_is_left_to_autograd(passed: list[int]) -> None:
    outputs, y = torch.randn(3, 4), torch.tensor([0, 3, 1])
    assert CLASSIFICATION.loss_by_formula(outputs, y) is not None
    for other in (y.int(), torch.rand(3, 4), y[:, None]):
        assert CLASSIFICATION.loss_by_formula(outputs, other) is None
    assert CLASSIFICATION.loss_by_formula(outputs.double(), y) is None
    assert CLASSIFICATION.loss_by_formula(outputs[:, :, None], y) is None
    assert Classification(label_smoothing=0.1).loss_by_formula(outputs, y) is None
    model = FlatModel(layers()())
    found = chain(model, F.cross_entropy)
    assert found is not None
    way = dense_passes.passes_of(model, found)
    assert way is not None
    for x in ({"a": outputs}, outputs.double(), torch.randn(4, 3).t(), outputs[:0], torch.rand(3, 1, 4)):
        assert not way._fits(x)
    assert way._fits(outputs)


def test_passes_that_round_otherwise_are_not_used(passed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    forward, backward, product = dense_passes.compiled()

    def backward_and_more(*given: Any) -> None:
        backward(*given)
        ctypes.c_float.from_address(given[4]).value += 1e-3

    monkeypatch.setattr(dense_passes, "compiled", lambda: (forward, backward_and_more, product))
    assert the_same(trained(CHAINS["2nn"]()), trained(CHAINS["2nn"](), None))
    assert not passed


@pytest.mark.parametrize(
    "correct",
    [
        lambda n: Constant(torch.linspace(-1, 1, n)),
        lambda n: Proximal(torch.linspace(1, -1, n), 0.5),
        lambda n: lambda gradient, at, batch: gradient.mul_(0.5),
    ],
)
def test_corrections_are_taken_with_it(taken: list[int], correct: Any) -> None:
    assert the_same(
        trained(layers(nn.ReLU())(), correct=correct), trained(layers(nn.ReLU())(), None, correct)
    )
    assert len(taken) == 10


@pytest.mark.parametrize("module", OTHERS.values(), ids=OTHERS)
def test_what_is_no_chain_of_known_layers_is_left_to_pytorch(module: Callable[[], nn.Module]) -> None:
    assert chain(FlatModel(module()), F.cross_entropy) is None


@pytest.mark.parametrize(
    "settings", [{"precision": "bf16"}, {"precision": "fp16"}, {"accumulate_batches": 2}], ids=str
)
def test_other_steps_are_left_to_pytorch(taken: list[int], settings: dict[str, Any]) -> None:
    trained(layers()(), **settings)
    assert not taken


def test_inputs_of_more_dimensions_are_left_to_pytorch(taken: list[int]) -> None:
    model = FlatModel(layers()())
    x, y = torch.rand(5, 2, 4), torch.tensor([0, 1, 2, 0, 1])

    def of_outputs(outputs: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(outputs.mean(1), y)

    def objective(module: Any, x: Tensor, y: Tensor) -> Tensor:
        return of_outputs(module(x), y)

    forms, local = {"of_outputs": of_outputs}, LocalTraining(momentum=0.9)
    step = by_formulas(training(model, batches(5), None, local, None, objective, forms=forms))
    assert isinstance(step, OptimizerStep)
    assert isinstance(step._gradient, ByChain)
    loss = objective(model.module, x, y)
    expected = model.flatten(model.gradients(loss)).clone()
    assert torch.equal(model.flat(step._gradient([(x, y)])), expected)
    assert step.total == 5 * loss.detach()
    assert not taken


def test_a_loss_may_change_outputs_in_place_or_ignore_them(taken: list[int]) -> None:
    def doubles(outputs: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(outputs.mul_(2), y)

    by_pytorch = trained(layers()(), None, objective=lambda module, x, y: doubles(module(x), y))
    assert the_same(trained(layers()(), doubles), by_pytorch)
    model = FlatModel(layers()())
    way = chain(model, lambda outputs, y: torch.ones((), requires_grad=True).square())
    assert way is not None
    batch = torch.rand(5, 4), torch.zeros(5, dtype=torch.long)
    found = way.taken(batch)
    assert found is not None
    assert found.loss == 1
    assert not any(part.g.any() for part in found.parts)


def test_large_layers_go_by_one_product(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """But where the optimizer wants the gradient."""
    monkeypatch.setattr(chain_steps, "SMALLEST", 1)
    learned: list[Any] = []
    monkeypatch.setattr(ChainStep, "_learn", lambda self, part, lr: learned.append(part))
    model = FlatModel(layers()())
    given = (
        model,
        batches(23),
        model.trained.clone(),
        LocalTraining(lr=0.1, batch_size=5, epochs=2),
        stream(0),
    )
    train(training(*given, forms={"of_outputs": F.cross_entropy}))
    assert len(learned) == 2 * len(taken) == 20
    trained(layers()(), momentum=0.9)
    assert (len(learned), len(taken)) == (20, 20)


class Penalised(Classification):
    """A loss that sees the parameters."""

    def objective(self, module: Any, x: Any, y: Tensor) -> Tensor:
        return super().objective(module, x, y) + sum(p.square().sum() for p in module.parameters())


class Scaled(Classification):
    """One that makes outputs of what the model says."""

    def outputs(self, module: Any, x: Any) -> Any:
        return 2 * super().outputs(module, x)


def test_only_a_loss_of_outputs_alone_is_one() -> None:
    assert CLASSIFICATION.sees_outputs_alone
    assert not Penalised().sees_outputs_alone
    assert not Scaled().sees_outputs_alone


@pytest.mark.parametrize(
    ("more", "by_formulas"),
    [
        ({}, True),
        ({"task": Penalised()}, False),
        ({"objective": cross_entropy, "own_objective": cross_entropy}, False),
    ],
    ids=["the task's", "one that sees more", "the algorithm's"],
)
def test_a_silo_says_what_its_loss_sees(taken: list[int], more: dict[str, Any], by_formulas: bool) -> None:
    silo = make_silo(FlatModel(layers(nn.ReLU())()), **more)
    silo.train_locally(silo.model.trained.clone(), LocalTraining(lr=0.1, batch_size=4))
    assert len(taken) == 3 * by_formulas
