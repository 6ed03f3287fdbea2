"""The jobs that are trained on every number of ranks, and the user's own modules that they name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import buffered
import numpy as np
import scored
import torch
import vertical
from torch import Tensor, nn

from mpifl import Classifier, Cohort, Draw, FedAvg, Server, Silo, Update, uniform

Job = dict[str, Any]
MLP: Job = {"name": "mlp", "hidden": [16]}


def job(name: str, shards: str = "digits", rounds: int = 3, **tables: Any) -> Job:
    """A small job; tables replace the usual ones."""
    usual = {
        "model": MLP,
        "local": {"lr": 0.1, "batch_size": 16},
        "checkpoint": {"every": 2},
        "device": "cpu",
    }
    return {"name": name, "shards": shards, "seed": 3, "rounds": rounds, **usual, **tables}


JOBS = [
    job("fedavg", rounds=4),
    job("fedavg-full", rounds=1, local={"lr": 0.5, "batch_size": "full"}),
    job("fedsgd-full", rounds=1, local={"lr": 0.5}, algorithm={"name": "fedsgd"}),
    job(
        "partial",
        shards="many",
        local={"lr": 0.1, "lr_decay": 0.9, "momentum": 0.9, "steps": 5},
        cohort={"fraction": 0.5, "weights": "uniform"},
        server_optimizer={"name": "adam", "lr": 0.02},
    ),
    job("batchnorm", shards="many", model={"name": "scenarios:normalised"}),
    job("buffers", shards="many", model=buffered.model(*buffered.KINDS), cohort={"fraction": 0.6}),
    *(
        job(f"buffers-{kind}", shards="many", model=buffered.model(kind), cohort={"fraction": 0.6})
        for kind in buffered.KINDS
        if os.environ.get("MPIFL_SLOW")
    ),
    job("stateful", shards="many", algorithm={"name": "scenarios:Stateful"}, cohort={"fraction": 0.6}),
    job("lost", shards="many", algorithm={"name": "scenarios:LosesARound"}, cohort={"fraction": 0.6}),
    job("odd", shards="many", rounds=2, algorithm={"name": "scenarios:Odd"}, cohort={"quorum": 0.5}),
    job("nan", shards="many", algorithm={"name": "scenarios:Poisoned"}, cohort={"quorum": 0.5}),
    job("few", shards="few"),
    job("wide", shards="many", rounds=2, model={"name": "mlp", "hidden": [4096]}),  # its first layer is large
    job(
        "diloco",
        rounds=4,
        local={
            "optimizer": "adamw",
            "lr": 0.01,
            "batch_size": 16,
            "steps": 4,
            "clip_norm": 1.0,
            "schedule": "cosine",
            "warmup": 3,
            "schedule_rounds": 4,
            "keep_optimizer_state": True,
        },
        server_optimizer={"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True},
    ),
    job(
        "augmented",
        shards="many",
        data={"augment": "flip-crop", "rotation": 20.0, "zoom": [0.9, 1.1], "brightness": 0.2},
        tracking={"step_losses": 2},
        local={"lr": 0.1, "momentum": 0.9, "batch_size": 4, "accumulate_batches": 3},
        cohort={"fraction": 0.6},
    ),
    job(
        "metrics",
        shards="many",
        rounds=4,
        task={
            "name": "classification",
            "metrics": ["auroc", "accuracy", "f1", "calibration_error"],
            "main": "f1",
        },
        evaluate={"patience": 3, "keep_best": True},
    ),
    job(
        "task",
        task={"name": "grades:Ordinal"},
        local={"lr": 0.01, "batch_size": 16},
        evaluate={"target": 1.0, "behind": True},
    ),
    job(
        "ragged",
        shards="ragged",
        model={"name": "gpt", "width": 8, "layers": 1, "heads": 2},
        local={"lr": 0.1, "batch_size": 4},
        task={"name": "language"},
        evaluate={"batch_size": 5},
    ),
]
COMPRESSED = [
    job(
        f"compressed-{name}",
        shards="many",
        model={"name": "scenarios:small"},
        algorithm=algorithm,
        local={"lr": 0.1, "batch_size": 16, "drop_last": True},
        compression=keys,
        cohort={"fraction": 0.6},
    )
    for name, algorithm, keys in [
        ("bfloat16", {"name": "fedavg"}, {"upload": "bfloat16", "download": "bfloat16"}),
        ("float16", {"name": "ditto"}, {"upload": "float16", "download": "float16", "error_feedback": True}),
        ("qsgd", {"name": "scaffold"}, {"upload": "qsgd", "download": "qsgd", "bits": 5, "bucket": 100}),
        (
            "qsgd-memory",
            {"name": "fedavg"},
            {"upload": "qsgd", "bits": 2, "norm": "l2", "error_feedback": True},
        ),
        (
            "topk",
            {"name": "fedper", "personal": ["head.*"]},
            {"upload": "topk", "share": 0.05, "download": "bfloat16"},
        ),
        ("topk-logits", {"name": "feddf", "distill_steps": 5}, {"upload": "topk", "share": 0.02}),
    ]
]
"""What travels is encoded, by draws of each silo's own, and what is left out is remembered."""
JOBS += COMPRESSED
JOBS += [
    job(
        f"{name}-compressed",
        shards="many",
        algorithm={"name": algorithm},
        compression={"upload": "qsgd", "bits": 3, "error_feedback": True, "download": "bfloat16"},
        cohort={"fraction": 0.6},
    )
    for name, algorithm in (("stateful", "scenarios:Stateful"), ("lost", "scenarios:LosesARound"))
]


