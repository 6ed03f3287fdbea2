"""What must be the same although it is asked differently, and what theory says about simple problems."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.conftest import SIZES, regressions, toy_silos, two_quadratics
from safetensors.torch import load_file
from torch.nn import functional as F

MINI = {"lr": 0.1, "batch_size": 8, "epochs": 2}
RATE = 0.5
FULL = {"lr": RATE, "batch_size": "full"}
NORMALISED = {"name": "problems:normalised"}
LINE = {"name": "problems:LeastSquares"}
CURVATURE, CENTRE = np.array([2.0, 0.1]), np.array([1.0, -1.0])
JOBS: dict[str, dict[str, Any]] = {}
SLOW = bool(os.environ.get("MPIFL_SLOW"))


def job(name: str, algorithm: str = "fedavg", shards: str = "toy", local: Any = MINI, **tables: Any) -> str:
    """Note a job, whose keys of no table are the algorithm's, and return its name."""
    named = ("rounds", "model", "cohort", "server_optimizer", "checkpoint", "evaluate", "compression")
    JOBS[name] = {
        "name": name,
        "shards": shards,
        "seed": 4,
        "rounds": 3,
        "device": "cpu",
        "model": {"name": "mlp", "hidden": [8]},
        "local": local,
        "evaluate": {"every": 1000},
        **{key: tables.pop(key) for key in named if key in tables},
        "algorithm": {"name": algorithm, **tables},
    }
    return name


