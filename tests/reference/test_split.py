"""The oracles of vertical training hold what their formulas say, without mpifl."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from reference import split
from torch import Tensor, nn
from torch.nn import functional as F

WIDTHS, CUT, ROWS = (4, 7, 2), 5, 57
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-3),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


def table(outputs: int = 3, seed: int = 3, dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], Tensor]:
    stream = torch.Generator().manual_seed(seed)
    xs = [torch.randn(ROWS, width, generator=stream, dtype=dtype) for width in WIDTHS]
    y = (xs[0][:, 0] + xs[1][:, 1] * xs[2][:, 0]).mul(2).round().long().remainder(outputs)
    return xs, y


def batches(size: int, epochs: int = 3, seed: int = 4) -> list[Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return [rows for _ in range(epochs) for rows in torch.randperm(ROWS, generator=stream).split(size)]


def network(merge: str, outputs: int = 3, seed: int = 5) -> split.Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bottoms = [nn.Sequential(nn.Linear(w, 6), nn.Tanh(), nn.Linear(6, CUT), nn.ReLU()) for w in WIDTHS]
        width = CUT * len(WIDTHS) if merge == "concat" else CUT
        return split.Network(
            bottoms, nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, outputs)), merge
        )


def distance(one: split.Network, other: split.Network) -> float:
    pairs = zip([*one.bottoms, one.top], [*other.bottoms, other.top], strict=True)
    return max(
        float((a - b).detach().abs().max())
        for f, h in pairs
        for a, b in zip(f.parameters(), h.parameters(), strict=True)
    )


def squares(out: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(out, y.to(out).unsqueeze(1).expand_as(out))


@pytest.mark.parametrize("loss", [F.cross_entropy, squares])
@pytest.mark.parametrize("merge", ["concat", "sum"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("size", [10, ROWS])
def test_split_training_is_joined_training(size: int, optimizer: str, merge: str, loss: split.Loss) -> None:
    (xs, y), start = table(), network(merge)
    apart, whole = copy.deepcopy(start), copy.deepcopy(start)
    told = split.split(apart, xs, y, batches(size), loss, OPTIMIZERS[optimizer], holder=1)
    seen = split.joined(whole, xs, y, batches(size), loss, OPTIMIZERS[optimizer])
    assert distance(apart, start) > 1e-2
    assert distance(apart, whole) <= 1e-6
    assert told.losses == pytest.approx(seen.losses, abs=1e-6)
    assert torch.allclose(apart.predict(xs), whole.predict(xs), atol=1e-6)


def test_a_vertical_linear_model_is_the_joined_one() -> None:
    """Logistic regression in float64, to rounding."""
    xs, y = table(dtype=torch.float64)
    whole = nn.Linear(sum(WIDTHS), 3).double()
    parts, optimizer = split.linear_parts(whole, WIDTHS), torch.optim.SGD(whole.parameters(), lr=0.5)
    split.split(parts, xs, y, batches(10), F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.5))
    for rows in batches(10):
        optimizer.zero_grad()
        F.cross_entropy(whole(torch.cat(xs, 1)[rows]), y[rows]).backward()
        optimizer.step()
    found = torch.cat([bottom.weight for bottom in parts.bottoms], 1)
    assert float((found - whole.weight).detach().abs().max()) <= 1e-14
    assert float((parts.top.bias - whole.bias).detach().abs().max()) <= 1e-14


def test_a_vertical_cox_model_is_the_joined_one() -> None:
    """Summed risks over full batches, with ties and censored rows."""
    xs, _ = table(dtype=torch.float64)
    stream = torch.Generator().manual_seed(6)
    time = torch.randint(1, 9, (ROWS,), generator=stream)
    y = torch.stack([time, torch.randint(2, (ROWS,), generator=stream)], 1).double()
    whole = nn.Linear(sum(WIDTHS), 1).double()
    parts, everyone = split.linear_parts(whole, WIDTHS), [torch.arange(ROWS)] * 5
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    split.split(parts, xs, y, everyone, split.cox, lambda p: torch.optim.SGD(p, lr=0.1))
    for _ in everyone:
        optimizer.zero_grad()
        split.cox(whole(torch.cat(xs, 1)), y).backward()
        optimizer.step()
    found = torch.cat([bottom.weight for bottom in parts.bottoms], 1)
    assert float((found - whole.weight).detach().abs().max()) <= 1e-14


def test_the_partial_likelihood_is_the_one_counted_by_hand() -> None:
    """Times 1, 2, 2, 3: an event at 1, two tied at 2, a censored row at 3."""
    risk = torch.tensor([0.0, math.log(2), math.log(3), math.log(4)], dtype=torch.float64)
    y = torch.tensor([[1.0, 1], [2, 1], [2, 1], [3, 0]])
    right = (math.log(10) + 2 * math.log(9) - math.log(2) - math.log(3)) / 3
    assert float(split.cox(risk, y)) == pytest.approx(right)


def test_local_steps_of_linear_bottoms_are_one_long_step() -> None:
    """Q steps of SGD by a gradient and a Jacobian that stay, at the silos that have no labels."""
    xs, y = table(dtype=torch.float64)
    whole = nn.Linear(sum(WIDTHS), 3).double()
    often, once = split.linear_parts(whole, WIDTHS), split.linear_parts(whole, WIDTHS)
    (rows, *_) = batches(10)
    split.split(often, xs, y, [rows], F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1), local_steps=4)
    split.split(once, xs, y, [rows], F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.4))
    for k in (1, 2):
        assert torch.allclose(often.bottoms[k].weight, once.bottoms[k].weight, atol=1e-14)
    assert not torch.allclose(often.bottoms[0].weight, once.bottoms[0].weight, atol=1e-6)


def test_local_steps_are_those_counted_by_hand() -> None:
    """One row, z_k = w_k^2 x_k, loss (z_0 + z_1 + b - y)^2 / 2, two steps."""

    class Square(nn.Module):
        def __init__(self, w: float) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([w], dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return self.w.square() * x

    w, x, b, y, lr = [1.5, -0.5], [0.7, 1.1], 0.2, 0.3, 0.1
    net = split.Network([Square(w[0]), Square(w[1])], split.Bias(1).double(), "sum")
    net.top.bias.data.fill_(b)
    xs = [torch.tensor([[value]], dtype=torch.float64) for value in x]
    target, rows = torch.tensor([[y]], dtype=torch.float64), torch.tensor([0])
    half = lambda out, y: (out - y).square().sum() / 2  # noqa: E731
    split.split(net, xs, target, [rows], half, lambda p: torch.optim.SGD(p, lr=lr), local_steps=2)
    z = [w[0] ** 2 * x[0], w[1] ** 2 * x[1]]
    g = z[0] + z[1] + b - y
    w[0] -= lr * g * 2 * w[0] * x[0]
    for _ in range(2):
        w[1] -= lr * g * 2 * w[1] * x[1]
    b -= lr * g
    g = w[0] ** 2 * x[0] + z[1] + b - y
    w[0] -= lr * g * 2 * w[0] * x[0]
    b -= lr * g
    found = [float(net.bottoms[0].w.detach()), float(net.bottoms[1].w.detach()), float(net.top.bias.detach())]
    assert found == pytest.approx([*w, b], abs=1e-15)


def test_max_norm_makes_expected_norms_alike() -> None:
    stream = torch.Generator().manual_seed(7)
    g = torch.randn(6, 4, generator=stream, dtype=torch.float64) * torch.tensor([[9.0, 1, 3, 0.1, 2, 0]]).T
    drawn = [split.max_norm(g, torch.randn(6, generator=stream, dtype=torch.float64)) for _ in range(10_000)]
    squared = torch.stack(drawn).square().sum(2)
    assert torch.allclose(squared.mean(0)[:5], g.square().sum(1).max().expand(5), rtol=0.05)
    assert torch.equal(squared[:, 5], torch.zeros(10_000, dtype=torch.float64))
    assert torch.allclose(torch.stack(drawn).mean(0), g, atol=0.5)
    assert torch.equal(torch.stack(drawn)[:, 0], g[0].expand(10_000, 4))


@pytest.mark.parametrize(
    ("norms", "auc"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], 0.0), ([1, 1, 1, 1], 0.5), ([1, 3, 2, 2], 0.5)]
)
def test_the_leak_is_a_share_of_pairs(norms: list[float], auc: float) -> None:
    g = torch.tensor(norms, dtype=torch.float32).unsqueeze(1) * torch.tensor([[0.6, -0.8]])
    assert split.norm_leak_auc(g, torch.tensor([0, 0, 1, 1])) == pytest.approx(auc)


@pytest.mark.parametrize("classes", [2, 10])
def test_randomised_response_keeps_epsilon(classes: int) -> None:
    table = split.chances(1.5, classes)
    assert torch.allclose(table.sum(1), torch.ones(classes, dtype=torch.float64))
    assert float((table.unsqueeze(1) / table).log().max()) == pytest.approx(1.5)
    assert float(table[0, 0]) == pytest.approx(math.exp(1.5) / (math.exp(1.5) + classes - 1))


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_a_number_lies_between_its_neighbours_on_the_grid(norm: str) -> None:
    line = torch.randn(20, 8, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    line[3] = 0
    low, high = split.grid(line, 7, norm)
    of_row = (line.abs().amax(1) if norm == "max" else line.norm(dim=1)).unsqueeze(1)
    assert bool((low.abs() <= line.abs() + 1e-12).all())
    assert bool((line.abs() <= high.abs() + 1e-12).all())
    assert bool(((high - low).abs() <= of_row / 7 + 1e-12).all())
    assert torch.equal(low[3], torch.zeros(8, dtype=torch.float64))