BY_LOSSES = {"fraction": 0.45, "select": "power-of-choice", "candidates": 5}
JOBS += [
    job(
        "known",
        shards="many",
        rounds=6,
        model={"name": "logreg"},
        algorithm={"name": "scenarios:Known"},
        cohort=BY_LOSSES,
        aggregation={"clip": 38.0},
    ),
    job(
        "by-losses",
        shards="many",
        rounds=5,
        cohort={**BY_LOSSES, "weights": "uniform"},
        aggregation={"clip": 0.4},
        compression={"upload": "qsgd", "bits": 4},
    ),
    job("own-selection", shards="many", cohort={"fraction": 0.3, "select": "scenarios:in_turn"}),
]
"""Who takes part goes by the silos' last losses, or by a function of the user's; long updates are clipped."""


def algorithm(name: str, **keys: Any) -> Job:
    """A job for the suite over all algorithms; `local` may be among the keys."""
    local = {"lr": 0.1, "batch_size": 16, "drop_last": True, **keys.pop("local", {})}
    more = {
        key: keys.pop(key)
        for key in ("model", "cohort", "server_optimizer", "rounds", "clock")
        if key in keys
    }
    label = "-".join(["all", name, *(str(v) for v in keys.values() if isinstance(v, str))])
    usual = {"model": {"name": "scenarios:small"}, "cohort": {"fraction": 0.6}, "rounds": 3}
    return job(label, shards="many", algorithm={"name": name, **keys}, local=local, **{**usual, **more})