SOME = {"fraction": 0.6}
ALL_OF_IT = {"upload": "topk", "share": 1.0}
MOMENTUM = {**MINI, "momentum": 0.9}
TO_THE_BIT = [
    (job("fedprox-0", "fedprox", mu=0.0, cohort=SOME), job("fedavg", cohort=SOME)),
    (
        job("fedprox-0-momentum", "fedprox", mu=0.0, cohort=SOME, local=MOMENTUM),
        job("fedavg-momentum", cohort=SOME, local=MOMENTUM),
    ),
    (job("scaffold-first", "scaffold", rounds=1, cohort=SOME), job("fedavg-first", rounds=1, cohort=SOME)),
    (job("fedavgm-0", cohort=SOME, server_optimizer={"name": "sgd", "momentum": 0.0}), "fedavg"),
    (job("ditto", "ditto", cohort=SOME, **{"lambda": 0.7}), "fedavg"),
    (job("moon-0", "moon", mu=0.0, cohort=SOME), "fedavg"),
    (job("fedsam-0", "fedsam", rho=0.0, cohort=SOME), "fedavg"),
    (job("apfl", "apfl", adaptive=True, cohort=SOME), "fedavg"),
    (job("finetune", "finetune", tune_epochs=2, cohort=SOME), "fedavg"),
    (job("ifca-one", "ifca", clusters=1, cohort=SOME), "fedavg"),
    (job("ifcasgd-one", "ifcasgd", clusters=1, local=FULL), "fedsgd"),
    (job("fedexp-never", "fedexp", epsilon=1e9, cohort=SOME), "fedavg"),
    (job("renamed", shards="renamed", cohort=SOME), "fedavg"),
    (job("fedexp-one", "example_algorithm:FedExP", shards="first"), job("fedavg-one", shards="first")),
    (job("topk-all", cohort=SOME, compression=ALL_OF_IT), "fedavg"),
    (job("scaffold-topk-all", "scaffold", compression=ALL_OF_IT), job("scaffold-whole", "scaffold")),
]
STEPS = {"lr": 0.1, "batch_size": 8, "steps": 5}
GENTLE = {**STEPS, "momentum": 0.9, "lr": 0.02}
NEARLY = [
    (job("fednova", "fednova", local=STEPS, cohort=SOME), job("fedavg-steps", local=STEPS, cohort=SOME)),
    (job("fednova-momentum", "fednova", local=GENTLE, cohort=SOME), job("gentle", local=GENTLE, cohort=SOME)),
    (
        job("qfedavg-0", "qfedavg", q=0.0, cohort=SOME),
        job("fedavg-uniform", cohort={**SOME, "weights": "uniform"}),
    ),
    (
        job("qfedsgd-0", "qfedsgd", q=0.0, local=FULL),
        job("fedsgd-uniform", "fedsgd", local=FULL, cohort={"weights": "uniform"}),
    ),
    (
        job("qfedsgd-0-normalised", "qfedsgd", q=0.0, local=FULL, model=NORMALISED),
        job("fedavg-full-normalised", local=FULL, cohort={"weights": "uniform"}, model=NORMALISED),
    ),
    (job("fedavg-full", local=FULL), job("fedsgd", "fedsgd", local=FULL)),
    (job("fedsgd-pooled", "fedsgd", shards="pooled", local=FULL), "fedsgd"),
    (job("scaffold-full", "scaffold", option="I", local=FULL, rounds=1), "fedavg-full-first"),
    (job("fedavg-full-first", local=FULL, rounds=1), job("fedsgd-first", "fedsgd", rounds=1, local=FULL)),
]
DESCENT = [
    job(f"one-{algorithm}", algorithm, shards="first", local={**FULL, **local}, **keys)
    for algorithm, local, keys in [
        ("fedsgd", {}, {}),
        ("fedavg", {}, {}),
        ("fedprox", {}, {"mu": 2.0, "measure_gamma": True}),
        ("fednova", {}, {}),
        ("scaffold", {}, {"option": "II"}),
        ("fsvrg", {"lr": RATE * SIZES[0]}, {}),
        ("qfedavg", {}, {"q": 0.0}),
        ("qfedsgd", {}, {"q": 0.0}),
        ("fedper", {}, {"personal": ["head.*"]}),
        ("ditto", {}, {"lambda": 1.5}),
        ("moon", {}, {"mu": 3.0}),
        ("fedexp", {}, {}),
        ("apfl", {}, {}),
    ]
]
ONE_EXAMPLE = job("fsvrg-example", "fsvrg", shards="example", local={"lr": 0.3, "batch_size": 1})
IN_ANY_ORDER = ("fedavg", "fedprox", "fednova", "scaffold", "fsvrg", "qfedavg", "fedper", "fedexp", "apfl")
"""Of two algorithms that keep and sum the same kinds of things one is tried; all are by MPIFL_SLOW=1."""
PERMUTED = [
    (
        job(f"toy-{algorithm}", algorithm, local={**FULL, "epochs": 2, **local}, **keys),
        job(
            f"reversed-{algorithm}",
            algorithm,
            local={**FULL, "epochs": 2, **local},
            shards="reversed",
            **keys,
        ),
    )
    for algorithm, local, keys in [
        ("fedsgd", {}, {}),
        ("fedavg", {"momentum": 0.5}, {"server_optimizer": {"name": "yogi"}}),
        ("fedprox", {}, {"mu": 0.2, "adaptive": True, "patience": 1, "measure_gamma": True}),
        ("fednova", {}, {}),
        ("scaffold", {}, {}),
        ("feddyn", {}, {"alpha": 0.3}),
        ("fsvrg", {"lr": 2.0}, {}),
        ("qfedavg", {}, {"q": 2.0}),
        ("qfedsgd", {}, {"q": 0.5}),
        ("fedper", {}, {"personal": ["head.*"]}),
        ("fedbn", {}, {"model": {"name": "problems:normalised"}}),
        ("ditto", {}, {}),
        ("moon", {}, {}),
        ("fedexp", {}, {}),
        ("fedsam", {"momentum": 0.5}, {}),
        ("fedrep", {}, {"personal": ["head.*"], "head_epochs": 2}),
        ("pfedme", {}, {}),
        ("apfl", {}, {"adaptive": True}),
    ]
    if SLOW or algorithm in IN_ANY_ORDER
]
job("ditto-alone", "ditto", **{"lambda": 0.0})
job("alone", shards="first")
MANY_STEPS = {"lr": 0.4, "batch_size": "full", "steps": 20}
for name in ("fedavg", "scaffold", "feddyn"):
    keys = {"alpha": 0.5} if name == "feddyn" else {}
    job(f"drift-{name}", name, shards="quadratics", model=LINE, rounds=40, local=MANY_STEPS, **keys)
