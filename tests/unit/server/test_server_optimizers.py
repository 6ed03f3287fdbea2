"""The server's optimizers against Reddi et al. 2021, Algorithm 2, and Hsu et al. 2019, over Python floats."""

import math

import pytest
import torch
from pydantic import ValidationError

from mpifl.algorithms.server_optimizers import OPTIMIZERS

START = [0.5, -1.0, 0.0, 2.0]
DELTAS = [[0.1, -0.2, 0.0, 3.0], [-0.05, 0.4, 0.0, 1e-4], [0.3, 0.0, -0.01, -2.0]]
SECOND = {
    "adagrad": lambda v, d, beta2: v + d**2,
    "adam": lambda v, d, beta2: beta2 * v + (1 - beta2) * d**2,
    "yogi": lambda v, d, beta2: v - (1 - beta2) * d**2 * math.copysign(v != d**2, v - d**2),
}


def adaptive(name, lr, beta1, tau, beta2=None):
    """Algorithm 2 of Reddi et al. 2021, one coordinate after another."""
    w = list(START)
    for i in range(len(w)):
        m, v = 0.0, tau**2
        for delta in DELTAS:
            m = beta1 * m + (1 - beta1) * delta[i]
            v = SECOND[name](v, delta[i], beta2)
            w[i] += lr * m / (math.sqrt(v) + tau)
    return w


def averaged(lr, momentum=0.0):
    """FedAvgM of Hsu, Qi & Brown 2019: v = beta v + delta, w += lr v."""
    w = list(START)
    for i in range(len(w)):
        v = 0.0
        for delta in DELTAS:
            v = momentum * v + delta[i]
            w[i] += lr * v
    return w


def stepped(name, **settings):
    """Return the server's state after a step along each of DELTAS, which must be left alone."""
    state = {"w": torch.tensor(START)}
    w = state["w"]
    for delta in DELTAS:
        given = torch.tensor(delta)
        # a new object each time: what it learned lies in the state
        OPTIMIZERS[name](**settings).step(state, given)
        assert given.tolist() == torch.tensor(delta).tolist()
    assert state["w"] is w
    return state


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("adagrad", {"lr": 0.1, "beta1": 0.0, "tau": 1e-2}),
        ("adagrad", {"lr": 0.03, "beta1": 0.5, "tau": 1e-3}),
        ("adam", {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-2}),
        ("adam", {"lr": 0.03, "beta1": 0.0, "beta2": 0.5, "tau": 1e-1}),
        ("yogi", {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 1e-2}),
        ("yogi", {"lr": 0.03, "beta1": 0.5, "beta2": 0.5, "tau": 7e-2}),
    ],
    ids=str,
)
def test_the_adaptive_optimizers_follow_their_paper(name, settings):
    state = stepped(name, **settings)
    assert state["w"].tolist() == pytest.approx(adaptive(name, **settings), rel=2e-6, abs=2e-6)
    assert sorted(state) == ["m", "v", "w"]


@pytest.mark.parametrize("settings", [{"lr": 1.0}, {"lr": 0.5}, {"lr": 1.0, "momentum": 0.9}], ids=str)
def test_gradient_descent_with_momentum_is_fedavgm(settings):
    state = stepped("sgd", **settings)
    assert state["w"].tolist() == pytest.approx(averaged(**settings), rel=1e-6, abs=1e-6)
    assert ("velocity" in state) == ("momentum" in settings)


def test_the_default_adds_the_mean_delta_to_the_bit():
    state = {"w": torch.tensor(START)}
    OPTIMIZERS["sgd"]().step(state, torch.tensor(DELTAS[0]))
    assert state["w"].tolist() == (torch.tensor(START) + torch.tensor(DELTAS[0])).tolist()


def test_what_yogi_and_adam_keep_of_a_coordinate_that_never_moves_is_harmless():
    for name in ("adam", "yogi", "adagrad"):
        state = stepped(name, lr=0.1, tau=1e-2)
        assert torch.isfinite(state["w"]).all()


@pytest.mark.parametrize("defaults", [("adagrad", 0.0), ("adam", 0.9), ("yogi", 0.9)])
def test_the_defaults_are_those_of_the_paper(defaults):
    name, beta1 = defaults
    optimizer = OPTIMIZERS[name]()
    assert (optimizer.beta1, optimizer.tau) == (beta1, 1e-3)
    assert name == "adagrad" or optimizer.beta2 == 0.99


@pytest.mark.parametrize(
    ("name", "settings"),
    [("sgd", {"momentum": 1.0}), ("adam", {"beta2": 1.0}), ("yogi", {"tau": 0.0}), ("sgd", {"beta1": 0.9}), ("adagrad", {"lr": -1.0})],  # noqa: E501
    ids=str,
)  # fmt: skip
def test_settings_out_of_range_and_of_another_rule_are_refused(name, settings):
    with pytest.raises(ValidationError):
        OPTIMIZERS[name](**settings)


@pytest.mark.parametrize("name", ["adagrad", "adam", "yogi"])
def test_the_largest_tau_can_be_squared(name):
    assert torch.isfinite(stepped(name, lr=0.1, tau=1e18)["w"]).all()
    with pytest.raises(ValueError, match="less than or equal to 1000"):
        stepped(name, lr=0.1, tau=1e19)