ALGORITHMS = [
    algorithm("fedsgd"),
    algorithm("fedavg", local={"straggler_chance": 0.5, "epochs": 3}),
    algorithm(
        "fedprox",
        mu=0.3,
        adaptive=True,
        patience=1,
        measure_gamma=True,
        local={"epochs_by_silo": [1, 2]},
        rounds=4,  # mu is adapted after the second
    ),
    algorithm("fednova", local={"epochs_by_silo": [1, 3], "momentum": 0.5}),
    algorithm("scaffold", option="I"),
    algorithm("scaffold", option="II", cohort={"fraction": 0.6, "weights": "uniform"}, local={"epochs": 2}),
    algorithm(
        "scaffold",
        control_weights="uniform",
        local={"epochs_by_silo": [2, 3], "epochs_decay": 0.7, "batch_growth": 1.3},
    ),
    algorithm("feddyn", alpha=0.3),
    algorithm("fsvrg", local={"lr": 3.0, "batch_size": 8}),
    {
        **algorithm(
            "fsvrg", scaling=True, model={"name": "logreg"}, cohort={"fraction": 1.0}, local={"lr": 3.0}
        ),
        "name": "all-fsvrg-scaling",
    },
    algorithm("qfedavg", q=2.0),
    algorithm("qfedsgd", q=0.5),
    algorithm("fedper", personal=["head.*"]),
    algorithm("fedbn"),
    algorithm("ditto", **{"lambda": 0.5}),
    algorithm("fedexp", cohort={"fraction": 0.6, "weights": "uniform"}),
    algorithm("fedsam", rho=0.1, local={"momentum": 0.5}),
    algorithm("fedrep", personal=["head.*"], head_epochs=2),
    algorithm("pfedme", inner_steps=2, **{"lambda": 3.0}),
    algorithm("apfl", adaptive=True),
    algorithm("finetune", tune_epochs=2),
    algorithm("ifca", clusters=3, model=MLP),
    algorithm("ifcasgd", model=MLP, local={"lr": 0.5}),
    algorithm(
        "fedasync",
        rounds=14,
        model=MLP,
        cohort={},
        clock={"jitter": 0.3},
        local={"epochs": 3, "straggler_chance": 0.5},
    ),
    algorithm(
        "fedbuff",
        rounds=6,
        model=MLP,
        buffer=5,
        concurrency=4,
        cohort={"weights": "uniform"},
        clock={"speeds": {f"silo {k}": 1.0 + k % 3 for k in range(7)}},
        server_optimizer={"name": "adam", "lr": 0.02},
    ),
    algorithm(
        "fedcompass",
        rounds=16,
        model=MLP,
        cohort={},
        min_local_steps=2,
        max_local_steps=8,
        latest_time_factor=1.1,
        clock={"jitter": 0.6},
    ),
    algorithm("moon", mu=0.5, local={"epochs": 2}),
    algorithm("feddf", distill_steps=5, distill_batch=32),
    {
        **algorithm("feddf", model=MLP, prototypes=[{"name": "mlp", "hidden": [8, 8]}], distill_steps=5),
        "name": "all-feddf-prototypes",
    },
    *(
        {**algorithm("fedavg", server_optimizer={"name": rule, **keys}), "name": f"all-fedavg-{rule}"}
        for rule, keys in (
            ("sgd", {"momentum": 0.9}),
            ("adagrad", {"beta1": 0.5}),
            ("adam", {}),
            ("yogi", {}),
        )
    ),
    {
        **algorithm("fedsam", cohort={"fraction": 0.8}, clock={"jitter": 0.5, "deadline": 8.0}, rounds=5),
        "name": "all-fedsam-clock",
    },
]
YES_OR_NO: Job = {"shards": "yes", "model": {"name": "logreg"}, "task": {"name": "binary"}}
LIVED: Job = {"shards": "lived", "model": {"name": "logreg"}, "task": {"name": "survival"}}
COUNTED: Job = {"shards": "counted", "model": {"name": "logreg"}, "task": {"name": "counts"}}
COLUMNS: Job = {"bounds": {"x0": [-1, 2]}, "categories": ["outcome"]}
NOISED = {"noise": 1.5, "delta": 1e-3}
WEIGHTED = {"offset": "x2", "weights": "x3"}
ALGORITHMS += [
    job("all-cox", **LIVED, algorithm={"name": "cox", "strata": "none"}, local={}),
    job("all-kaplanmeier", **LIVED, rounds=1, algorithm={"name": "kaplanmeier", "by": "x3"}, local={}),
    job("all-newton", **YES_OR_NO, algorithm={"name": "newton", "ridge": 0.5}, local={}),
    job("all-newton-counts", **COUNTED, algorithm={"name": "newton", "by_silo": True, **WEIGHTED}, local={}),
    job("all-tableone", **YES_OR_NO, rounds=1, algorithm={"name": "tableone", "by_silo": True}, local={}),
    job(
        "all-dptable",
        **YES_OR_NO,
        rounds=1,
        algorithm={"name": "dptable", **COLUMNS},
        local={},
        privacy=NOISED,
    ),
]
"""One line an algorithm gets it the whole suite."""
JOBS += ALGORITHMS