job(
    "drift-scaffold-momentum",
    "scaffold",
    shards="quadratics",
    model=LINE,
    rounds=80,
    local={**MANY_STEPS, "lr": 0.04, "momentum": 0.9},
)
EPSILON = 0.001
FEDEXP = {"rounds": 1, "local": {**MANY_STEPS, "steps": 1}, "epsilon": EPSILON}
job("extrapolated", "example_algorithm:FedExP", shards="quadratics", model=LINE, **FEDEXP)
BY_EXAMPLES, ALIKE, DRAWN = {}, {"weights": "uniform"}, {"weights": "uniform", "select": "examples"}
PRINTED = {"control_weights": "uniform"}
BY_LOSSES = {"fraction": 0.5, "weights": "uniform", "select": "power-of-choice", "candidates": 1}
ONE_STEP, FOUR_STEPS = {"lr": 0.7, "batch_size": "full"}, {"lr": 0.2, "batch_size": "full", "steps": 4}
WIDE_STEPS = {**FOUR_STEPS, "lr": 0.4}
LONG = ("scaffold-II-one-by-losses", "feddyn-one-drawn")
"""Each of both ways to draw one silo is tried with the other algorithm; all are by MPIFL_SLOW=1."""
UNEQUAL = {
    job(
        f"unequal-{title}",
        name,
        shards="unequal",
        model=LINE,
        rounds=rounds,
        local=local,
        cohort=cohort,
        **keys,
    ): end
    for title, name, local, rounds, cohort, end, keys in [
        ("fedavg", "fedavg", ONE_STEP, 30, BY_EXAMPLES, 0.8, {}),
        ("fedsgd", "fedsgd", ONE_STEP, 30, BY_EXAMPLES, 0.8, {}),
        ("fednova", "fednova", FOUR_STEPS, 30, BY_EXAMPLES, 0.8, {}),
        ("fsvrg", "fsvrg", {"lr": 0.5, "batch_size": 1}, 30, BY_EXAMPLES, 0.8, {}),
        ("scaffold-I", "scaffold", FOUR_STEPS, 30, BY_EXAMPLES, 0.8, {"option": "I"}),
        ("scaffold-II", "scaffold", FOUR_STEPS, 30, BY_EXAMPLES, 0.8, {"option": "II"}),
        ("scaffold-II-drawn", "scaffold", FOUR_STEPS, 30, DRAWN, 0.8, {"option": "II"}),
        ("scaffold-II-one", "scaffold", FOUR_STEPS, 60, {"fraction": 0.5}, 0.8, {"option": "II"}),
        (
            "scaffold-II-one-drawn",
            "scaffold",
            FOUR_STEPS,
            160,
            {"fraction": 0.5, **DRAWN},
            0.8,
            {"option": "II"},
        ),
        ("feddyn", "feddyn", FOUR_STEPS, 30, BY_EXAMPLES, 0.8, {"alpha": 0.5}),
        ("feddyn-drawn", "feddyn", FOUR_STEPS, 30, DRAWN, 0.8, {"alpha": 0.5}),
        ("feddyn-one", "feddyn", WIDE_STEPS, 60, {"fraction": 0.5}, 0.8, {"alpha": 2.0}),
        ("feddyn-one-drawn", "feddyn", WIDE_STEPS, 200, {"fraction": 0.5, **DRAWN}, 0.8, {"alpha": 2.0}),
        ("scaffold-II-one-by-losses", "scaffold", FOUR_STEPS, 160, BY_LOSSES, 0.8, {"option": "II"}),
        ("feddyn-one-by-losses", "feddyn", WIDE_STEPS, 200, BY_LOSSES, 0.8, {"alpha": 2.0}),
        ("feddyn-alike", "feddyn", FOUR_STEPS, 30, ALIKE, 0.0, {"alpha": 0.5}),
        ("fedavg-alike", "fedavg", ONE_STEP, 30, ALIKE, 0.0, {}),
        ("scaffold-I-alike", "scaffold", FOUR_STEPS, 30, ALIKE, 0.0, {"option": "I"}),
        ("scaffold-II-alike", "scaffold", FOUR_STEPS, 30, ALIKE, 0.0, {"option": "II"}),
        ("scaffold-I-printed", "scaffold", FOUR_STEPS, 30, BY_EXAMPLES, 0.0, {"option": "I", **PRINTED}),
        ("scaffold-II-printed", "scaffold", FOUR_STEPS, 30, BY_EXAMPLES, 0.0, PRINTED),
        ("scaffold-II-printed-one", "scaffold", FOUR_STEPS, 60, {"fraction": 0.5}, 0.0, PRINTED),
        ("scaffold-II-printed-drawn", "scaffold", FOUR_STEPS, 30, DRAWN, 0.0, PRINTED),
    ]
    if SLOW or title not in LONG
}
H, EXAMPLES = 0.8, len(regressions()[0][1])
ALL = {"every": 1, "keep": 1000}
ONE_BY_ONE = {"lr": H, "batch_size": 1}
SAME_WORK = {"lr": H / EXAMPLES, "batch_size": 1}
job("reduced", "fsvrg", shards="regressions", model=LINE, rounds=30, local=ONE_BY_ONE, checkpoint=ALL)
job("noisy", shards="regressions", model=LINE, rounds=30, local=SAME_WORK, checkpoint=ALL)


