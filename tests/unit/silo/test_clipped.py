"""Clipped sums by the layers' formulas, held to gradients that torch.func takes of each example."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mpifl.common import InputError
from mpifl.silo.parameters import FlatModel
from mpifl.wings.dpsgd.clipped import ByFormula, ByLoop, NoFormula, clipped_sum

N = 5


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def tokens(*shape):
    return torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(1))


class Normed(nn.Module):
    def __init__(self, norm, before=None):
        super().__init__()
        self.before, self.norm, self.head = before or nn.Identity(), norm, nn.LazyLinear(3)

    def forward(self, x):
        return self.head(self.norm(self.before(x)).flatten(1).tanh())


class Text(nn.Module):
    def __init__(self, **keys):
        super().__init__()
        self.embed, self.mix = nn.Embedding(7, 4, **keys), nn.Linear(4, 6)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.norm(self.mix(self.embed(x)).relu()).mean(1))


class Partly(nn.Module):
    """Of one layer the bias alone is trained, of another nothing; a third has no part in the loss."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.idle = nn.Linear(2, 2)
        self.a.weight.requires_grad_(False)
        self.b.requires_grad_(False)

    def forward(self, x):
        return self.c(self.b(self.a(x).relu()).relu())


def flat(*layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


MODELS = {
    "linear": lambda: (nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)), draw(N, 4)),
    "no bias": lambda: (nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 3)), draw(N, 4)),
    "sequences": lambda: (flat(nn.Linear(4, 6), nn.ReLU()), draw(N, 9, 4)),
    "conv1d": lambda: (flat(nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.ReLU()), draw(N, 2, 11)),
    "conv2d": lambda: (
        flat(nn.Conv2d(3, 4, (3, 2), padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 2)),
        draw(N, 3, 8, 8),
    ),
    "grouped, dilated": lambda: (
        flat(nn.Conv2d(4, 6, 3, dilation=2, groups=2, stride=(1, 2))),
        draw(N, 4, 9, 9),
    ),
    "same, reflected": lambda: (
        flat(nn.Conv2d(2, 3, 4, padding="same", padding_mode="reflect")),
        draw(N, 2, 6, 7),
    ),
    "conv3d": lambda: (flat(nn.Conv3d(1, 3, 2, stride=(1, 2, 1)), nn.ReLU()), draw(N, 1, 4, 6, 5)),
    "embedding": lambda: (Text(), tokens(N, 9)),
    "padded embedding": lambda: (Text(padding_idx=2), tokens(N, 9)),
    "group norm": lambda: (Normed(nn.GroupNorm(2, 4), nn.Conv2d(1, 4, 3)), draw(N, 1, 6, 6)),
    "group norm of vectors": lambda: (Normed(nn.GroupNorm(2, 4)), draw(N, 4)),
    "layer norm": lambda: (Normed(nn.LayerNorm([4, 3])), draw(N, 2, 4, 3)),
    "partly trained": lambda: (Partly(), draw(N, 4)),
}


def made(name):
    torch.manual_seed(0)
    module, x = MODELS[name]()
    module(x)  # lazy layers take their shapes
    return FlatModel(module), (x, torch.arange(len(x)) % 3)


def objective(module, x, y):
    return F.cross_entropy(module(x), y)


def expected(model, batch, bound):
    """Each example's gradient by torch.func, its norm, and the clipped sum, by the definition."""
    values = {name: p.detach() for name, p in zip(model.names, model.parameters, strict=True)}

    def loss(values, x, y):
        return F.cross_entropy(torch.func.functional_call(model.module, values, (x[None],)), y[None])

    sums, norms = {name: torch.zeros_like(v, dtype=torch.float64) for name, v in values.items()}, []
    for x, y in zip(*batch, strict=True):
        gradient = torch.func.grad(loss)(values, x, y)
        norm = sum(g.double().square().sum() for g in gradient.values()).sqrt()
        norms.append(norm)
        for name, g in gradient.items():
            sums[name] += g.double() * min(1.0, bound / float(norm))
    return [sums[name] for name in model.names], torch.stack(norms)