BATCHED = {"batch_silos": True, "silos_per_step": 3, "batch_size": 16}
"""Of silos whose batches are of unequal sizes."""
JOBS += [
    job(
        "batched",
        shards="many",
        algorithm={"name": "scaffold"},
        local={"lr": 0.1, "momentum": 0.5, "epochs_by_silo": [1, 2], **BATCHED},
        cohort={"fraction": 0.6},
    ),
    job(
        "batched-adamw",
        local={"optimizer": "adamw", "lr": 0.01, "steps": 4, "keep_optimizer_state": True, **BATCHED},
    ),
]
"""Silos train together, in chunks that the number of ranks makes others."""


WIDE: Job = {"name": "mlp", "hidden": [300]}
"""More parameters than a rule of columns sees at a time."""
JOBS += [
    job(
        "rule-median",
        shards="many",
        model=WIDE,
        aggregation={"rule": "median"},
        attack={"kind": "min_max", "silos": [1, 4]},
        cohort={"fraction": 0.6},
    ),
    job(
        "rule-trimmed",
        shards="many",
        algorithm={"name": "scenarios:Poisoned"},
        aggregation={"rule": "trimmed", "byzantine": 2},
        attack={"kind": "backdoor", "silos": [1], "patch": 2},
        cohort={"quorum": 0.5},
    ),
    job(
        "rule-own",
        shards="many",
        model={"name": "scenarios:small"},
        aggregation={"rule": "scenarios:middle", "disk_buffer": "."},
        compression={"upload": "bfloat16"},
    ),
    job(
        "rule-centered",
        shards="many",
        model={"name": "scenarios:small"},
        local={"lr": 0.1, "batch_size": 16, "drop_last": True, "momentum": 0.9, "keep_optimizer_state": True},
        aggregation={"rule": "centered", "tau": 0.5, "iterations": 2, "pre": "bucketing"},
        attack={"kind": "gaussian", "silos": [2], "std": 0.1},
        compression={"download": "bfloat16"},
    ),
    job(
        "rule-multikrum",
        shards="many",
        model=WIDE,
        algorithm={"name": "scenarios:LosesARound"},
        aggregation={"rule": "multikrum", "m": 2, "byzantine": 1, "pre": "nnm"},
        attack={"kind": "min_max", "silos": [1], "direction": "unit"},
    ),
    job(
        "rule-fltrust",
        shards="many",
        model=WIDE,
        aggregation={"rule": "fltrust"},
        attack={"kind": "free_rider", "silos": [0, 5]},
        cohort={"fraction": 0.6},
    ),
    job(
        "rule-lost",
        shards="many",
        algorithm={"name": "scenarios:LosesARound"},
        aggregation={"rule": "median"},
        attack={"kind": "alie", "silos": [1], "z": 0.5},
    ),
]
"""Updates are combined by rules of columns and by weights; some silos lie."""

LORA = job(
    "lora",
    shards="texts",
    model={
        "name": "hf-causal",
        "path": "gpt2",
        "save": "trained",
        "lora": {"r": 2, "lora_dropout": 0.1, "target_modules": ["c_attn"]},
    },
    task={"name": "language"},
)
"""Adapters by peft of a model that lies in a folder. Its libraries take each rank seconds to import."""
JOBS += [
    job("adapters", model={"name": "scenarios:Adapted", "save": "trained"}),
    *([LORA] if os.environ.get("MPIFL_SLOW") else []),
]
"""A frozen model with adapters, which alone are trained and saved."""


