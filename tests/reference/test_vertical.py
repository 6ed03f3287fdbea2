"""Split training is what the oracle makes of the same weights and rows, and what one network in one place
would have learned."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import oracles, split
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from data_prep.cut import partition_columns
from data_prep.schemes import Shares
from mpifl.common import rng

WIDTHS, ROWS, TESTED = (4, 7, 2), 57, 33
Job = dict[str, Any]


def job(name: str, shards: str = "classes", rounds: int = 3, **tables: Any) -> Job:
    usual: Job = {
        "model": {"name": "mlp", "hidden": [6]},
        "algorithm": {"name": "splitnn"},
        "split": {"cut_width": 5, "top": {"name": "mlp", "hidden": [8]}},
        "local": {"lr": 0.1, "batch_size": 10, "epochs": 2},
    }
    return {"name": name, "shards": shards, "seed": 3, "rounds": rounds, **usual, **tables}


SUM = {"cut_width": 5, "merge": "sum", "top": {"name": "mlp", "hidden": [8]}}
ADAM = {"optimizer": "adam", "lr": 0.01, "batch_size": 10, "weight_decay": 1e-3}
MOMENTUM = {"lr": 0.05, "batch_size": 10, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}
LINEAR = {
    "model": {"name": "logreg", "bias": False},
    "split": {"cut_width": 3, "merge": "sum", "top": "none"},
}
ONE = {"cut_width": 1, "merge": "sum", "top": "none"}
JOBS = [
    job("concat"),
    job("sum", split=SUM),
    job("adam", local=ADAM),
    job("adam-sum", local={**ADAM, "epochs": 3}, split=SUM),
    job("momentum", local=MOMENTUM),
    job("adamw-steps", local={**ADAM, "optimizer": "adamw", "steps": 4}),
    job("decay", local={"lr": 0.5, "lr_decay": 0.5, "batch_size": "full"}),
    job("larger", local={"lr": 0.1, "batch_size": 100, "epochs": 2}),
    job("holder-2", shards="classes-at-2", local=ADAM),
    job("holder-1", shards="classes-at-1", split=SUM),
    job("unequal", split={"cut_width": [2, 5, 1], "top": {"name": "mlp", "hidden": [8]}}),
    job("linear", **LINEAR),
    job("bcd", algorithm={"name": "splitnn", "local_steps": 4}, split=SUM),
    job("bcd-adam", algorithm={"name": "splitnn", "local_steps": 3}, local=ADAM, shards="classes-at-1"),
    job("binary", shards="binary", task={"name": "binary"}, split=ONE),
    job("values", shards="values", task={"name": "regression"}, split={**SUM, "cut_width": 4}, local=ADAM),
    job(
        "cox",
        shards="survival",
        task={"name": "survival"},
        split=ONE,
        local={"lr": 0.1, "batch_size": "full"},
    ),
]
BY_NAME = {job["name"]: job for job in JOBS}
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "classification": F.cross_entropy,
    "binary": lambda out, y: F.binary_cross_entropy_with_logits(out.squeeze(1), y.to(out)),
    "regression": lambda out, y: F.mse_loss(out.squeeze(1), y.to(out)),
    "survival": split.cox,
}


def table(kind: str) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    x = draw.normal(size=(ROWS + TESTED, sum(WIDTHS))).astype(np.float32)
    score = 2 * (x[:, 0] + x[:, 5] * x[:, -1])
    y: np.ndarray = np.abs(np.round(score).astype(np.int64)) % 3
    if kind == "binary":
        y = (score > 0.3).astype(np.int64)
    if kind == "values":
        y = score.astype(np.float32)
    if kind == "survival":
        y = np.stack([np.ceil(np.exp(1 - score / 4)), draw.random(len(x)) < 0.6], 1).astype(np.float32)
    return {"x": x[:ROWS], "y": y[:ROWS], "x_test": x[ROWS:], "y_test": y[ROWS:]}


def write(folder: Path, name: str, holder: int = 0) -> None:
    kind, _, _ = name.partition("-")
    np.savez(folder / f"{name}.npz", **table(kind))
    options = {"sizes": ",".join(map(str, WIDTHS)), "columns": "contiguous", "label_silo": holder}
    arguments = ("npz", folder / f"{name}.npz", folder / name, "vertical", None, 5)
    named = ["target_names=time,event"] if kind == "survival" else []
    partition_columns(*arguments, options=options, shares=Shares(), source_options=named)


def begun_as(job: Job) -> str:
    """Name the run that shows a job's initial weights: those of all jobs with its network."""
    told = json.dumps([job["model"], job["split"]])
    return f"begun-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


@pytest.fixture(scope="module")
def runs(folders: Path, train_all: Callable[..., Path]) -> Path:
    for name in ("classes", "binary", "values", "survival"):
        write(folders, name)
    for holder in (1, 2):
        write(folders, f"classes-at-{holder}", holder)
    still = {"lr": 1e-30, "steps": 1, "batch_size": "full"}
    begun = {begun_as(job): {**job, "name": begun_as(job), "local": still, "rounds": 1} for job in JOBS}
    return train_all([*JOBS, *begun.values()])


def perceptron(state: dict[str, Tensor]) -> nn.Module:
    """A model of the given weights: some hidden layers, and a head."""
    if set(state) == {"bias"}:
        bias = split.Bias(len(state["bias"])).double()
        bias.load_state_dict(state)
        return bias
    hidden = state.get("features.1.weight")
    width = state["head.weight"].shape[1]
    features = [nn.Flatten()] + ([] if hidden is None else [nn.Linear(hidden.shape[1], width), nn.ReLU()])
    head = nn.Linear(width, len(state["head.weight"]), bias="head.bias" in state)
    net = nn.ModuleDict({"features": nn.Sequential(*features), "head": head})
    net.load_state_dict(state)
    return nn.Sequential(net["features"], net["head"]).double()


