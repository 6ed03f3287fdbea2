"""Settings in which keys are allowed: tables for each thing that mpifl can do, and values of costly keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Table = dict[str, Any]
FEDERATIONS = 8
"""How many of each kind there are."""
USUAL = {"task": "classification", "algorithm": "fedavg", "server_optimizer": "sgd"}
"""What a table names by default."""
MLP: Table = {"name": "mlp", "hidden": [5]}
COMMON: Table = {
    "rounds": 3,
    "device": "cpu",
    "model": MLP,
    "local": {"lr": 0.1, "batch_size": 8},
    "checkpoint": {"every": 1},
}
"""Of every job, unless a setting has the table, too."""
NOT_DRAWN: dict[str, str] = {
    "name": "a job's name",
    "shards": "the federation",
    "seed": "drawn for each job",
    "device": "there is no GPU",
    "tracking.mlflow": "is not installed everywhere",
    "tracking.wandb": "talks to a service",
    "model.weights": "needs a file of the model's own parameters",
    "local.precision": "all but fp32 need a GPU",
    "privacy.noise_of": "names the silos of one federation",
}
"""Keys that no job is about, and why."""
VALUES: dict[str, list[Any]] = {
    "rounds": [1, 2, 4],
    "threads": [1, 2],
    "model.name": ["logreg", "mlp", "2nn"],
    "model.buffers": [
        {"*.seen": "max", "*.largest": "max"},
        {"*.seen": "reset", "*.largest": "min"},
        {"*": "reset"},
    ],
    "data.augment": ["flip", "crop", "flip-crop", "scripts.jobs_at_random.plugins:shifted"],
    "data.rotation": [0.0, 20.0],
    "data.zoom": [[1.0, 1.0], [0.8, 1.2]],
    "data.shift": [0.0, 0.1],
    "data.brightness": [0.0, 0.2],
    "data.contrast": [0.0, 0.3],
    "task.main (classification)": ["accuracy"],
    "task.main (binary)": ["auroc", "accuracy"],
    "task.main (multilabel)": ["auroc"],
    "task.main (regression)": ["rmse", "mae"],
    "task.main (segmentation)": ["dice"],
    "task.main (language)": ["perplexity", "accuracy"],
    "task.main (survival)": ["c_index"],
    "task.weights": ["balanced", [0.0, 1.0], [1.0, 2.0, 0.5], [0.3, 1.0, 4.0]],
    "task.weights (binary)": ["balanced", [0.0, 1.0], [2.0, 0.5]],
    "task.weights (multilabel)": [[0.0, 1.0, 3.0], [0.5, 1.0, 2.0]],
    "task.weights (segmentation)": ["balanced", [0.5, 1.0]],
    "task.weights (language)": ["balanced", [1.0, 2.0, 0.5, 1.0, 1.0, 0.0, 3.0]],
    "task.ignore": [0, 255, -100],
    "task.mean": [0.5, [0.1, -3.0]],
    "task.deviation": [2.0, [0.5, 100.0]],
    "local.epochs": [1, 2, 5],
    "local.epochs_decay": [0.3, 0.7, 0.99, 1.0],
    "local.batch_growth": [1.0, 1.2, 3.0, 1e9],
    "local.steps": [1, 2, 7],
    "local.batch_size": [1, 2, 3, 7, 64, "full"],
    "local.accumulate_batches": [1, 2, 3, 50],
    "local.warmup": [0, 1, 3, 100],
    "local.schedule_rounds": [1, 2, 9],
    "local.epochs_by_silo": [[1], [1, 2], [3, 1, 2]],
    "local.silos_per_step": [2, 3, 16],
    "local.deadline": [3600.0],
    "local.lr": [1e-9, 0.01, 0.1, 1.0, 30.0, 1e30],
    "split.cut_width": [1, 2, 5, [1, 2, 3]],
    "split.top": ["none", {"name": "mlp", "hidden": [3]}, {"name": "logreg"}],
    "split.bottoms": [{"0": {"name": "logreg"}}, {"2": {"name": "mlp", "hidden": [2]}}],
    "cohort.deadline": [600.0],
    "cohort.select": [
        "uniform",
        "examples",
        "power-of-choice",
        "poisson",
        "scripts.jobs_at_random.plugins:in_turn",
    ],
    "cohort.fraction": [0.0, 0.3, 0.5, 0.99, 1.0],
    "aggregation.rule": [
        *("mean", "median", "trimmed", "krum", "multikrum", "rfa", "centered", "fltrust"),
        "scripts.jobs_at_random.plugins:middle",
    ],
    "aggregation.byzantine": [1, 2, 0.1, 0.3, 0.49],
    "aggregation.iterations": [1, 2, 30],
    "aggregation.disk_buffer": ["."],
    "attack.silos": [[0], [1], [0, 1]],
    "attack.patch": [1, 2, 3],
    "attack.mimicked": [0, 1, 2],
    "aggregation.m": [1, 2, 3],
    "privacy.noise": [0.01, 0.5, 1.0, 50.0],
    "privacy.noise_of": [],
    "privacy.epsilon": [0.5, 5.0, 50.0],
    "privacy.delta": [1e-9, 1e-5, 1e-3, 0.05],
    "privacy.clip": ["adaptive", 1e-6, 0.5, 100.0],
    "security.range": [1.0, 128.0, 1e6],
    "security.least": [1, 2, 3],
    "evaluate.batch_size": [1, 3, 1000, "auto"],
    "evaluate.target": [0.0, 0.3, 2.0],
    "algorithm.personal": [["*weight"], ["*bias"], ["*2*"]],
    "clock.speeds": ["uniform", "log-uniform"],
    "clock.slowest": [0.01, 0.5, 1.0],
    "clock.fastest": [1.0, 3.0, 1e4],
    "clock.deadline": [9.0, 1e6],
    "algorithm.buffer": [1, 2, 7],
    "algorithm.concurrency": [1, 2, 3],
    "algorithm.distill_steps": [1, 3],
    "algorithm.distill_batch": [1, 4, 128],
    "algorithm.prototypes": [[], [{"name": "mlp", "hidden": [3, 3]}]],
    "algorithm.local_steps": [1, 2, 4],
    "tracking.observers": [[], ["scripts.jobs_at_random.plugins:Quiet"]],
    "tracking.console": [True, False, "always"],
}
"""Values of keys that the schema does not bound by what they cost, or of which it does not know the names."""


@dataclass(frozen=True)
class Setting:
    """Tables of a job over a federation of a kind."""

    kind: str = "table"
    tables: Table = field(default_factory=dict)


def _algorithms() -> list[Setting]:
    named: dict[str, Table] = {
        "fedsgd": {},
        "fedprox": {"mu": 0.3},
        "fednova": {},
        "scaffold": {},
        "feddyn": {},
        "fsvrg": {},
        "qfedavg": {},
        "qfedsgd": {},
        "fedper": {"personal": ["head.*"]},
        "fedbn": {},
        "ditto": {},
        "fedexp": {},
        "fedsam": {},
        "fedrep": {"personal": ["head.*"], "head_epochs": 2},
        "pfedme": {},
        "apfl": {},
        "finetune": {},
        "ifca": {"clusters": 3},
        "ifcasgd": {},
        "moon": {},
        "feddf": {"distill_steps": 2, "distill_batch": 8},
    }
    kind = {"feddf": "public"}
    made = [
        Setting(kind.get(name, "table"), {"algorithm": {"name": name, **own}}) for name, own in named.items()
    ]
    small = {
        "model": {"name": "scripts.jobs_at_random.plugins:normalised"},
        "local": {"batch_size": 8, "drop_last": True},
    }
    return [*made, *(Setting(one.kind, {**one.tables, **small}) for one in made)]


def _tasks() -> list[Setting]:
    gpt = {"name": "gpt", "width": 4, "layers": 1, "heads": 1}
    lstm = {"name": "char-lstm", "hidden": 3, "layers": 1, "embedding": 2}
    return [
        Setting("binary", {"task": {"name": "binary"}}),
        Setting("labels", {"task": {"name": "multilabel"}}),
        Setting("values", {"task": {"name": "regression"}}),
        Setting("values", {"task": {"name": "regression", "loss": "huber"}}),
        Setting("survival", {"task": {"name": "survival"}, "local": {"batch_size": "full"}}),
        Setting(
            "masks", {"task": {"name": "segmentation"}, "model": {"name": "unet", "width": 2, "depth": 1}}
        ),
        Setting("tokens", {"task": {"name": "language"}, "model": gpt}),
        Setting("tokens", {"task": {"name": "language"}, "model": lstm}),
        Setting("images", {"data": {"augment": "flip"}}),
        Setting("images", {"model": {"name": "logreg"}}),
        Setting("table", {"task": {"name": "classification", "loss": "focal"}}),
        Setting("binary", {"task": {"name": "binary", "loss": "focal"}}),
        Setting("labels", {"task": {"name": "multilabel", "loss": "focal"}}),
    ]


def _robust() -> list[Setting]:
    rules: list[Table] = [
        {"rule": "median"},
        {"rule": "trimmed", "byzantine": 0.2},
        {"rule": "krum", "byzantine": 0.2},
        {"rule": "multikrum", "byzantine": 0.2, "m": 2},
        {"rule": "rfa"},
        {"rule": "centered", "tau": 0.5},
        {"rule": "fltrust"},
        {"rule": "median", "pre": "nnm", "byzantine": 0.2},
        {"rule": "rfa", "pre": "bucketing"},
    ]
    kinds = ("label_flip", "backdoor", "sign_flip", "gaussian", "scale", "free_rider", "alie", "ipm", "mimic")
    lies = [{"kind": kind, "silos": [0]} for kind in (*kinds, "min_max")]
    made = [Setting("table", {"aggregation": rule}) for rule in rules]
    made += [Setting("images", {"attack": lie}) for lie in lies if lie["kind"] in kinds[:6]]
    return [*made, *(Setting("table", {"attack": lie, "aggregation": {"rule": "median"}}) for lie in lies)]


def _trust() -> list[Setting]:
    silent: Table = {"evaluate": {"silos": False}}
    example: Table = {"clip": 0.5, "noise": 1.0, "delta": 1e-3, "accountant": "rdp"}
    silo: Table = {"level": "silo", "clip": 0.2, "noise": 0.8, "delta": 0.005, "accountant": "rdp"}
    alike: Table = {"cohort": {"weights": "uniform"}}
    drawn: Table = {"cohort": {"weights": "uniform", "select": "poisson", "fraction": 0.6}}
    spent = {key: value for key, value in example.items() if key != "noise"} | {"epsilon": 20.0}
    adaptive = {**silo, "clip": "adaptive"}
    return [
        Setting("table", {"privacy": example, **silent}),
        Setting("table", {"privacy": spent, **silent}),
        Setting("table", {"privacy": {**silo, "noise_at": "server"}, **silent, **drawn}),
        Setting("crowd", {"privacy": {**adaptive, "noise_at": "server"}, **silent, **alike}),
        Setting(
            "table", {"privacy": {**silo, "noise_at": "sum"}, "security": {"least": 1}, **silent, **alike}
        ),
        Setting("table", {"security": {"least": 1}}),
        Setting(
            "table",
            {"security": {"least": 1}, "model": {"name": "scripts.jobs_at_random.plugins:normalised"}},
        ),
        Setting("table", {"security": {"masks": False}}),
    ]


SPLIT: Table = {
    "algorithm": {"name": "splitnn"},
    "split": {"cut_width": 3},
    "local": {"lr": 0.1, "batch_size": 8},
}
WAYS: list[Table] = [
    {},
    {"local": {"optimizer": "adam", "lr": 0.01, "steps": 3}},
    {"local": {"optimizer": "adamw", "lr": 0.01, "steps": 2, "keep_optimizer_state": True}},
    {"local": {"momentum": 0.9, "clip_norm": 0.5}},
    {"local": {"schedule": "cosine", "warmup": 1, "steps": 4, "schedule_rounds": 2}},
    {"local": {"epochs": 3, "straggler_chance": 0.5}},
    {"local": {"epochs": 4, "epochs_decay": 0.6, "batch_size": 4, "batch_growth": 1.5}},
    {"local": {"batch_silos": True, "batch_size": 4, "momentum": 0.5}},
    {"local": {"compile": True}},
    {"cohort": {"select": "power-of-choice", "candidates": 2, "fraction": 0.3}},
    {"cohort": {"fraction": 0.5, "weights": "uniform", "quorum": 0.5}},
    {"evaluate": {"patience": 1}},
    {"evaluate": {"target_accuracy": 0.2, "stop_at_target": True}},
    {"evaluate": {"where": "workers"}},
    {"evaluate": {"behind": True, "patience": 1}},
    {"server_optimizer": {"name": "adam"}},
    {"server_optimizer": {"name": "yogi"}},
    {"server_optimizer": {"name": "adagrad"}},
    {"server_optimizer": {"name": "sgd", "momentum": 0.9}},
    {"compression": {"upload": "qsgd", "bits": 4}},
    {"compression": {"upload": "topk", "share": 0.2, "download": "bfloat16"}},
    {"compression": {"upload": "float16", "download": "qsgd"}},
    {"checkpoint": {"every": 1, "background": True}},
    {"checkpoint": {"every": 2, "mirror": True}},
    {
        "model": {"name": "scripts.jobs_at_random.plugins:normalised"},
        "local": {"batch_size": 8, "drop_last": True},
    },
    {
        "model": {
            "name": "scripts.jobs_at_random.plugins:counting",
            "buffers": {"*.seen": "max", "*.largest": "max"},
        }
    },
    {"tracking": {"tensorboard": True}},
]
TIMED: list[Table] = [
    {"algorithm": {"name": "fedasync"}, "clock": {"jitter": 0.4}},
    {"algorithm": {"name": "fedbuff", "buffer": 2}, "clock": {"speeds": "uniform"}},
    {
        "algorithm": {"name": "fedcompass", "min_local_steps": 2, "max_local_steps": 6},
        "clock": {"jitter": 0.7},
    },
    {"clock": {"jitter": 0.4}},
]
SETTINGS: list[Setting] = [
    *(Setting("table", tables) for tables in TIMED),
    *(Setting("table", tables) for tables in WAYS),
    *_algorithms(),
    *_tasks(),
    *_robust(),
    *_trust(),
    Setting("columns", SPLIT),
    Setting("columns", {**SPLIT, "split": {"cut_width": 2, "merge": "sum", "top": "none"}}),
    Setting("columns", {**SPLIT, "split": {"cut_width": 3, "protect": "label-dp", "epsilon": 2.0}}),
    Setting("columns", {**SPLIT, "compression": {"upload": "qsgd"}}),
]
