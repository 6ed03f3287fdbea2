"""The oracles that correct local gradients end where the formulas say, without mpifl: at the optimum of sum_k
p_k F_k.

F_k(w) = (w - m_k)^2 / 2, m = 1 at a silo with nine examples and m = -1 at a silo with one. By examples the
optimum is 0.8; it is 0 where silos count alike. The silos take different numbers of steps: averaging alone
ends elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from reference import oracles
from torch import Tensor, nn

EXAMPLES, CENTRES, STEPS = (9, 1), (1.0, -1.0), (5, 2)
ALGORITHMS: dict[str, dict[str, Any]] = {
    "scaffold-I": {"name": "scaffold", "option": "I"},
    "scaffold-II": {"name": "scaffold", "option": "II"},
    "feddyn": {"name": "feddyn", "alpha": 2.0},
}
COHORTS: dict[str, tuple[dict[str, Any], float]] = {
    "everyone": ({}, 0.8),
    "everyone-alike": ({"weights": "uniform"}, 0.0),
    "one": ({"fraction": 0.5}, 0.8),
    "one-alike": ({"fraction": 0.5, "weights": "uniform"}, 0.0),
    "one-by-examples": ({"fraction": 0.5, "select": "examples", "weights": "uniform"}, 0.8),
}
"""What a job says of its cohort, and where the optimum then is."""


class Quadratics(oracles.Task):
    """The two silos' task: full gradients, a seeded draw of its own, from w = 3 in rounds that are enough."""

    def __init__(self, own: dict[str, Any], draw: dict[str, Any]) -> None:
        self.own, self.draw, self.n = own, draw, list(EXAMPLES)
        self.rounds = 400 if draw.get("select") == "examples" else 150  # one silo of two is drawn seldom
        self.local, self.server, self.figures = {"lr": 0.1}, {"lr": 1.0}, []
        self.start = {"w": torch.tensor(3.0, dtype=torch.float64)}
        self.net = nn.ParameterDict({"w": nn.Parameter(self.start["w"].clone())})

    def cohort(self, t: int) -> list[int]:
        if self.draw.get("fraction", 1.0) == 1:
            return [0, 1]
        chances = (0.9, 0.1) if self.draw.get("select") == "examples" else (0.5, 0.5)
        return [int(np.random.default_rng((3, t)).choice(2, p=chances))]

    def batches(self, k: int, t: int) -> list[list[int]]:
        return [[0]] * STEPS[k]

    def cross_entropy(self, net: nn.Module, k: int, i: Any) -> Tensor:
        return (net["w"] - CENTRES[k]).square() / 2


@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_oracle_ends_at_the_optimum(name: str, cohort: str) -> None:
    own, (draw, optimum) = ALGORITHMS[name], COHORTS[cohort]
    task = Quadratics(own, draw)
    assert float(getattr(oracles, own["name"])(task)["w"]) == pytest.approx(optimum, abs=1e-6)
    (kept,) = task.server_keeps.values()
    assert float(kept["w"]) == pytest.approx(0, abs=1e-6)
    gradients = [float(next(iter(task.kept[k].values()))["w"]) for k in (0, 1)]
    assert gradients == pytest.approx([optimum - m for m in CENTRES], abs=1e-6)


@pytest.mark.parametrize("draw", [draw for draw, _ in COHORTS.values()], ids=COHORTS)
def test_controls_that_weigh_alike_end_where_silos_count_alike_whatever_deltas_weigh(draw: Any) -> None:
    own = {"name": "scaffold", "option": "II", "control_weights": "uniform"}
    assert float(oracles.scaffold(Quadratics(own, draw))["w"]) == pytest.approx(0, abs=1e-6)


def test_the_scalings_are_those_counted_by_hand() -> None:
    """Features that all examples have, that one silo alone has,
    that they have unequally often, that none has."""
    task = Quadratics({"scaling": True}, {})
    task.n = [2, 3]
    task.silos = [
        (torch.tensor([[1.0, 5.0, 1.0, 0.0], [2.0, 0.0, -1.0, 0.0]]), None),
        (torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [3.0, 0.0, 7.0, 0.0]]), None),
    ]
    s, a = oracles.scalings(task)
    assert a.tolist() == [1, 2, 1, 1]
    assert s[0].tolist() == pytest.approx([1, (1 / 5) / (1 / 2), (3 / 5) / 1, 1])
    assert s[1].tolist() == pytest.approx([1, 1, (3 / 5) / (1 / 3), 1])