def assert_alike(found, right):
    size = max(float(one.norm()) for one in right[0])
    for one, other in zip(found[0], right[0], strict=True):
        assert one.shape == other.shape
        assert float((one - other).norm()) <= 1e-6 * max(size, 1)
    torch.testing.assert_close(found[1].double(), right[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [ByFormula, ByLoop])
def test_clipped_sums_are_those_of_single_gradients(name, kind):
    model, batch = made(name)
    bound = float(expected(model, batch, 1.0)[1].median())  # some are clipped, some are not
    assert_alike(kind(model, objective)(batch, N, bound), expected(model, batch, bound))


@pytest.mark.parametrize("kept", [0, 1 << 24])
def test_long_sequences_need_no_single_gradients(monkeypatch, kept):
    monkeypatch.setattr("mpifl.wings.dpsgd.per_example.KEPT", kept)
    for name in ("sequences", "grouped, dilated", "conv3d"):
        model, batch = made(name)
        assert_alike(ByFormula(model, objective)(batch, N, 0.5), expected(model, batch, 0.5))


def test_how_many_examples_are_multiplied_at_a_time_changes_no_bit(monkeypatch):
    for name in ("sequences", "conv2d", "grouped, dilated", "same, reflected", "conv3d"):
        model, batch = made(name)
        whole, norms = ByFormula(model, objective)(batch, N, 0.5)
        with monkeypatch.context() as few:
            few.setattr("mpifl.wings.dpsgd.per_example.CACHED", 1)
            one_by_one, same = ByFormula(model, objective)(batch, N, 0.5)
        assert torch.equal(norms, same)
        assert all(map(torch.equal, whole, one_by_one))


@pytest.mark.parametrize("kind", [ByFormula, ByLoop])
def test_padding_adds_nothing(kind):
    model, batch = made("conv2d")
    found = kind(model, objective)(batch, 3, 0.5)
    assert_alike(found, expected(model, tuple(part[:3] for part in batch), 0.5))
    assert all(float(one.abs().max()) == 0 for one in kind(model, objective)(batch, 0, 0.5)[0])


@pytest.mark.parametrize("kind", [ByFormula, ByLoop])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_an_example_without_a_finite_gradient_spoils_no_other(kind, poison):
    model, (x, y) = made("linear")
    bad = x.clone()
    bad[1] = poison
    sums, norms = kind(model, objective)((bad, y), N, 0.5)
    kept = [0, 2, 3, 4]
    right = expected(model, (x[kept], y[kept]), 0.5)
    moved = torch.cat([(one - other).flatten() for one, other in zip(sums, right[0], strict=True)]).norm()
    assert float(moved) <= 0.5 * (1 + 1e-6)
    assert norms[kept].isfinite().all()
    filled = kind(model, objective)((bad[[0, 1]], y[:2]), 1, 0.5)[0]  # nor where it only fills a batch up
    assert all(one.isfinite().all() for one in filled)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("bound", [1e-3, 0.3])
def test_one_example_moves_the_answer_by_no_more_than_the_bound(name, bound):
    model, batch = made(name)
    whole = ByFormula(model, objective)(batch, N, bound)[0]
    for left_out in range(N):
        rest = [i for i in range(N) if i != left_out]
        without = ByFormula(model, objective)(tuple(part[rest] for part in batch), N - 1, bound)[0]
        moved = torch.cat([(a - b).double().flatten() for a, b in zip(whole, without, strict=True)]).norm()
        assert float(moved) <= bound * (1 + 1e-5)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.head(self.b(self.a(x).relu()))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.a(self.a(x).relu()))


class Behind(nn.Module):
    """Uses a layer's weight behind its back: the formula sees half of its gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.a(x) + F.linear(x, self.a.weight))


@pytest.mark.parametrize(
    ("module", "x", "why"),
    [
        (Recurrent, draw(N, 3, 4), "LSTM ('cell') has no formula"),
        (Tied, draw(N, 4), "a parameter that two layers share has no formula"),
        (Twice, draw(N, 4), "a layer that is asked twice"),
        (Behind, draw(N, 4), "the layers' formulas find other gradients"),
    ],
)
def test_what_has_no_formula_takes_the_loop_and_says_so(module, x, why, capsys):
    torch.manual_seed(0)
    model, batch = FlatModel(module()), (x, torch.arange(N) % 3)
    for _ in range(2):
        summed = clipped_sum(model, objective, "key", batch, 0.5)
    assert isinstance(summed, ByLoop)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"[privacy] {why}" in said
    assert "a pass for each example takes its place" in said
    assert_alike(summed(batch, N, 0.5), expected(model, batch, 0.5))


def test_what_has_formulas_takes_them(capsys):
    model, batch = made("conv2d")
    assert isinstance(clipped_sum(model, objective, "key", batch, 0.5), ByFormula)
    assert capsys.readouterr().err == ""
    with pytest.raises(NoFormula):
        ByFormula(FlatModel(Recurrent()), objective)


def test_a_loss_that_is_no_mean_of_its_examples_is_refused():
    model, batch = made("linear")

    def contrast(module, x, y):
        answers = module(x)
        return (answers - answers.mean(0)).square().mean()

    with pytest.raises(InputError, match="use a loss that is a mean over independent examples"):
        clipped_sum(model, contrast, "key", batch, 0.5)


def test_of_a_chain_the_bits_are_those_of_other_models(monkeypatch):
    """It is no other formula, but no hooks and no search of a way back."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(12, 6, bias=False), nn.ReLU(), nn.Linear(6, 5), nn.Linear(5, 3)
    )
    model, batch = FlatModel(net), (draw(N, 3, 4), torch.arange(N) % 3)
    fast = clipped_sum(model, objective, "key", batch, 0.5, F.cross_entropy)
    monkeypatch.setattr(fast, "_noted", None)
    sums, norms = fast(batch, 4, 0.5)
    others, same = ByFormula(model, objective)(batch, 4, 0.5)
    assert torch.equal(norms, same)
    assert all(map(torch.equal, sums, others))
    assert_alike((sums, norms), expected(model, tuple(part[:4] for part in batch), 0.5))