def write_gpt2(folder: Path) -> None:
    """Write a tiny GPT-2 for bytes, with dropout, as Hugging Face's libraries do."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    shape = {"vocab_size": 257, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
    ends = {"bos_token_id": 256, "eos_token_id": 256}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **ends)).save_pretrained(folder)


JOBS += [
    job(
        "own-loader",
        shards="many",
        model={"name": "scenarios:normalised"},
        algorithm={"name": "scripts.examples.loader_loop:LoaderLoop"},
        local={"lr": 0.01, "batch_size": 16},
        cohort={"fraction": 0.6},
    ),
    job(
        "own-patches",
        shards="volumes",
        task={"name": "segmentation"},
        model={"name": "jobs.flamby.models:UNet3d", "channels": 4, "levels": 2},
        algorithm={"name": "scripts.examples.patch_loop:PatchLoop", "patch": [6, 6, 4]},
        local={"lr": 0.01, "batch_size": 2, "steps": 4},
    ),
]
"""The silos' training loops are the user's own."""


PRIVATE = job(
    "private",
    shards="many",
    rounds=4,
    algorithm={"name": "scaffold"},
    local={"lr": 0.2, "steps": 4, "batch_size": 16},
    cohort={"fraction": 0.6},
    clock={"jitter": 0.2},
    evaluate={"silos": False, "every": 3},
    privacy={"clip": 0.5, "noise": 1.0, "delta": 1e-3, "accountant": "rdp"},
)
JOBS += [PRIVATE]
"""Silos answer by DP-SGD, with the secrets of sites that are given."""
PRIVATE_SILOS = job(
    "private-silos",
    shards="many",
    local={"lr": 0.2, "steps": 4, "batch_size": 16},
    cohort={"fraction": 0.7, "weights": "uniform", "select": "poisson"},
    compression={"download": "bfloat16"},
    evaluate={"silos": False},
    privacy={"level": "silo", "clip": 0.2, "noise": 0.8, "delta": 0.1, "accountant": "rdp"},
)
JOBS += [PRIVATE_SILOS]
"""The server draws silos and noise, with secrets that are given."""
NOISED_SUM = job(
    "private-sum",
    shards="many",
    seed=3001,
    algorithm={"name": "fedsgd"},
    local={"lr": 0.2, "batch_size": 64},
    evaluate={"silos": False, "every": 2},
    privacy={"noise_at": "sum", "clip": 0.5, "noise": 1.0, "delta": 5e-4, "accountant": "rdp"},
    security={"least": 1},
)
NOISED_SUM_OF_SILOS = {
    **PRIVATE_SILOS,
    "name": "private-sum-silos",
    "seed": 3002,
    "cohort": {"fraction": 0.7, "weights": "uniform"},
    "privacy": {**PRIVATE_SILOS["privacy"], "noise_at": "sum"},
    "security": {"least": 1},
}
JOBS += [NOISED_SUM, NOISED_SUM_OF_SILOS]
"""Sites add their shares of noise to masked sums."""
SERVER_SECRETS = [PRIVATE_SILOS["name"], NOISED_SUM_OF_SILOS["name"]]
"""Jobs whose server has a secret of its own."""


JOBS += vertical.JOBS
"""Silos have columns of the same rows; silo 1 has the labels."""


BESIDE = ("clock", "server_optimizer", "evaluate", "aggregation", "compression", "privacy")


def masked(nth: int, label: str, name: str, **tables: Any) -> Job:
    """A job under masks, with a seed of its own: a site refuses the same message over another set."""
    own = ("local", "cohort", "rounds", "shards", "model", "task")
    more = {key: tables.pop(key) for key in own if key in tables}
    beside = {key: tables.pop(key) for key in BESIDE if key in tables}
    usual = {
        "rounds": 2,
        "model": {"name": "scenarios:small"},
        "cohort": {"fraction": 0.6},
    }
    given = more.pop("local", {})
    local = (
        {}
        if name in ("newton", "cox", "kaplanmeier", "tableone", "dptable")
        else {"lr": 0.1, "batch_size": 16, "drop_last": True, **given}
    )
    made = job(f"masked-{label}", shards="many", algorithm={"name": name, **tables}, local=local)
    return {**made, **usual, **more, **beside, "security": {"least": 1}, "seed": 1000 + nth}


_MASKED = [
    (
        "adam",
        "fedavg",
        {
            "server_optimizer": {"name": "adam", "lr": 0.02},
            "rounds": 4,
            "task": {"name": "classification", "metrics": ["accuracy", "auroc"]},
        },
    ),
    ("best", "fedavg", {"cohort": {}, "evaluate": {"patience": 3, "keep_best": True, "every": 2}}),
    ("fedsgd", "fedsgd", {}),
    ("fedprox", "fedprox", {"mu": 0.3, "adaptive": True, "patience": 1, "measure_gamma": True}),
    ("fednova", "fednova", {"local": {"epochs_by_silo": [1, 3], "momentum": 0.5}}),
    ("scaffold", "scaffold", {"rounds": 3, "clock": {"jitter": 0.2}}),
    ("feddyn", "feddyn", {"alpha": 0.3}),
    ("fsvrg", "fsvrg", {"local": {"lr": 3.0, "batch_size": 8}}),
    ("qfedavg", "qfedavg", {"q": 2.0}),
    ("qfedsgd", "qfedsgd", {"q": 0.5}),
    ("fedper", "fedper", {"personal": ["head.*"]}),
    ("ditto", "ditto", {"lambda": 0.5}),
    ("fedexp", "fedexp", {}),
    ("apfl", "apfl", {"adaptive": True}),
    ("moon", "moon", {"mu": 0.5}),
    ("feddf", "feddf", {"distill_steps": 5, "distill_batch": 32}),
    ("stateful", "scenarios:Stateful", {}),
    ("lost", "scenarios:LosesARound", {"rounds": 3}),
    ("nan", "scenarios:Poisoned", {"cohort": {"quorum": 0.5}}),
    ("scored", "fedavg", {"evaluate": {"where": "workers", "batch_size": 50}}),
    ("dptable", "dptable", {**YES_OR_NO, **COLUMNS, "privacy": NOISED, "cohort": {}, "rounds": 1}),
]
_MASKED_SLOW = [
    (
        "yogi",
        "fedavg",
        {"server_optimizer": {"name": "yogi"}, "local": {"straggler_chance": 0.5, "epochs": 3}},
    ),
    ("uniform", "fedavg", {"cohort": {"fraction": 0.3, "weights": "uniform"}}),
    ("scaffold-one", "scaffold", {"option": "I"}),
    ("scaffold-printed", "scaffold", {"control_weights": "uniform"}),
    ("fedsam", "fedsam", {}),
    ("fedrep", "fedrep", {"personal": ["head.*"], "head_epochs": 2}),
    ("pfedme", "pfedme", {"lambda": 3.0}),
    ("fedbn", "fedbn", {}),
    ("clipped", "fedavg", {"aggregation": {"clip": 0.4}, "compression": {"download": "bfloat16"}}),
    ("finetune", "finetune", {"tune_steps": 2}),
    ("newton", "newton", {**YES_OR_NO, "cohort": {}, "rounds": 3}),
    ("newton-counts", "newton", {**COUNTED, **WEIGHTED, "cohort": {}, "rounds": 3}),
    ("cox", "cox", {**LIVED, "cohort": {}, "rounds": 3}),
    ("kaplanmeier", "kaplanmeier", {**LIVED, "cohort": {}, "rounds": 1}),
    ("tableone", "tableone", {**YES_OR_NO, "cohort": {}, "rounds": 1}),
]
"""By MPIFL_SLOW=1. Analyses under masks are in the suite, too: `reference/test_same_bytes.py` trains them."""
_MASKED += _MASKED_SLOW if os.environ.get("MPIFL_SLOW") else []
MASKED = [masked(nth, label, name, **tables) for nth, (label, name, tables) in enumerate(_MASKED)]
"""Sums under masks of every algorithm that they are for, of a part of the silos, and with silos that fail."""
OPEN = {
    f"open-{job['name'][7:]}": {
        **job,
        "security": {**job["security"], "masks": False},
        "name": f"open-{job['name'][7:]}",
    }
    for job in MASKED
}
"""The same without masks; on several ranks only by MPIFL_SLOW=1."""
IN_CLEAR = ("open-adam", "open-nan")
"""What is trained without masks on any number of ranks."""
JOBS += [*MASKED, *(OPEN[name] for name in IN_CLEAR)]
ALONE = [one for name, one in OPEN.items() if name not in IN_CLEAR]


JOBS += scored.jobs(job, "workers")
ALONE += scored.jobs(job, "server")
"""Workers score the server's test set, or the server."""


