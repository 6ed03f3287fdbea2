"""Jobs over silos that have columns of the same rows, and the user's own modules that they name."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from mpifl.wings.split import ColumnSilo
from mpifl.wings.split.splitnn import SplitNN
from mpifl.wire import Update

BOTTOM = "vertical:bottom"
"""The plug-in that the jobs name."""
LINE = 7
"""The line in which a bottom fails."""
_failed: WeakKeyDictionary[object, set[int]] = WeakKeyDictionary()


def bottom(shape: Sequence[int], classes: int) -> nn.Module:
    """A bottom with BatchNorm, whose statistics stay at the silo, and dropout, drawn for each line."""
    width = shape[0]
    return nn.Sequential(
        nn.Linear(width, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, classes)
    )


class Stumbles(SplitNN):
    """As SplitNN, but in round 2 silo 2 fails once, in line 7."""

    def bottom(self, silo: ColumnSilo) -> Generator[Tensor, Tensor | None, Update]:
        failed = _failed.setdefault(silo.model, set())
        half, answer = super().bottom(silo), None
        for line in range(1000):
            if (silo.round, silo.id, line) == (1, 2, LINE) and silo.id not in failed:
                failed.add(silo.id)
                raise OSError("the disk is gone")
            try:
                answer = yield half.send(answer)
            except StopIteration as end:
                return end.value
        raise AssertionError("unreachable")


def split(name: str, algorithm: str = "splitnn", rounds: int = 3, **tables: Any) -> dict[str, Any]:
    """A job for a split network; tables replace the usual ones."""
    usual = {
        "model": {"name": BOTTOM},
        "split": {"cut_width": 24, "top": {"name": "mlp", "hidden": [8]}},
        "local": {"optimizer": "adam", "lr": 0.01, "batch_size": 64, "drop_last": True},
        "checkpoint": {"every": 2},
        "device": "cpu",
    }
    about = {"name": name, "shards": "columns", "seed": 3, "rounds": rounds}
    more = {"local_steps": tables.pop("local_steps")} if "local_steps" in tables else {}
    return {**about, **usual, **tables, "algorithm": {"name": algorithm, **more}}


JOBS = [
    split("split"),
    split("split-lost", "vertical:Stumbles"),
    split(
        "split-sum",
        local_steps=3,
        rounds=4,  # it is stopped after the third, which is scored
        split={"cut_width": 10, "merge": "sum", "top": "none"},
        local={"lr": 0.05, "momentum": 0.9, "batch_size": 50, "steps": 20, "lr_decay": 0.9},
        evaluate={"every": 3},
    ),
    split(
        "split-qsgd",
        compression={"upload": "qsgd", "download": "float16", "bits": 4},
        split={"cut_width": 6, "top": {"name": "mlp", "hidden": [8]}, "protect": "max-norm"},
    ),
    split(
        "split-flips",
        local_steps=2,
        compression={"upload": "bfloat16", "download": "qsgd", "norm": "l2"},
        split={"cut_width": 10, "merge": "sum", "top": "none", "protect": "label-dp", "epsilon": 3.0},
        local={"lr": 0.05, "batch_size": 100},
    ),
    split(
        "split-uneven",
        rounds=2,
        model={"name": "mlp", "hidden": [5]},
        split={"cut_width": [2, 3, 4], "bottoms": {"1": {"name": "logreg"}}},
        local={"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5, "batch_size": "full", "steps": 3},
        evaluate={"split": "valid"},
    ),
]
