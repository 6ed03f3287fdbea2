"""Every algorithm against itself, written once more from its paper (`oracles.py`):
equal to 1e-5 after some rounds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import oracles
from safetensors.torch import load_file

State = dict[str, torch.Tensor]
CLOSE = 1e-5
"""How far two results may lie apart, relative to how far training has moved."""
SMALL_COHORT = {"fraction": 0.6}
ALIKE = {"fraction": 0.6, "weights": "uniform"}
BY_EXAMPLES = {"fraction": 0.6, "select": "examples", "weights": "uniform"}
BY_LOSSES = {"fraction": 0.4, "select": "power-of-choice", "candidates": 4, "weights": "uniform"}
LOGREG, MLP, NORMALISED = {"name": "logreg"}, {"name": "mlp", "hidden": [8]}, {"name": "problems:normalised"}
LSTM = {"name": "char-lstm", "embedding": 3, "hidden": 5, "layers": 1}
SGD = {"lr": 0.1, "batch_size": 8}
FALLING = {"epochs_decay": 0.7, "batch_growth": 1.4}
PRINTED = {"control_weights": "uniform"}
IN_WIDE_BATCHES = {"batch_size": 12}
"""No silo's last batch is of two examples, of which BatchNorm makes the same for any weights: gradients are 0
but for rounding errors, which eta_g and rho grow to 1e-4."""
DISTILLED = {"distill_steps": 7, "distill_batch": 16, "distill_lr": 0.01}
OTHER = {"name": "logreg", "weights": "other.safetensors"}
ADAPTIVE = {"lr": 0.05, "beta1": 0.9, "tau": 0.01}


TABLES = ("cohort", "server_optimizer", "compression", "aggregation", "shards", "clock")


def job(
    name: str, oracle: str | None = None, rounds: int = 3, model: Any = None, **tables: Any
) -> dict[str, Any]:
    """A job with the tables that are given for it; the keys of no table are the algorithm's."""
    local = {**SGD, **tables.pop("local", {})}
    others = {key: tables.pop(key) for key in TABLES if key in tables}
    return {
        "oracle": oracle or name.partition(":")[2].lower() or name,
        "shards": "toy",
        "seed": 11,
        "rounds": rounds,
        "device": "cpu",
        "model": model,
        "algorithm": {"name": name, **tables},
        "local": local,
        "cohort": {} if "clock" in others else SMALL_COHORT,
        "evaluate": {"every": 1000},
        **others,
    }


