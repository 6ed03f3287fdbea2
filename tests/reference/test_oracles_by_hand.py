"""Oracles of single rounds against what their formulas come to by hand, without mpifl."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference import oracles
from reference.test_oracle_closed_forms import CENTRES, STEPS, Quadratics
from torch import Tensor, nn

RATE = 0.1
EQUAL = (1, 1)


class Round(Quadratics):
    """One round of both silos, F_k(w) = (w - m_k)^2 / 2 with m = (1, -1), from `start` at rate 0.1."""

    def __init__(
        self,
        own: dict[str, Any],
        start: float = 3.0,
        steps: tuple[int, int] = STEPS,
        uniform: bool = True,
        rounds: int = 1,
    ) -> None:
        super().__init__(own, {"weights": "uniform"} if uniform else {})
        self.rounds, self.taken, self.personal, self.kept = rounds, steps, {}, {}
        self.start = {"w": torch.tensor(start, dtype=torch.float64)}

    def batches(self, k: int, t: int) -> list[list[int]]:
        return [[0]] * self.taken[k]


def end_of(oracle: str, task: oracles.Task) -> float:
    return float(getattr(oracles, oracle)(task)["w"])


def approached(start: float, centre: float, factor: float, steps: int) -> float:
    """Where steps end that each leave `factor` of the way to `centre`."""
    return centre + factor**steps * (start - centre)


@pytest.mark.parametrize(
    ("start", "uniform", "eta", "mean"),
    [
        # Delta = (0.25, -0.75) at w = 0.5: mean -0.25 and mean of squares 0.3125, by examples 0.15 and 0.1125
        (0.5, True, 0.3125 / (2 * (0.0625 + 0.001)), -0.25),
        (0.5, False, 0.1125 / (2 * (0.0225 + 0.001)), 0.15),
        # Delta = (-1, -2) at w = 3: 2.5 / (2 * 2.251) is below 1
        (3.0, True, 1.0, -1.5),
    ],
)
def test_fedexp_goes_as_far_as_deltas_differ(start: float, uniform: bool, eta: float, mean: float) -> None:
    task = Round({}, start, steps=EQUAL, uniform=uniform)
    task.local = {"lr": 0.5}
    assert end_of("fedexp", task) == pytest.approx(start + eta * mean, rel=1e-12)
    assert task.figures[0]["eta_g"] == pytest.approx(eta, rel=1e-12)


def test_fedexp_of_orthogonal_deltas_goes_half_of_each() -> None:
    """eta_g = M / 2 of M of them, epsilon being 0: w goes half of the way that each has gone, for any M."""

    class Orthogonal(oracles.Task):
        def __init__(self, silos: int) -> None:
            self.own, self.draw, self.n, self.rounds = {"epsilon": 0.0}, {}, [1] * silos, 1
            self.local, self.figures = {"lr": 1.0}, []
            self.start = {"w": torch.full((silos,), 2.0, dtype=torch.float64)}
            self.net = nn.ParameterDict({"w": nn.Parameter(self.start["w"].clone())})

        def cohort(self, t: int) -> list[int]:
            return list(range(len(self.n)))

        def batches(self, k: int, t: int) -> list[list[int]]:
            return [[0]]

        def cross_entropy(self, net: nn.Module, k: int, i: Any) -> Tensor:
            return net["w"][k].square() / 2

    for silos in (2, 4, 8):
        task = Orthogonal(silos)
        assert oracles.fedexp(task)["w"].tolist() == pytest.approx([1.0] * silos, rel=1e-12)
        assert task.figures[0]["eta_g"] == pytest.approx(silos / 2, rel=1e-12)


def test_fedsam_adds_rho_to_the_gradient_of_a_parabola() -> None:
    """grad F(w + rho sign g) = w - m + rho sign g: above m, steps go to m - rho."""
    task = Round({"rho": 0.25})
    ends = [approached(3.0, m - 0.25, 1 - RATE, n) for m, n in zip(CENTRES, STEPS, strict=True)]
    assert end_of("fedsam", task) == pytest.approx(sum(ends) / 2, rel=1e-12)
    seen = [
        sum((approached(3.0, m - 0.25, 1 - RATE, j) - m) ** 2 / 2 for j in range(n)) / n
        for m, n in zip(CENTRES, STEPS, strict=True)
    ]
    assert task.figures[0]["train_loss"] == pytest.approx(sum(seen) / 2, rel=1e-12), "at w, not above"


def test_fedsam_at_a_minimum_stays() -> None:
    task = Round({"rho": 0.25}, start=1.0, steps=(1, 1))
    assert end_of("fedsam", task) == pytest.approx((1.0 + 1 - RATE * (2 + 0.25)) / 2, rel=1e-12)


def test_fedsam_clips_the_gradient_above() -> None:
    """At w = 3 the gradients are 2 and 4 and those above 2.25 and 4.25: cut to 2.1, all silos go alike."""
    task = Round({"rho": 0.25}, steps=(1, 1))
    task.local = {"lr": RATE, "clip_norm": 2.1}
    assert end_of("fedsam", task) == pytest.approx(3 - RATE * 2.1, rel=1e-12)


class TwoParameters(Round):
    """A silo with a head h and a representation phi: F_k = (h phi - m_k)^2 / 2, or the bowl h^2 + phi^2."""

    def __init__(
        self, own: dict[str, Any], h: float, phi: float, bowl: bool = False, rounds: int = 1
    ) -> None:
        super().__init__(own, rounds=rounds)
        self.bowl, self.seed = bowl, 1
        self.local = {"lr": RATE, "batch_size": "full"}
        self.start = {name: torch.tensor(v, dtype=torch.float64) for name, v in (("head", h), ("phi", phi))}
        self.net = nn.ParameterDict({name: nn.Parameter(v.clone()) for name, v in self.start.items()})

    def cross_entropy(self, net: nn.Module, k: int, i: Any) -> Tensor:
        if self.bowl:
            return (net["head"].square() + net["phi"].square()) / 2
        return (net["head"] * net["phi"] - CENTRES[k]).square() / 2


def test_fedsam_takes_the_norm_over_all_parameters() -> None:
    """At (3, 4) the gradient is 5 long: w + rho g / 5 = (1 + rho / 5) w."""
    task = TwoParameters({"rho": 0.5}, 3.0, 4.0, bowl=True)
    task.taken = (1, 1)
    end, left = oracles.fedsam(task), 1 - RATE * (1 + 0.5 / 5)
    assert [float(end["head"]), float(end["phi"])] == pytest.approx([3 * left, 4 * left], rel=1e-12)


def test_fedsam_learns_statistics_from_the_first_pass_alone() -> None:
    """After one step they are FedAvg's: the passes at w are the same, and the other left no trace."""

    class Normalised(oracles.Task):
        def __init__(self, steps: int) -> None:
            draws = torch.Generator().manual_seed(2)
            self.own, self.draw, self.n, self.rounds, self.steps = {"rho": 2.0}, {}, [8], 1, steps
            self.local, self.figures = {"lr": RATE}, []
            self.net = oracles.network("problems:normalised")
            self.start = {
                name: torch.rand(v.shape, generator=draws).double() if v.is_floating_point() else v.clone()
                for name, v in self.net.state_dict().items()
            }
            x = torch.randn(8, 6, generator=draws).double()
            self.silos = [(x, torch.arange(8) % 3)]

        def cohort(self, t: int) -> list[int]:
            return [0]

        def batches(self, k: int, t: int) -> list[Tensor]:
            return [torch.arange(8)] * self.steps

    statistics = [f"features.3.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")]
    once, plain = oracles.fedsam(Normalised(1)), oracles.fedavg(Normalised(1))
    for name in statistics:
        assert torch.equal(once[name], plain[name])
    assert not torch.allclose(once["head.weight"], plain["head.weight"], rtol=1e-3)
    assert float(oracles.fedsam(Normalised(3))["features.3.num_batches_tracked"]) == 3