def of_outputs(module, x, y):
    return F.cross_entropy(module(x), y)


class Mean(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.each, self.head = nn.Linear(inputs, outputs, bias=False), nn.Linear(outputs, 2, bias=False)

    def forward(self, x):
        return self.head(self.each(x).mean(1))


class Tokens(nn.Module):
    def __init__(self, places):
        super().__init__()
        self.each, self.head = nn.Embedding(50, 16), nn.Linear(16 * places, 2, bias=False)

    def forward(self, x):
        return self.head(self.each(x).flatten(1))


@torch.no_grad()
def of_opposite_places(seed):
    """Examples of which the first has places that cancel but for a little, and many rows, so that norms are
    those of products."""
    torch.manual_seed(seed)
    model, direction = Mean(256, 512), F.normalize(torch.randn(256), dim=0)
    model.head.weight.mul_(200)
    model.each.weight.mul_(1e-3)
    x, sign = torch.zeros(200, 32, 256), torch.tensor([1.0, -1.0]).repeat(16)
    x[0] = 1e3 * sign[:, None] * direction + 0.5 * torch.randn(256) / 16
    return model, x


@torch.no_grad()
def of_one_token(seed):
    """Examples of which the first is one token throughout, whose gradients cancel but for a little."""
    torch.manual_seed(seed)
    model, sign = Tokens(64), torch.tensor([1.0, -1.0]).repeat(32)
    model.each.weight.mul_(1e-6)
    weights = 1e5 * torch.randn(2, 1, 16) * sign[None, :, None] + torch.randn(2, 64, 16)
    model.head.weight.copy_(weights.reshape(2, -1))
    x = torch.randint(0, 50, (8, 64))
    x[0] = 7
    return model, x


@pytest.mark.parametrize("made", [of_opposite_places, of_one_token])
def test_terms_that_cancel_make_no_norm_too_small(made):
    """In float32 the products cancelled to nothing, and an example moved the sum by up to 430 C."""
    moved = []
    for seed in range(10):
        model, x = made(seed)
        y = torch.zeros(len(x), dtype=torch.long)
        y[0] = 1
        sums, _ = ByFormula(FlatModel(model), of_outputs)((x, y), 1, 1.0)
        moved.append(float(torch.stack([s.double().square().sum() for s in sums]).sum().sqrt()))
    assert 0.1 < max(moved) < 1 + 1e-5


def test_one_example_tells_nothing_of_mixing_and_is_no_trial_for_other_silos():
    model, y = FlatModel(nn.Linear(4, 3)), torch.zeros(4, dtype=torch.long)
    assert isinstance(clipped_sum(model, of_outputs, "it", (draw(1, 4), y[:1]), 1.0), ByLoop)
    assert isinstance(clipped_sum(model, of_outputs, "it", (draw(4, 4), y), 1.0), ByFormula)


def test_an_example_that_counts_nothing_gives_others_no_other_masks():
    model = FlatModel(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    model.module.train()
    y, x = torch.zeros(N, dtype=torch.long), draw(N, 4)
    odd = x.clone()
    odd[-1] = torch.nan

    def summed(rows, real):
        torch.manual_seed(3)
        return ByFormula(model, of_outputs)((rows, y), real, 0.1)

    sums, norms = summed(odd, N)
    assert norms[-1] == torch.inf
    for one, other in zip(sums, summed(x, N - 1)[0], strict=True):
        assert torch.allclose(one, other, atol=1e-7)