BOTH = {"fedavg", PRIVATE["name"], *SERVER_SECRETS, NOISED_SUM["name"], "scored-failing"}
"""Jobs that are always trained in one go and stopped, since tests hold one against the other."""
SLOW = bool(os.environ.get("MPIFL_SLOW"))


def resumes(job: Job) -> bool:
    """Whether a training is also stopped and gone on with, in a folder of its own."""
    return job["rounds"] > 2 and (SLOW or job["name"] in BOTH)


def stops(job: Job, ranks: int) -> bool:
    """Whether the one training of a job is stopped and gone on with, in place of one that never was.

    So it is on five ranks, or on three where it trains on no more, and never on one, but by MPIFL_SLOW=1:
    what it comes to must be the bits of a single rank that was never stopped, which holds for restarts and
    for ranks at once.
    """
    return (
        job["rounds"] > 2 and not resumes(job) and ranks == (3 if job["name"] in _LEFT_OUT.get(5, ()) else 5)
    )


def half(job: Job) -> int:
    """The round after which a training is stopped."""
    return job["rounds"] // 2 + 1


UNDER_MASKS = ("masked-adam", "masked-scaffold", "masked-lost", "masked-nan", "masked-scored")
_OF_SILOS = ("diloco", "augmented", "task", "adapters", "buffers", "own-selection", "by-losses", "split-sum")
_OF_SILOS += ("split-flips", "split-uneven", "own-loader", "own-patches", "batched", "batched-adamw")
_OF_SILOS += ("fedavg-full", "fedsgd-full", "partial", "batchnorm", "few", "metrics", "ragged", "known")
_OF_SILOS += ("scored-curves", "scored-values", "scored-texts")
_KINDS = ("all-", "masked-", "compressed-", "rule-")
_IN_TURN = [
    job["name"]
    for job in JOBS
    if job["name"] in _OF_SILOS or (job["name"].startswith(_KINDS) and job["name"] not in UNDER_MASKS)
]
_LEFT_OUT: dict[int, list[str]] = {} if SLOW else {3: _IN_TURN[1::2], 5: _IN_TURN[::2]}
"""What an algorithm, a rule, a codec or a step does never depends on how ranks exchange it: of such jobs
every second trains on the one node of three ranks, the others on the three nodes of five. All do by
MPIFL_SLOW=1."""