def test_fedrep_trains_the_head_and_then_the_rest() -> None:
    """With phi fixed h goes to m / phi, leaving 1 - eta phi^2 of the way each step; then phi to m / h."""
    h, phi, epochs = (0.5, 0.5), 1.2, 4
    task = TwoParameters({"personal": ["head*"], "head_epochs": epochs}, h[0], phi, rounds=3)
    end = oracles.fedrep(task)
    for t in range(3):
        h = tuple(
            approached(h_k, m / phi, 1 - RATE * phi**2, epochs) for h_k, m in zip(h, CENTRES, strict=True)
        )
        starts = [(h_k * phi - m) ** 2 / 2 for h_k, m in zip(h, CENTRES, strict=True)]
        losses = [
            sum(start * (1 - RATE * h_k**2) ** (2 * j) for j in range(n)) / n
            for start, h_k, n in zip(starts, h, STEPS, strict=True)
        ]
        assert task.figures[t]["train_loss"] == pytest.approx(sum(losses) / 2, rel=1e-12), "of the second"
        ends = [
            approached(phi, m / h_k, 1 - RATE * h_k**2, n)
            for h_k, m, n in zip(h, CENTRES, STEPS, strict=True)
        ]
        phi = sum(ends) / 2
    assert float(end["phi"]) == pytest.approx(phi, rel=1e-12)
    assert float(end["head"]) == 0.5, "the global model has the head that it began with"
    assert [float(task.personal[k]["head"]) for k in (0, 1)] == pytest.approx(h, rel=1e-12)
    assert float(task.personal[1]["phi"]) == pytest.approx(phi, rel=1e-12)


