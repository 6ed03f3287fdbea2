"""A module as flat vectors: one storage, the personal part last, gradients as autograd has them."""

import pytest
import torch
from torch import nn
from unit.builders import CLASSES, batch_norm_net, cross_entropy, net, same_bits, stream

from mpifl.data.shards.shards import Features
from mpifl.learning import models
from mpifl.silo.parameters.flat_model import FlatModel

MNIST = Features(shape=(1, 28, 28), dtype="uint8", scale=1 / 255)
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]
X, Y = torch.randn(7, 4, generator=stream(1)), torch.arange(7) % CLASSES


class Branches(nn.Module):
    """Tied weights, a frozen parameter, one that is never used, and a buffer that is not kept."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.full((4,), 2.0), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(2))
        self.head = nn.Linear(4, CLASSES)
        self.register_buffer("scratch", torch.ones(9), persistent=False)
        self.register_buffer("mask", torch.tensor([True, False]))

    def forward(self, x):
        return self.head(self.second(self.first(x)) * self.frozen)


def branches(**more):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return FlatModel(Branches(), **more)


def autograd(module, x=X, y=Y):
    """Return every trainable parameter's gradient by name,
    as `backward` leaves it; zeros where it leaves none."""
    module.zero_grad()
    cross_entropy(module, x, y).backward()
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in module.named_parameters()
        if p.requires_grad
    }
    module.zero_grad()
    return found


def test_parameters_keep_their_values_and_share_the_storage_of_the_vector():
    module = net()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    model = FlatModel(module)
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
    assert same_bits(model.trained, torch.cat([before[name].reshape(-1) for name in model.names]))
    model.trained.fill_(3.0)
    assert all(bool((p == 3.0).all()) for p in module.parameters())
    with torch.no_grad():
        module[0].weight.fill_(5.0)
    assert model.trained[:20].tolist() == [5.0] * 20
    assert [v.data_ptr() for v in model.views(model.trained)] == [p.data_ptr() for p in model.parameters]


def test_views_cut_any_vector_into_the_parameters_shapes():
    model = FlatModel(net())
    vector = torch.arange(float(len(model.trained)))
    views = model.views(vector)
    assert [view.shape for view in views] == [p.shape for p in model.parameters]
    views[1].zero_()
    assert vector[20:25].tolist() == [0.0] * 5


@pytest.mark.parametrize(
    "personal",
    [[], ["2.weight", "2.bias"], ["0.weight", "0.bias"], ["0.bias", "2.bias"], NAMES, ["no such"]],
    ids=str,
)
def test_personal_parameters_come_last_and_all_keep_their_order(personal):
    model = FlatModel(net(), personal=personal)
    assert model.names == [n for n in NAMES if n not in personal] + [n for n in NAMES if n in personal]
    parameters = dict(model.module.named_parameters())
    assert len(model.personal) == sum(p.numel() for name, p in parameters.items() if name in personal)
    assert len(model.shared) + len(model.personal) == len(model.trained)
    model.shared.fill_(1.0)
    model.personal.fill_(2.0)
    assert all(bool((p == (2.0 if name in personal else 1.0)).all()) for name, p in parameters.items())


@pytest.mark.parametrize(
    "make", [lambda: FlatModel(net()), lambda: FlatModel(net(), personal=["0.weight"]), branches]
)
def test_gradients_are_those_of_autograd(make):
    model = make()
    expected = autograd(model.module)
    gradients = model.gradients(cross_entropy(model.module, X, Y))
    assert all(torch.equal(g, expected[name]) for name, g in zip(model.names, gradients, strict=True))
    flat = model.flatten(gradients)
    assert flat is model.grad
    assert torch.equal(flat, torch.cat([expected[name].reshape(-1) for name in model.names]))


def test_a_parameter_that_the_loss_does_not_depend_on_has_the_gradient_zero():
    model = branches()
    gradients = model.gradients(cross_entropy(model.module, X, Y))
    assert gradients[model.names.index("unused")].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("width", [1, 3, 5, 8, 33])
@pytest.mark.parametrize("lr", [0.1, 1 / 3])
def test_descending_is_flattening_and_adding_bit_for_bit(width, lr):
    one, other = FlatModel(net(hidden=width)), FlatModel(net(hidden=width))
    for _ in range(3):
        gradients = one.gradients(cross_entropy(one.module, X, Y))
        one.descend(gradients, lr)
        other.trained.add_(other.flatten(gradients), alpha=-lr)
    assert same_bits(one.trained, other.trained)


def test_tied_weights_lie_in_the_vector_once_and_frozen_ones_not_at_all():
    model = branches()
    assert model.names == ["unused", "first.weight", "head.weight", "head.bias"]
    model.trained.zero_()
    assert model.module.second.weight.abs().sum() == 0
    assert model.module.second.weight is model.module.first.weight
    assert model.module.frozen.tolist() == [2.0] * 4


def test_statistics_go_round_with_counters_whole():
    model = FlatModel(batch_norm_net())
    assert len(model.statistics) == 11
    assert model.statistics.read().tolist() == [0.0] * 5 + [1.0] * 5 + [0.0]
    for _ in range(3):
        model.module(X)
    seen = model.statistics.read()
    assert seen.dtype == torch.float64
    assert seen[-1] == 3
    norm = model.module[1]
    assert torch.equal(seen[:5], norm.running_mean.double())
    model.statistics.write(torch.full_like(seen, 7.6))
    assert norm.num_batches_tracked.dtype == torch.int64
    assert norm.num_batches_tracked == 8
    assert norm.running_mean.tolist() == torch.full((5,), 7.6).tolist()
    model.statistics.write(seen)
    assert same_bits(model.statistics.read(), seen)


def test_a_counter_is_held_exactly_where_float32_would_not():
    model = FlatModel(batch_norm_net())
    model.module[1].num_batches_tracked.fill_(2**24 + 1)
    assert int(model.statistics.read()[-1]) == 2**24 + 1


def test_statistics_are_read_as_a_copy():
    model = FlatModel(batch_norm_net())
    model.statistics.read().fill_(9.0)
    assert model.statistics.read()[-1] == 0


def test_personal_buffers_are_kept_apart_from_those_that_are_averaged():
    model = FlatModel(batch_norm_net(), personal=["1.running_mean", "1.num_batches_tracked", "1.weight"])
    model.module(X)
    norm = model.module[1]
    assert torch.equal(model.statistics.read(), norm.running_var.double())
    assert torch.equal(
        model.personal_statistics.read(), torch.cat([norm.running_mean.double(), torch.ones(1)])
    )
    model.personal_statistics.write(torch.full((6,), 4.0))
    assert norm.running_mean.tolist() == [4.0] * 5
    assert norm.num_batches_tracked == 4


@pytest.mark.parametrize("make", [lambda: FlatModel(net()), branches])
def test_a_model_without_statistics_has_an_empty_vector_of_them(make):
    model = make()
    assert len(model.statistics) == len(model.personal_statistics) == 0
    assert model.statistics.read().shape == (0,)
    model.statistics.write(model.statistics.read())  # what restores them does nothing


def test_a_statistics_vector_of_another_length_is_refused():
    with pytest.raises((RuntimeError, ValueError)):
        FlatModel(batch_norm_net()).statistics.write(torch.zeros(3))


@pytest.mark.parametrize(
    "make", [lambda: FlatModel(net(), personal=["0.bias"]), branches, lambda: FlatModel(batch_norm_net())]
)
def test_the_gradient_at_other_parameters_leaves_the_module_as_it_is(make):
    model, other = make(), make()
    at = torch.randn(len(model.trained), generator=stream())
    other.trained.copy_(at)
    expected = other.flatten(other.gradients(cross_entropy(other.module, X, Y))).clone()
    before, statistics = model.trained.clone(), model.statistics.read()
    assert torch.allclose(model.gradient_at(at, cross_entropy, (X, Y)), expected, atol=1e-7)
    assert same_bits(model.trained, before)
    assert same_bits(model.statistics.read(), statistics)
    assert not at.requires_grad


@pytest.mark.parametrize(("name", "parameters"), [("2nn", 199_210), ("cnn", 1_663_370)])
def test_the_papers_models_have_the_papers_number_of_parameters(name, parameters):
    model = FlatModel(models.build(name, {}, MNIST, 10, seed=0))
    assert len(model.trained) == parameters


@pytest.mark.parametrize("make", [net, batch_norm_net, Branches])
def test_a_state_dict_loads_into_the_plain_module(make):
    model, plain = FlatModel(make(), personal=["0.bias"]), make()
    model.trained.copy_(torch.randn(len(model.trained), generator=stream()))
    model.module(X)
    state = model.state_dict()
    assert list(state) == list(plain.state_dict())
    plain.load_state_dict(state)
    assert torch.equal(plain.eval()(X), model.module.eval()(X))


def test_a_state_dict_copies_nothing():
    model = FlatModel(net())
    state = model.state_dict()
    model.trained.zero_()
    assert not state["0.weight"].any()


def test_what_is_frozen_is_left_out_by_every_name_that_it_has():
    module = Branches()
    module.first.requires_grad_(False)
    kept = FlatModel(module, saves="trained").state_dict()
    assert kept.keys() == {"unused", "head.weight", "head.bias", "mask"}


class Reflattening(nn.LSTM):
    """An LSTM that moves its weights together as one does on CUDA: after a call on other weights."""

    def flatten_parameters(self):
        for p in self._flat_weights:
            p.data = p.data.clone()


class Chars(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = Reflattening(4, 5, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        return self.head(self.lstm(x.unsqueeze(1))[0][:, -1])


def test_an_lstm_leaves_its_weights_in_the_flat_vector():
    model = FlatModel(Chars())
    model.gradient_at(model.trained + 1, cross_entropy, (X, Y))
    model.module(X)
    pairs = zip(model.names, model.parameters, model.views(model.trained), strict=True)
    assert [name for name, p, view in pairs if p.data_ptr() != view.data_ptr()] == []