def jobs_on(ranks: int) -> list[Job]:
    """The jobs that are trained on so many ranks."""
    if ranks == 1 or SLOW:
        return JOBS + ALONE
    return [job for job in JOBS if job["name"] not in _LEFT_OUT.get(ranks, ())]


def middle(rows: Tensor) -> Tensor:
    """Half way between the least and the largest."""
    return (rows.amin(0) + rows.amax(0)) / 2


def normalised(shape: Sequence[int], classes: int) -> nn.Module:
    """A network with BatchNorm, whose statistics travel, and dropout, whose randomness must be derived."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(16, classes),
    )


class Adapted(nn.Module):
    """A frozen linear map, and a low-rank one beside it, with dropout."""

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.base = nn.Linear(64, classes).requires_grad_(False)
        self.adapter = nn.Sequential(nn.Linear(64, 2), nn.Dropout(0.2), nn.Linear(2, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x.flatten(1)) + self.adapter(x.flatten(1))


def small(shape: Sequence[int], classes: int) -> nn.Module:
    """A small network with BatchNorm in two parts, as every algorithm can use it."""
    features = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU())
    return Classifier(features, nn.Linear(12, classes))


class Stateful(FedAvg):
    """Keeps state on both sides and asks twice a round."""

    def begin(self, server: Server) -> None:
        super().begin(server)
        server.state["c"] = torch.zeros_like(server.state["w"])

    def round(self, server: Server, cohort: Cohort) -> dict[str, float]:
        state = server.state
        first = cohort.mean(self.look, w=state["w"])
        mean = cohort.mean(self.learn, w=state["w"], c=state["c"], scale=0.5)
        self.server_optimizer.step(state, mean["delta"])
        state["c"] += len(mean) / cohort.population * (mean["shift"] + first["gradient"])
        return mean.scalars

    def look(self, silo: Silo, w: Tensor) -> Update:
        run = silo.gradient(w)
        silo.keep(seen=run.delta)
        return silo.update(gradient=run.delta)

    def learn(self, silo: Silo, w: Tensor, c: Tensor, scale: float) -> Update:
        own = silo.state.get("own", torch.zeros_like(c))
        run = silo.train_locally(
            w, self.local, correct=lambda grad, at, batch: grad.add_(c - own, alpha=scale)
        )
        silo.keep(own=own + run.delta + 0.1 * silo.state["seen"], rounds=silo.state.get("rounds", 0) + 1)
        return silo.update(delta=run.delta, shift=uniform(-run.delta), train_loss=run.loss)


class LosesARound(Stateful):
    """As Stateful, but in round 2 a silo fails in the second question of the first attempt,
    after much was kept."""

    def learn(self, silo: Silo, w: Tensor, c: Tensor, scale: float) -> Update:
        update = super().learn(silo, w, c, scale)
        # every training of this process lends a model of its own
        failed = _failed.setdefault(silo.model, set())
        if silo.round == 1 and silo.id not in failed:
            failed.add(silo.id)
            raise OSError("the disk is gone")
        return update


class Known(FedAvg):
    """Trains nothing: what its silos answer is known beforehand."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        delta, loss = known(silo.id, silo.round, len(w))
        return silo.update(delta=torch.from_numpy(delta), train_loss=loss)


def known(silo: int, round: int, length: int) -> tuple[np.ndarray, float]:
    """A silo's delta, float32 of shape [length], and its loss."""
    draw = np.random.default_rng([silo, round])
    return (draw.normal(size=length) * (1 + draw.random())).astype(np.float32), float(draw.random())


def in_turn(draw: Draw) -> list[int]:
    """Take one silo after another."""
    return [int(draw.silos[(draw.round * draw.count + i) % len(draw.silos)]) for i in range(draw.count)]


_failed: WeakKeyDictionary[Any, set[int]] = WeakKeyDictionary()


class Odd(FedAvg):
    """One silo sends no vector, one another, and one marks it otherwise; the others continue without them."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        update = super().train(silo, w)
        delta = update.vectors.pop("delta")
        others = {1: {}, 2: {"delta": delta, "more": delta}, 4: {"delta": uniform(delta)}}
        return silo.update(**others.get(silo.id, {"delta": delta}), **update.scalars)


class Poisoned(FedAvg):
    """One silo diverges; the others continue without it."""

    def train(self, silo: Silo, w: Tensor) -> Update:
        update = super().train(silo, w)
        if silo.id == 2:
            update.vectors["delta"] = torch.full_like(w, float("nan"))
        return update