@pytest.fixture(scope="module")
def runs(train_all: Callable[..., Path]) -> Path:
    return train_all(list(JOBS.values()))


def model_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def assert_close(run: Path, other: Path, within: float = 1e-6) -> None:
    """See that two runs end alike, relative to how far they have moved from where both began."""
    one, two, start = model_of(run), model_of(other), load_file(run / "initial.safetensors")
    moved = max(float((two[name] - start[name]).abs().max()) for name in start)
    assert moved > 1e-2
    assert max(float((one[name] - two[name]).abs().max()) for name in start) <= within * moved


@pytest.mark.parametrize(("one", "other"), TO_THE_BIT)
def test_these_are_the_same_to_the_bit(runs: Path, one: str, other: str) -> None:
    assert (runs / one / "model.safetensors").read_bytes() == (
        runs / other / "model.safetensors"
    ).read_bytes()
    assert (runs / one / "model.safetensors").read_bytes() != (
        runs / one / "initial.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(("one", "other"), NEARLY)
def test_these_are_the_same(runs: Path, one: str, other: str) -> None:
    assert_close(runs / one, runs / other)


@pytest.mark.parametrize(("one", "other"), [("fedavg", "fedavg-uniform"), ("gentle", "fedavg-steps")])
def test_and_these_are_not(runs: Path, one: str, other: str) -> None:
    with pytest.raises(AssertionError):
        assert_close(runs / one, runs / other, within=1e-3)


def descended(
    silos: Any, start: dict[str, torch.Tensor], lr: float, rounds: int = 3
) -> dict[str, torch.Tensor]:
    """Plain gradient descent on all examples of all silos together."""
    pixels, y = (np.concatenate(part) for part in zip(*silos, strict=True))
    x = torch.from_numpy(pixels).double().flatten(1) / 64 - 2
    w = {name: v.double().requires_grad_() for name, v in start.items()}
    for _ in range(rounds):
        z = F.relu(F.linear(x, w["features.1.weight"], w["features.1.bias"]))
        loss = F.cross_entropy(F.linear(z, w["head.weight"], w["head.bias"]), torch.from_numpy(y))
        gradients = torch.autograd.grad(loss, list(w.values()))
        w = {
            name: (v - lr * g).detach().requires_grad_()
            for (name, v), g in zip(w.items(), gradients, strict=True)
        }
    return {name: v.detach() for name, v in w.items()}


@pytest.mark.parametrize("name", ["fedsgd", "fedavg-full", "fedsgd-pooled", *DESCENT, ONE_EXAMPLE])
def test_this_is_gradient_descent(runs: Path, name: str) -> None:
    """FedSGD, and any algorithm with one silo that takes one full step:
    there is nothing for them to differ in."""
    silos, lr = toy_silos(), RATE
    if name in DESCENT:
        silos = silos[:1]
    elif name == ONE_EXAMPLE:
        silos, lr = [(silos[0][0][:1], silos[0][1][:1])], 0.3
    start = load_file(runs / name / "initial.safetensors")
    right, own = descended(silos, start, lr), runs / name / "personal" / "silo_0000.safetensors"
    found = load_file(own) if "fedper" in name else model_of(runs / name)
    moved = max(float((right[key] - start[key]).abs().max()) for key in right)
    assert max(float((found[key] - right[key]).abs().max()) for key in right) <= 1e-6 * moved


def test_ditto_without_a_pull_is_local_training_alone(runs: Path) -> None:
    """Lambda = 0: silo 0's own model is what it would have learned in a federation of its own."""
    own, alone = load_file(runs / "ditto-alone/personal/silo_0000.safetensors"), model_of(runs / "alone")
    assert max(float((own[name] - alone[name]).abs().max()) for name in alone) <= 1e-6


@pytest.mark.parametrize(("one", "other"), PERMUTED)
def test_the_order_of_silos_is_no_matter(runs: Path, one: str, other: str) -> None:
    """With full batches, whose order nobody draws,
    silos that trade places trade what they keep and nothing else."""
    assert (runs / one / "model.safetensors").read_bytes() == (
        runs / other / "model.safetensors"
    ).read_bytes()
    assert figures_of(runs / one) == figures_of(runs / other)
    kept, traded = ([f.read_bytes() for f in sorted(states_of(runs / name))] for name in (one, other))
    assert kept == traded[::-1]


def figures_of(run: Path) -> list[dict[str, float]]:
    told = ("train_loss", "mu", "gamma", "tau_eff")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: record[key] for key in told if key in record} for record in records]