@pytest.mark.parametrize(
    ("inner_steps", "inner_lr", "beta"),
    [(1, 1 / 4, 1.0), (5, 0.05, 0.5), (2, 0.3, 2.0)],  # 1 / (1 + lambda): theta is exact after one step
)
def test_pfedme_descends_the_moreau_envelope(inner_steps: int, inner_lr: float, beta: float) -> None:
    """w - theta = (1 - c^K) (w - m) / (1 + lambda), c = 1 - inner_lr (1 + lambda), at each step."""
    pull = 3.0
    task = Round({"lambda": pull, "inner_steps": inner_steps, "inner_lr": inner_lr})
    task.server = {"lr": beta}
    end, share = end_of("pfedme", task), (1 - (1 - inner_lr * (1 + pull)) ** inner_steps) / (1 + pull)
    factor = 1 - RATE * pull * share
    ends = [approached(3.0, m, factor, n) for m, n in zip(CENTRES, STEPS, strict=True)]
    assert end == pytest.approx(3 + beta * (sum(ends) / 2 - 3), rel=1e-12)
    for k, (m, n) in enumerate(zip(CENTRES, STEPS, strict=True)):
        last = approached(3.0, m, factor, n - 1)
        assert float(task.personal[k]["w"]) == pytest.approx(last - share * (last - m), rel=1e-12)
    losses = [
        sum((approached(3.0, m, factor, j) - m) ** 2 / 2 for j in range(n)) / n
        for m, n in zip(CENTRES, STEPS, strict=True)
    ]
    assert task.figures[0]["train_loss"] == pytest.approx(sum(losses) / 2, rel=1e-12)


class Clusters(Round):
    """Three silos, the third at m = 1.2 with two examples; models begin at (2, -2) and at (-2, 2)."""

    def __init__(self, own: dict[str, Any], **more: Any) -> None:
        super().__init__({"clusters": 2, **own}, **more)
        self.taken = (1, 1, 1)
        self.n, self.local = [9, 1, 2], {"lr": 0.5}
        self.start = {"w": torch.tensor([2.0, -2.0], dtype=torch.float64)}
        self.net = nn.ParameterDict({"w": nn.Parameter(self.start["w"].clone())})

    def cohort(self, t: int) -> list[int]:
        return [0, 1, 2]

    def cross_entropy(self, net: nn.Module, k: int, i: Any) -> Tensor:
        return (net["w"][0] - (1.0, -1.0, 1.2)[k]).square() / 2