CASES: dict[str, dict[str, Any]] = {
    "fedsgd": job("fedsgd", local={"lr_decay": 0.8}),
    "fedsgd-everyone": job("fedsgd", cohort={"fraction": 1.0, "weights": "uniform"}),
    "fedavg": job("fedavg", local={"epochs": 2, "lr_decay": 0.9}),
    "fedavg-full-batch": job("fedavg", local={"epochs": 3, "batch_size": "full"}, cohort={"fraction": 0.0}),
    "fedavg-uniform": job("fedavg", local={"steps": 7}, cohort={"fraction": 0.6, "weights": "uniform"}),
    "fedavg-by-examples": job("fedavg", cohort={"fraction": 0.6, "select": "examples", "weights": "uniform"}),
    "fedavg-momentum": job("fedavg", local={"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "fedavg-adamw": job("fedavg", local={"optimizer": "adamw", "lr": 0.02, "weight_decay": 0.1}),
    "fedavg-stragglers": job("fedavg", local={"epochs": 4, "straggler_chance": 0.6}),
    "fedavg-falling": job("fedavg", local={"epochs": 3, "straggler_chance": 0.6, "epochs_decay": 0.8}),
    "fedavg-growing": job("fedavg", local={"steps": 7, "batch_growth": 1.6, "lr_decay": 0.9}),
    "fednova-falling": job(
        "fednova", local={"epochs_by_silo": [2, 4, 3], **FALLING, "momentum": 0.9, "lr": 0.02}
    ),
    "scaffold-II-falling": job("scaffold", option="II", local={"epochs": 5, **FALLING}),
    "feddyn-falling": job("feddyn", alpha=0.3, local={"epochs": 3, **FALLING}),
    "fsvrg-falling": job("fsvrg", local={"lr": 2.0, "batch_size": 3, "epochs": 3, **FALLING}),
    "qfedavg-falling": job("qfedavg", q=1.0, local={"epochs": 3, **FALLING}),
    "fedprox": job("fedprox", mu=0.5, local={"epochs": 2, "lr_decay": 0.9}),
    "fedprox-gamma": job("fedprox", mu=0.2, measure_gamma=True, local={"epochs_by_silo": [1, 3, 2]}),
    "fedprox-solved": job(
        "fedprox", mu=1.0, gamma=0.6, local={"epochs": 12, "lr_decay": 0.9}, cohort={"fraction": 1.0}
    ),
    "fedprox-solved-by-halves": job(
        "fedprox",
        mu=0.5,
        gamma=0.5,
        local={"lr": 0.3, "epochs": 6, "straggler_chance": 0.8, "batch_size": 12},
    ),
    "fedprox-stragglers": job(
        "fedprox", mu=1.0, measure_gamma=True, local={"epochs": 5, "straggler_chance": 0.8}
    ),
    "fedprox-momentum": job("fedprox", mu=0.5, local={"momentum": 0.5}),
    "fedprox-adam": job("fedprox", mu=0.5, local={"optimizer": "adam", "lr": 0.01}),
    "fedprox-adaptive": job(
        "fedprox", rounds=10, mu=0.3, adaptive=True, mu_step=0.2, patience=3, cohort={"fraction": 0.3}
    ),
    "fedprox-adaptive-at-once": job("fedprox", rounds=4, mu=0.05, adaptive=True, mu_step=0.1, patience=1),
    "fednova": job("fednova", local={"epochs_by_silo": [1, 4, 2]}),
    "fednova-stragglers": job("fednova", local={"epochs": 4, "straggler_chance": 0.7, "lr_decay": 0.9}),
    "fednova-momentum": job("fednova", local={"epochs_by_silo": [1, 4, 2], "momentum": 0.9, "lr": 0.02}),
    "scaffold-I": job("scaffold", option="I", server_optimizer={"name": "sgd", "lr": 0.7}),
    "scaffold-II": job(
        "scaffold", option="II", server_optimizer={"name": "sgd", "lr": 0.7}, local={"epochs": 2}
    ),
    "scaffold-I-momentum": job("scaffold", option="I", local={"momentum": 0.5, "lr": 0.02}),
    "scaffold-II-momentum": job(
        "scaffold", option="II", local={"momentum": 0.9, "lr": 0.02, "epochs": 2, "weight_decay": 0.01}
    ),
    "scaffold-II-uniform": job(
        "scaffold",
        option="II",
        rounds=5,
        server_optimizer={"name": "sgd", "lr": 1.0},
        cohort={"fraction": 0.3, "weights": "uniform"},
        local={"steps": 6, "lr_decay": 0.9},
    ),
    "scaffold-I-everyone": job("scaffold", option="I", cohort={"fraction": 1.0}),
    "scaffold-II-everyone": job(
        "scaffold", option="II", cohort={"fraction": 1.0}, local={"epochs_by_silo": [1, 3, 2]}
    ),
    "scaffold-I-uniform": job("scaffold", option="I", cohort=ALIKE),
    "scaffold-I-by-examples": job("scaffold", option="I", rounds=5, cohort=BY_EXAMPLES),
    "scaffold-II-by-examples": job(
        "scaffold", option="II", rounds=5, cohort=BY_EXAMPLES, local={"lr_decay": 0.9}
    ),
    "scaffold-I-printed": job("scaffold", option="I", rounds=5, **PRINTED),
    "scaffold-II-printed": job(
        "scaffold", option="II", rounds=5, **PRINTED, local={"epochs_by_silo": [1, 3, 2]}
    ),
    "scaffold-II-printed-by-examples": job("scaffold", option="II", rounds=5, cohort=BY_EXAMPLES, **PRINTED),
    "fsvrg": job("fsvrg", local={"lr": 2.0, "batch_size": 1}, cohort={"fraction": 1.0}),
    "fsvrg-batches": job("fsvrg", local={"lr": 3.0, "batch_size": 4, "epochs": 2, "lr_decay": 0.8}),
    "fedavgm": job("fedavg", "fedopt", server_optimizer={"name": "sgd", "lr": 0.8, "momentum": 0.9}),
    "fedadagrad": job("fedavg", "fedopt", server_optimizer={"name": "adagrad", **ADAPTIVE, "beta1": 0.5}),
    "fedadam": job("fedavg", "fedopt", server_optimizer={"name": "adam", **ADAPTIVE, "beta2": 0.9}),
    "fedadam-adam": job(
        "fedavg",
        "fedopt",
        server_optimizer={"name": "adam", "lr": 0.5, "beta1": 0.8, "beta2": 0.99, "tau": 0.1},
        local={"optimizer": "adam", "lr": 0.01},
        cohort={"fraction": 0.6, "weights": "uniform"},
    ),
    "fedyogi": job("fedavg", "fedopt", server_optimizer={"name": "yogi", **ADAPTIVE, "beta2": 0.9}),
    "qfedavg": job("qfedavg", q=1.0, local={"lr_decay": 0.9}),
    "qfedavg-q5": job("qfedavg", q=5.0, local={"epochs": 2}),
    "qfedavg-q0": job("qfedavg", q=0.0),
    "qfedsgd": job("qfedsgd", "qfedavg", q=0.5, local={"lr_decay": 0.9}),
    "qfedsgd-q2": job("qfedsgd", "qfedavg", q=2.0, cohort={"fraction": 0.6, "select": "examples"}),
    "fedper": job("fedper", personal=["head.bias"], local={"epochs": 2}),
    "fedper-momentum": job("fedper", personal=["head.bias"], local={"momentum": 0.9}),
    "finetune": job("finetune", tune_epochs=2, local={"epochs": 2, "lr_decay": 0.9}),
    "finetune-steps": job(
        "finetune", tune_steps=3, tune_lr=0.3, local={"momentum": 0.9, "epochs": 4, "straggler_chance": 0.6}
    ),
    "ditto": job("ditto", **{"lambda": 0.5}, local={"epochs": 2}),
    "ditto-strong": job("ditto", **{"lambda": 3.0}, local={"lr_decay": 0.9}, cohort={"fraction": 1.0}),
    "moon": job("moon", mu=1.0, temperature=0.5, local={"epochs": 2}),
    "moon-cold": job("moon", mu=5.0, temperature=0.2, local={"momentum": 0.5}, cohort={"fraction": 1.0}),
    "memory-topk": job("fedavg", "compressed", rounds=6, compression={"upload": "topk", "share": 0.2}),
    "compressed-forgetful": job(
        "fedavg",
        "compressed",
        rounds=6,
        compression={"upload": "topk", "share": 0.5, "error_feedback": False},
    ),
    "compressed-qsgd": job("fedavg", "compressed", compression={"upload": "qsgd", "bits": 3, "bucket": 10}),
    "memory-both": job(
        "fedavg",
        "compressed",
        compression={
            "upload": "qsgd",
            "bits": 2,
            "norm": "l2",
            "error_feedback": True,
            "download": "bfloat16",
        },
    ),
    "feddyn": job("feddyn", alpha=0.3, local={"epochs": 2}),
    "feddyn-everyone": job(
        "feddyn", alpha=1.0, cohort={"fraction": 1.0}, local={"epochs_by_silo": [1, 3, 2]}
    ),
    "feddyn-uniform": job("feddyn", alpha=0.3, cohort=ALIKE, local={"lr_decay": 0.9, "momentum": 0.5}),
    "feddyn-by-examples": job("feddyn", alpha=0.3, rounds=5, cohort=BY_EXAMPLES),
    "fedavg-clipped": job("fedavg", "clipped", rounds=5, aggregation={"clip": 0.2}, local={"lr_decay": 0.8}),
    "fedavg-by-losses": job("fedavg", rounds=8, cohort=BY_LOSSES),
    "fedexp": job("fedexp", local={"epochs": 2, "lr_decay": 0.9}),
    "fedexp-uniform": job("fedexp", rounds=5, epsilon=0.01, cohort=ALIKE, local={"epochs": 3}),
    "fedexp-stragglers": job(
        "fedexp",
        rounds=5,
        cohort={"fraction": 1.0},
        local={"epochs": 4, "straggler_chance": 0.6, "momentum": 0.5},
    ),
    "fedexp-never": job("fedexp", epsilon=1e6),
    "fedsam": job("fedsam", local={"epochs": 2, "lr_decay": 0.9}),
    "fedsam-momentum": job(
        "fedsam", rho=0.2, cohort=ALIKE, local={"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}
    ),
    "fedsam-clipped": job("fedsam", rho=0.5, local={"clip_norm": 0.3, "epochs": 4, "straggler_chance": 0.6}),
    "fedsam-adam": job("fedsam", rho=0.1, local={"optimizer": "adam", "lr": 0.01}),
    "fedrep": job("fedrep", personal=["head.bias"], local={"epochs": 2, "lr_decay": 0.9}),
    "fedrep-momentum": job(
        "fedrep",
        personal=["head.bias"],
        head_epochs=3,
        cohort=ALIKE,
        local={"momentum": 0.9},
    ),
    "pfedme": job("pfedme", local={"lr": 0.05, "epochs": 3}),
    "pfedme-server": job(
        "pfedme",
        **{"lambda": 3.0},
        inner_steps=3,
        inner_lr=0.1,
        server_optimizer={"name": "sgd", "lr": 1.5},
        local={"epochs": 4, "straggler_chance": 0.6, "lr_decay": 0.9},
    ),
    "pfedme-uniform": job(
        "pfedme",
        **{"lambda": 1.0},
        inner_steps=1,
        inner_lr=0.2,
        server_optimizer={"name": "sgd", "lr": 0.5},
        cohort=ALIKE,
        local={"lr": 0.5, "steps": 7},
    ),
    "apfl": job("apfl", local={"epochs": 2, "lr_decay": 0.9}),
    "apfl-uniform": job("apfl", alpha=0.8, cohort=ALIKE, local={"epochs": 4, "straggler_chance": 0.6}),
    "apfl-adaptive": job("apfl", alpha=0.3, adaptive=True, rounds=5, local={"epochs": 2, "lr_decay": 0.9}),
    "apfl-adaptive-fast": job("apfl", adaptive=True, rounds=5, cohort=ALIKE, local={"lr": 1.0, "epochs": 3}),
    "ifca": job("ifca", clusters=2, rounds=5, local={"epochs": 2, "lr_decay": 0.9}),
    "ifca-uniform": job("ifca", clusters=3, rounds=5, cohort=ALIKE, local={"momentum": 0.9}),
    "ifcasgd": job("ifcasgd", "ifca", clusters=2, rounds=5, local={"lr": 0.5}),
    "ifcasgd-everyone": job(
        "ifcasgd", "ifca", clusters=3, rounds=5, cohort={"fraction": 1.0, "weights": "uniform"}
    ),
    "fedasync": job("fedasync", rounds=20, clock={"speeds": "log-uniform"}, local={"lr_decay": 0.99}),
    "fedasync-constant": job(
        "fedasync",
        rounds=20,
        alpha=0.3,
        weighting="constant",
        rho=0.0,
        clock={"speeds": "uniform", "seed": 4},
    ),
    "fedasync-hinge": job(
        "fedasync",
        rounds=20,
        weighting="hinge",
        a=3.0,
        b=2.0,
        rho=0.5,
        concurrency=5,
        clock={"speeds": "log-uniform", "fastest": 100.0, "jitter": 0.5},
        local={"momentum": 0.5, "epochs": 4, "straggler_chance": 0.6},
    ),
    "fedbuff": job(
        "fedbuff",
        rounds=6,
        buffer=9,
        clock={"speeds": "log-uniform", "jitter": 0.2},
        local={"epochs": 3, **FALLING},
    ),
    "fedbuff-uniform": job(
        "fedbuff",
        rounds=6,
        buffer=9,
        a=1.0,
        cohort={"weights": "uniform"},
        server_optimizer={"name": "sgd", "lr": 0.7},
        clock={"speeds": "log-uniform", "fastest": 30.0},
        local={"epochs": 4, "straggler_chance": 0.6},
    ),
    "fedbuff-few": job(
        "fedbuff",
        rounds=12,
        buffer=3,
        concurrency=4,
        clock={"speeds": "uniform", "jitter": 0.9},
        local={"steps": 5},
    ),
    "fedbuff-ties": job(
        "fedbuff",
        rounds=12,
        buffer=5,
        clock={"speeds": {f"silo_{k:04d}": speed for k, speed in enumerate((1, 2, 3, 0.1, 5, 6, 10))}},
        local={"steps": 2, "lr_decay": 0.9},
    ),
    "fedcompass": job(
        "fedcompass", rounds=14, min_local_steps=3, max_local_steps=12, clock={"speeds": "log-uniform"}
    ),
    "fedcompass-late": job(
        "fedcompass",
        rounds=30,
        min_local_steps=2,
        max_local_steps=9,
        latest_time_factor=1.1,
        speed_momentum=0.6,
        a=1.0,
        alpha=0.7,
        cohort={"weights": "uniform"},
        clock={"speeds": "uniform", "jitter": 0.9},
        local={"momentum": 0.5, "lr_decay": 0.97},
    ),
    "clocked": job("fedavg", "waiting", clock={"speeds": "log-uniform", "jitter": 0.3}, cohort=SMALL_COHORT),
    "clocked-deadline": job(
        "fedavg",
        "waiting",
        rounds=6,
        clock={"speeds": "uniform", "deadline": 2.0, "fastest": 5.0},
        local={"epochs": 3, "straggler_chance": 0.6, "batch_growth": 1.1},
    ),
    "scaffold-II-by-losses": job("scaffold", option="II", rounds=8, cohort=BY_LOSSES),
    "feddyn-by-losses": job("feddyn", alpha=0.3, rounds=8, cohort={**BY_LOSSES, "weights": "examples"}),
}
ON_A_NETWORK = {
    "fedper-head": job("fedper", personal=["head.*"], model=MLP),
    "fedper-base": job("fedper", personal=["features.1.weight", "head.bias"], model=MLP, local={"epochs": 2}),
    "fedbn": job("fedbn", "fedper", model=NORMALISED, local={"epochs": 2}),
    "fedbn-everyone": job(
        "fedbn", "fedper", model=NORMALISED, cohort={"fraction": 1.0, "weights": "uniform"}
    ),
    "fedrep-head": job("fedrep", personal=["head.*"], model=MLP),
    "fedrep-base": job(
        "fedrep",
        personal=["features.1.weight", "head.bias"],
        head_epochs=2,
        model=MLP,
        local={"epochs": 4, "straggler_chance": 0.6, "momentum": 0.5},
    ),
    "fedexp-statistics": job(
        "fedexp", rounds=5, model=NORMALISED, cohort={"fraction": 1.0}, local=IN_WIDE_BATCHES
    ),
    "fedsam-statistics": job("fedsam", rho=0.3, model=NORMALISED, local={"epochs": 2, **IN_WIDE_BATCHES}),
    "feddf": job("feddf", prototypes=[], model=MLP, **DISTILLED),
    "feddf-prototypes": job("feddf", prototypes=[OTHER], model=MLP, **DISTILLED),
    "feddf-statistics": job("feddf", rounds=2, prototypes=[], model=NORMALISED, **DISTILLED),
    "moon-statistics": job("moon", mu=5.0, temperature=0.5, model=NORMALISED, cohort={"fraction": 1.0}),
    "personal-statistics": job("ditto", **{"lambda": 0.5}, model=NORMALISED, local={"epochs": 2}),
    "finetune-statistics": job("finetune", model=NORMALISED, local={"epochs": 2}),
    "fedavg-statistics": job("fedavg", model=NORMALISED, local={"epochs": 2}),
    "moon-text": job("moon", mu=5.0, temperature=0.5, model=LSTM, shards="text", cohort={"fraction": 1.0}),
    "feddf-text": job(
        "feddf",
        rounds=1,
        prototypes=[],
        model=LSTM,
        shards="text",
        local={"lr": 2.0, "epochs": 2},
        **DISTILLED,
    ),
}
ON_SPARSE_FEATURES = {
    "fsvrg-scaled": job("fsvrg", scaling=True, local={"lr": 2.0, "batch_size": 1}, cohort={"fraction": 1.0}),
    "fsvrg-scaled-batches": job(
        "fsvrg",
        scaling=True,
        local={"lr": 3.0, "batch_size": 4, "epochs": 2, "lr_decay": 0.8},
        cohort={"fraction": 1.0},
    ),
    "fsvrg-unscaled": job("fsvrg", scaling=False, local={"lr": 2.0, "batch_size": 4}),
}
BATCHED = (
    "fedavg",
    "fedavg-stragglers",
    "fedavg-momentum",
    "fedavg-adamw",
    "fedprox-gamma",
    "fednova-momentum",
    "scaffold-I-momentum",
    "scaffold-II-everyone",
    "feddyn-by-examples",
    "qfedavg",
    "ditto",
    "memory-both",
    "fedper-momentum",
    "fedavg-clipped",
)
"""Also with batched steps, of four silos: of seven with 5 to 40 examples, in batches of 8."""
STEPS_OF_FOUR = {"batch_silos": True, "silos_per_step": 4}
JOBS = {
    **{
        f"{name}-batched": {**CASES[name], "model": MLP, "local": {**CASES[name]["local"], **STEPS_OF_FOUR}}
        for name in BATCHED
    },
    **{
        f"{name}-logreg": {**case, "model": LOGREG}
        for name, case in CASES.items()
        if name == "fedavg" or os.environ.get("MPIFL_SLOW")
    },
    **{f"{name}-mlp": {**case, "model": MLP} for name, case in CASES.items()},
    **ON_A_NETWORK,
    **{name: {**case, "model": LOGREG, "shards": "sparse"} for name, case in ON_SPARSE_FEATURES.items()},
}


@pytest.fixture(scope="module")
def runs(train_all: Callable[..., Path]) -> Path:
    return train_all(
        [{**{k: v for k, v in job.items() if k != "oracle"}, "name": name} for name, job in JOBS.items()]
    )


@pytest.fixture(scope="module")
def compared(runs: Path, folders: Path) -> Callable[[str], tuple[Path, oracles.Task, State]]:
    """Run a job's oracle; return the run's folder, what the oracle kept, and its model."""
    torch.set_num_threads(1)
    done: dict[str, Any] = {}

    def act(name: str) -> Any:
        if name not in done:
            task = oracles.Task(JOBS[name], folders, runs / name)
            done[name] = runs / name, task, getattr(oracles, JOBS[name]["oracle"])(task)
        return done[name]

    return act


def distance(one: State, other: State) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


def deviation(found: State, right: State, start: State) -> float:
    """How far apart two models are, statistics too,
    relative to how far the parameters have moved: some way."""
    moved = max(
        float((right[name] - start[name]).abs().max()) for name in right if name.endswith(("weight", "bias"))
    )
    assert moved > 1e-2
    return distance(found, right) / moved


SERVERS = ("scaffold", "fedavgm", "fedad", "fedyogi", "feddyn", "feddf")


def checkpoint_of(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


def files_of_silos(folder: Path) -> dict[int, Path]:
    return {int(file.stem[-4:]): file for file in folder.glob("silo_*.safetensors")}


def assert_kept(file: Path, kept: dict[str, State]) -> None:
    found = load_file(file)
    for name, state in kept.items():
        right = torch.cat([v.reshape(-1) for v in state.values()])
        assert float((found[name].double() - right).abs().max()) <= CLOSE * float(right.abs().max()), (
            file.name,
            name,
        )


@pytest.mark.parametrize("name", JOBS)
def test_the_model_is_the_oracles(compared: Any, name: str) -> None:
    run, task, model = compared(name)
    assert deviation(load_file(run / "model.safetensors"), model, task.start) <= CLOSE


@pytest.mark.parametrize("name", JOBS)
def test_the_figures_are_the_oracles(compared: Any, name: str) -> None:
    run, task, _ = compared(name)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == len(task.figures) == JOBS[name]["rounds"]
    for record, figures in zip(records, task.figures, strict=True):
        for key, figure in figures.items():
            right = figure if isinstance(figure, list) else pytest.approx(figure, rel=CLOSE)
            assert record[key] == right, key


@pytest.mark.parametrize(
    "name", [n for n in JOBS if n.startswith(("scaffold", "fedavgm", "fedad", "fedyogi", "feddyn", "ifca"))]
)
def test_the_server_keeps_what_the_oracle_keeps(compared: Any, name: str) -> None:
    run, task, _ = compared(name)
    assert task.server_keeps
    assert_kept(checkpoint_of(run) / "server.safetensors", task.server_keeps)


@pytest.mark.parametrize(
    "name", [n for n in JOBS if n.startswith(("scaffold", "ditto", "moon", "feddyn", "memory"))]
)
def test_silos_keep_what_the_oracles_keep(compared: Any, name: str) -> None:
    run, task, _ = compared(name)
    files = files_of_silos(checkpoint_of(run))
    assert files.keys() == task.kept.keys() != set()
    for silo, file in files.items():
        assert_kept(file, task.kept[silo])


PERSONAL = ("finetune", "fedper", "fedbn", "ditto", "personal", "fedrep", "pfedme", "apfl", "ifca")


@pytest.mark.parametrize("name", [n for n in JOBS if n.startswith(PERSONAL)])
def test_each_silo_ends_with_its_own_model(compared: Any, name: str) -> None:
    run, task, _ = compared(name)
    files = files_of_silos(run / "personal")
    assert files.keys() == task.personal.keys()
    for silo, file in files.items():
        assert deviation(load_file(file), task.personal[silo], task.start) <= CLOSE


def test_the_cases_are_not_all_alike(compared: Any) -> None:
    """What only one algorithm does is seen in its result: mu rises and falls,
    stragglers stop early, controls count."""
    mus = {
        figures["mu"] for name in JOBS if "fedprox-adaptive" in name for figures in compared(name)[1].figures
    }
    assert len(mus) > 3
    taus = {figures["tau_eff"] for figures in compared("fednova-stragglers-mlp")[1].figures}
    assert len(taus) > 1
    etas = [figures["eta_g"] for name in JOBS if "fedexp" in name for figures in compared(name)[1].figures]
    assert min(etas) == 1 < max(etas)