def states_of(run: Path) -> list[Path]:
    return list(max((run / "checkpoints").iterdir()).glob("silo_*"))


def test_scaffold_reaches_the_optimum_where_fedavg_stops_elsewhere(runs: Path) -> None:
    """F_k = h_k / 2 (w - a_k)^2: K steps take w by (1 - (1 - lr h_k)^K) (a_k - w),
    whose mean vanishes not at w*."""
    assert [float(a[0, 0]) ** 2 for a, _ in two_quadratics()] == pytest.approx(CURVATURE)
    gone = 1 - (1 - MANY_STEPS["lr"] * CURVATURE) ** MANY_STEPS["steps"]
    optimum, elsewhere = (float(np.average(CENTRE, weights=by)) for by in (CURVATURE, gone))
    assert (optimum, elsewhere) == pytest.approx((0.90476, 0.28370), abs=1e-5)
    ends = {"fedavg": elsewhere, "scaffold": optimum, "scaffold-momentum": optimum, "feddyn": optimum}
    assert {name: float(model_of(runs / f"drift-{name}")["w"]) for name in ends} == pytest.approx(
        ends, abs=1e-5
    )


def test_the_example_of_a_users_algorithm_extrapolates_as_its_paper_says(runs: Path) -> None:
    """FedExP: eta_g = max(1, sum ||d_k||^2 / (2 M (||mean d||^2 + epsilon))), here from w = 0."""
    deltas = MANY_STEPS["lr"] * CURVATURE * CENTRE
    rate = np.square(deltas).sum() / (2 * len(deltas) * (deltas.mean() ** 2 + EPSILON))
    assert rate > 1.1
    assert float(model_of(runs / "extrapolated")["w"]) == pytest.approx(rate * deltas.mean(), abs=1e-6)


@pytest.mark.parametrize("name", UNEQUAL)
def test_silos_weigh_in_the_optimum_what_the_cohort_says(runs: Path, name: str) -> None:
    """Nine examples at +1 and one at -1: 0.8 by examples,
    however silos are drawn, and 0 where silos count alike."""
    assert float(model_of(runs / name)["w"]) == pytest.approx(UNEQUAL[name], abs=1e-5)


def test_fsvrg_converges_linearly_where_fedavg_stalls(runs: Path) -> None:
    """The same local work: n_k steps of h / n_k, one example each."""
    fsvrg, fedavg = suboptimality(runs / "reduced"), suboptimality(runs / "noisy")
    falling = [after / before for before, after in pairwise(s for s in fsvrg if s > 1e-11)]
    assert len(falling) > 15
    assert min(falling) > 0.25
    assert max(falling) < 0.45
    assert fsvrg[-1] < 1e-11  # where float32 ends
    middle, late = float(np.median(fedavg[10:20])), float(np.median(fedavg[20:]))
    assert late > 1e-3
    assert late > middle / 2


def suboptimality(run: Path) -> list[float]:
    """F(w_t) - F(w*) after each round, F being the mean over the examples of all silos."""
    a, b = (np.concatenate(part) for part in zip(*regressions(), strict=True))
    best = np.linalg.lstsq(a, b, rcond=None)[0]
    states = [
        load_file(f / "server.safetensors")["w"].double().numpy()
        for f in sorted((run / "checkpoints").iterdir())
    ]
    return [float(np.square(a @ (w - best)).mean() / 2) for w in states]