def test_ifca_by_hand() -> None:
    """Models at 2 and -2: silos 0 and 2 take the first, silo 1 the other, and half of the way each.

    By models 1.5 and 1.6 are averaged, and -1.5 stays. By gradients 1 and 0.8 of nine and two of twelve
    examples move the first by half of 10.6 / 12, and -1 of one the other.
    """
    for uniform, first in ((True, 1.55), (False, (9 * 1.5 + 2 * 1.6) / 11)):
        task = Clusters({"name": "ifca"}, uniform=uniform)
        task.seed = next(seed for seed in range(9) if swapped(seed))
        assert float(oracles.ifca(task)["w"][0]) == pytest.approx(first, rel=1e-12)
        assert float(task.server_keeps["w_1"]["w"][0]) == pytest.approx(-1.5, rel=1e-12)
        assert task.figures[0]["cluster_silos"] == {"0": 0, "1": 1, "2": 0}
        assert task.personal.keys() == {1}
    task = Clusters({"name": "ifcasgd"}, uniform=False)
    task.seed = next(seed for seed in range(9) if swapped(seed))
    assert float(oracles.ifca(task)["w"][0]) == pytest.approx(2 - 0.5 * 10.6 / 12, rel=1e-12)
    assert float(task.server_keeps["w_1"]["w"][0]) == pytest.approx(-2 + 0.5 / 12, rel=1e-12)


def swapped(seed: int) -> bool:
    return torch.randperm(2, generator=oracles.rng.torch_stream(seed, "cluster", 1)).tolist() == [1, 0]


def test_apfl_is_fedavg_beside_training_alone() -> None:
    """alpha = 1: v is the silo's own, over all rounds; alpha = 0: the personal model is the global one."""
    right = end_of("fedavg", Round({}, rounds=3))
    for alpha in (0.0, 0.5, 1.0):
        task = Round({"alpha": alpha}, rounds=3)
        assert end_of("apfl", task) == pytest.approx(right, rel=1e-12)
        if alpha == 0:
            assert [float(task.personal[k]["w"]) for k in (0, 1)] == pytest.approx([right] * 2, rel=1e-12)
        if alpha == 1:
            own = [approached(3.0, m, 1 - RATE, 3 * n) for m, n in zip(CENTRES, STEPS, strict=True)]
            assert [float(task.personal[k]["w"]) for k in (0, 1)] == pytest.approx(own, rel=1e-12)


def test_apfl_steps_by_hand() -> None:
    """Silo 1, m = -1, from 3: v-bar 3, g 4: v 2.8, w 2.6; v-bar 2.7, g 3.7: v 2.615, w 2.24.

    Adaptive: v - w is 0, then 0.2, and alpha 0.5 - 0.1 * 3.7 * 0.2 = 0.426.
    """
    for adaptive, alpha in ((False, 0.5), (True, 0.426)):
        task = Round({"alpha": 0.5, "adaptive": adaptive})
        w = end_of("apfl", task)
        assert w == pytest.approx((1 + 0.9**5 * 2 + 2.24) / 2, rel=1e-12)
        assert float(task.personal[1]["w"]) == pytest.approx(alpha * 2.615 + (1 - alpha) * w, rel=1e-12)


@pytest.mark.parametrize(
    ("rate", "left"),
    [(0.1, None), (1.5, 0.34375)],
)
def test_apfl_cuts_alpha(rate: float, left: float | None) -> None:
    """From d = 30 above m, alpha passes 0 where v lags behind w, and 1 where w has overshot by half of d.

    At rate 1.5: w - m is -d / 2, v - m is d / 4, the gradient at v-bar -d / 8; v - m ends at 11 d / 32.
    """
    task = Round({"alpha": 0.5, "adaptive": True}, start=31.0, steps=(2, 2))
    task.local = {"lr": rate}
    w = end_of("apfl", task)
    right = w if left is None else 1 + left * 30
    assert float(task.personal[0]["w"]) == pytest.approx(right, rel=1e-12)