def network(run: Path, merge: str) -> split.Network:
    bottoms = [
        perceptron(load_file(run / "personal" / f"silo_{k:04d}.safetensors")) for k in range(len(WIDTHS))
    ]
    return split.Network(bottoms, perceptron(load_file(run / "model.safetensors")), merge)


def parts(name: str) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
    kind, _, _ = BY_NAME[name]["shards"].partition("-")
    arrays = {key: torch.tensor(value) for key, value in table(kind).items()}
    x, x_test = (list(arrays[key].double().split(WIDTHS, 1)) for key in ("x", "x_test"))
    return x, arrays["y"], x_test, arrays["y_test"]


class Trained:
    """A job trained by the oracle, each round with an optimizer that keeps its state, and its figures."""

    def __init__(self, job: Job, start: split.Network, way: str) -> None:
        xs, y, _, _ = parts(job["name"])
        local, task = job["local"], job.get("task", {}).get("name", "classification")
        self.net, self.losses = copy.deepcopy(start), []
        self.made: dict[int, torch.optim.Optimizer] = {}
        for t in range(job["rounds"]):
            for optimizer in self.made.values():
                for group in optimizer.param_groups:
                    group["lr"] = local["lr"] * local.get("lr_decay", 1.0) ** t
            stream = rng.torch_stream(job["seed"], "rows", t)
            batches = oracles.in_batches(
                ROWS, local["batch_size"], stream, local.get("epochs", 1), local.get("steps")
            )
            more = {"local_steps": job["algorithm"].get("local_steps", 1), "holder": holder_of(job)}
            act = split.split if way == "split" else split.joined
            seen = act(self.net, xs, y, batches, LOSSES[task], lambda p: self.optimizer(local, p),
                       **(more if way == "split" else {}))  # fmt: skip
            sizes = [len(rows) for rows in batches]
            self.losses.append(float(np.average(seen.losses, weights=sizes)))

    def optimizer(self, local: Job, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        key = id(parameters[0])
        if key not in self.made:
            named = {"momentum", "nesterov", "weight_decay"}
            more = {name: value for name, value in local.items() if name in named}
            self.made[key] = oracles.OPTIMIZERS[local.get("optimizer", "sgd")](
                parameters, lr=local["lr"], **more
            )
        return self.made[key]


def holder_of(job: Job) -> int:
    _, _, holder = job["shards"].partition("-at-")
    return int(holder or 0)


def distance(one: split.Network, other: split.Network) -> float:
    pairs = zip([*one.bottoms, one.top], [*other.bottoms, other.top], strict=True)
    each = [zip(f.parameters(), h.parameters(), strict=True) for f, h in pairs]
    return max(float((a - b).detach().abs().max()) for pair in each for a, b in pair)


@pytest.fixture(scope="module")
def start(runs: Path) -> Callable[[str], split.Network]:
    torch.set_num_threads(1)
    return lambda name: network(runs / begun_as(BY_NAME[name]), BY_NAME[name]["split"].get("merge", "concat"))


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", BY_NAME)
def test_the_network_is_the_oracles(runs: Path, start: Any, name: str) -> None:
    begun, job = start(name), BY_NAME[name]
    found = network(runs / name, begun.merge)
    ways = ["split", "joined"] if "local_steps" not in job["algorithm"] else ["split"]
    for way in ways:
        right = Trained(job, begun, way)
        assert distance(right.net, begun) > 1e-2
        assert distance(found, right.net) <= 1e-6
        losses = [record["train_loss"] for record in records(runs / name)]
        assert losses == pytest.approx(right.losses, abs=1e-6)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_test_loss_is_that_of_all_rows(runs: Path, name: str) -> None:
    job = BY_NAME[name]
    _, _, x, y = parts(name)
    net = network(runs / name, job["split"].get("merge", "concat"))
    right = LOSSES[job.get("task", {}).get("name", "classification")](net.predict(x), y)
    assert records(runs / name)[-1]["test_loss"] == pytest.approx(float(right), rel=1e-6)


def test_a_linear_network_is_logistic_regression_on_all_columns(runs: Path, start: Any) -> None:
    """It has one bias, at the holder of the labels."""
    begun, found, job = start("linear"), network(runs / "linear", "sum"), BY_NAME["linear"]
    whole, (xs, y, _, _) = nn.Linear(sum(WIDTHS), 3).double(), parts("linear")
    whole.weight.data.copy_(torch.cat([bottom[1].weight for bottom in begun.bottoms], 1).detach())
    whole.bias.data.copy_(begun.top.bias.detach())
    step = torch.optim.SGD(whole.parameters(), lr=job["local"]["lr"])
    for t in range(job["rounds"]):
        stream = rng.torch_stream(job["seed"], "rows", t)
        for rows in oracles.in_batches(ROWS, 10, stream, 2):
            step.zero_grad()
            F.cross_entropy(whole(torch.cat(xs, 1)[rows]), y[rows]).backward()
            step.step()
    assert all(bottom[1].bias is None for bottom in found.bottoms)
    apart = torch.cat([bottom[1].weight for bottom in found.bottoms], 1)
    assert float((apart - whole.weight).detach().abs().max()) <= 1e-6
    assert float((found.top.bias - whole.bias).detach().abs().max()) <= 1e-6
