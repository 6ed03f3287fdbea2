"""Jobs whose workers score the server's test set, beside the same jobs whose server does, and their data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from mpifl import Observer

LABELS = ("curves", "values", "texts", "failing")
ODD = 1
"""The rank whose models fail in the job `failing` when they are to score."""
TRIED = 2
"""Examples that a model is tried out on."""


def values(seed: int) -> dict[str, np.ndarray]:
    """Two numbers of each example, and a test set of the server."""
    draw, n = np.random.default_rng(seed), 90
    x = draw.normal(size=(n, 5)).astype(np.float32)
    y = (x[:, :2] ** 2 + 0.1 * draw.normal(size=(n, 2))).astype(np.float32)
    return {"x": x[:60], "y": y[:60], "x_test": x[60:], "y_test": y[60:]}


def yes(seed: int) -> dict[str, np.ndarray]:
    """Yes or no of each example."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(120, 4)).astype(np.float32)
    return {"x": x, "y": (draw.random(120) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.int64)}


def lived(seed: int) -> dict[str, np.ndarray]:
    """The whole months that each example was seen, with ties, and whether that ended by an event."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(120, 4)).astype(np.float32)
    x[:, 3] = x[:, 3] > 0
    months = np.ceil(draw.exponential(20 * np.exp(-0.4 * x[:, 0])))
    return {"x": x, "y": np.column_stack([months, draw.random(120) < 0.7]).astype(np.float32)}


def counted(seed: int) -> dict[str, np.ndarray]:
    """Events of each example; the third number is the logarithm of its years, the fourth its weight."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(120, 4)).astype(np.float32)
    x[:, 3] = draw.uniform(0.5, 2, 120)
    return {"x": x, "y": draw.poisson(np.exp(0.4 * x[:, 0] + x[:, 2])).astype(np.float32)}


class Failing(nn.Sequential):
    """Scores nothing on one rank that is not the server's."""

    def forward(self, x: Tensor) -> Tensor:
        from mpi4py import MPI

        tried_out = len(x) <= TRIED
        if not self.training and not tried_out and MPI.COMM_WORLD.Get_rank() == ODD:
            raise KeyError("no such layer")
        return cast("Tensor", super().forward(x))


def failing(shape: Sequence[int], classes: int) -> nn.Module:
    return Failing(nn.Flatten(), nn.Linear(math.prod(shape), classes))


class Heard(Observer):
    """Writes down what the user is told."""

    def note(self, text: str) -> None:
        with (self.folder / "notes.txt").open("a") as file:
            print(text, file=file)


def jobs(job: Any, at: str) -> list[dict[str, Any]]:
    """The jobs, scored at one place; `job` is what makes a job."""
    prefix = "scored" if at == "workers" else "here"
    usual = {"rounds": 3, "tracking": {"observers": ["scored:Heard"]}}
    curves = ["auroc", "accuracy", "f1", "calibration_error"]
    return [
        job(
            f"{prefix}-curves",
            task={"name": "classification", "metrics": curves},
            model={"name": "scenarios:normalised"},
            evaluate={"where": at, "batch_size": 33},
            **usual,
        ),
        job(
            f"{prefix}-values",
            shards="values",
            task={"name": "regression"},
            local={"lr": 0.05, "batch_size": 8},
            evaluate={"where": at, "batch_size": 7},
            **usual,
        ),
        job(
            f"{prefix}-texts",
            shards="read",
            model={"name": "gpt", "width": 8, "layers": 1, "heads": 2},
            local={"lr": 0.1, "batch_size": 4},
            task={"name": "language"},
            evaluate={"where": at, "batch_size": 5},
            **usual,
        ),
        job(
            f"{prefix}-failing",
            model={"name": "scored:failing"},
            evaluate={"where": at, "batch_size": 50},
            **usual,
        ),
    ]
