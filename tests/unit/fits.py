"""Jobs for each way of training and for each key: values beside the usual one, each with what it needs."""

from __future__ import annotations

from typing import Any

Tables = dict[str, Any]
KEYS: dict[str, list[Tables]] = {
    "optimizer": [{"optimizer": "adam"}, {"optimizer": "adamw"}],
    "lr": [{"lr": 0.05}],
    "lr_decay": [{"lr_decay": 0.5}],
    "momentum": [{"momentum": 0.5}],
    "nesterov": [{"nesterov": True, "momentum": 0.5}],
    "beta1": [{"beta1": 0.5, "optimizer": "adam"}],
    "beta2": [{"beta2": 0.5, "optimizer": "adam"}],
    "epsilon": [{"epsilon": 0.1, "optimizer": "adam"}],
    "weight_decay": [{"weight_decay": 0.1}],
    "clip_norm": [{"clip_norm": 0.01}],
    "schedule": [{"schedule": "linear"}, {"schedule": "cosine"}],
    "warmup": [{"warmup": 2}],
    "schedule_rounds": [{"schedule_rounds": 3, "steps": 4, "schedule": "linear"}],
    "keep_optimizer_state": [{"keep_optimizer_state": True, "momentum": 0.5}],
    "epochs": [{"epochs": 2}],
    "epochs_decay": [{"epochs_decay": 0.5, "epochs": 4}, {"epochs_decay": 0.4, "epochs_by_silo": [2, 5]}],
    "steps": [{"steps": 3}],
    "batch_size": [{"batch_size": 8}, {"batch_size": "full"}],
    "batch_growth": [{"batch_growth": 1.8, "batch_size": 6}],
    "accumulate_batches": [{"accumulate_batches": 2}],
    "drop_last": [{"drop_last": True}],
    "straggler_chance": [{"straggler_chance": 1.0, "epochs": 4}],
    "deadline": [{"deadline": 1e-9}],
    "epochs_by_silo": [{"epochs_by_silo": [1, 3]}],
    "compile": [{"compile": True}],
    "batch_silos": [{"batch_silos": True}],
    "silos_per_step": [{"silos_per_step": 2, "batch_silos": True}],
    "precision": [{"precision": "bf16"}, {"precision": "fp16"}, {"precision": "tf32"}],
}
"""Of `[local]`."""
BARE = {"level": "example", "clip": 1.0, "delta": 1e-5}
PRIVATE = {**BARE, "noise": 1.0}
ADAPTIVE = {**PRIVATE, "level": "silo", "clip": "adaptive"}
UNIFORM: Tables = {"cohort": {"weights": "uniform"}}
SPLIT: Tables = {"algorithm": {"name": "splitnn"}, "split": {"cut_width": 4}}
BY_LABEL = {"cut_width": 4, "protect": "label-dp", "epsilon": 1.0}
LATE: Tables = {"late": "next", "deadline": 3.0}
TIMED: Tables = {"algorithm": {"name": "fedbuff"}, "clock": {}}
WAYS: dict[str, Tables] = {
    "usual": {},
    "clock": {"clock": {}},
    "asynchronous": TIMED,
    "compile": {"local": {"compile": True}},
    "batch_silos": {"local": {"batch_silos": True}},
    "private": {"privacy": PRIVATE},
    "silo": {"privacy": {**PRIVATE, "level": "silo"}, "cohort": {"weights": "uniform"}},
    "sum": {"privacy": {**PRIVATE, "noise_at": "sum"}, "security": {}, "algorithm": {"name": "fedsgd"}},
    "sums": {"security": {"masks": False}},
    "masks": {"security": {}},
    "split": SPLIT,
    "rule": {"aggregation": {"rule": "median"}},
    "late": {"cohort": LATE},
    "qffl": {"algorithm": {"name": "qfedavg"}},
    "paired": {"algorithm": {"name": "pfedme"}},
    "fedrep": {"algorithm": {"name": "fedrep", "personal": ["head.*"]}},
    **{
        name: {"algorithm": {"name": name}}
        for name in ("fedsgd", "fsvrg", "scaffold", "fednova", "ditto", "fedsam")
    },
}
"""What asks for a way."""
CLASSES = {"kind": "backdoor", "silos": [0]}
JOBS: dict[str, list[Tables]] = {
    "name": [{"name": "other"}],
    "shards": [{"shards": "elsewhere"}],
    "seed": [{"seed": 3}],
    "rounds": [{"rounds": 9}],
    "device": [{"device": "cpu"}],
    "threads": [{"threads": 2}],
    "kernels": [{"kernels": "avx2", "device": "cpu"}],
    "model": [{"model": {"name": "cnn"}}],
    "task": [{"task": {"name": "binary"}}],
    "algorithm": [{"algorithm": {"name": "feddyn"}}],
    "split": [SPLIT],
    "clock": [TIMED],
    "clock.speeds": [{**TIMED, "clock": {"speeds": "uniform"}}],
    "clock.slowest": [{**TIMED, "clock": {"slowest": 2.0}}],
    "clock.fastest": [{**TIMED, "clock": {"fastest": 20.0}}],
    "clock.jitter": [{**TIMED, "clock": {"jitter": 0.5}}],
    "clock.seed": [{**TIMED, "clock": {"seed": 5}}],
    "clock.deadline": [{"clock": {"deadline": 5.0}}],
    "server_optimizer": [{"server_optimizer": {"name": "adam"}}],
    "privacy": [{"privacy": PRIVATE}],
    "security": [{"security": {}}],
    "data": [{"data": {"augment": "flip"}}],
    "local": [{"local": {"lr": 0.2}}],
    "cohort": [{"cohort": {"quorum": 0.5}}],
    "aggregation": [{"aggregation": {"rule": "mean"}}],
    "compression": [{"compression": {"download": "float16"}}],
    "attack": [{"attack": {"silos": []}}],
    "evaluate": [{"evaluate": {"every": 2}}],
    "checkpoint": [{"checkpoint": {"every": 2}}],
    "tracking": [{"tracking": {"jsonl": False}}],
    "model.name": [{"model": {"name": "2nn"}}],
    "model.weights": [{"model": {"name": "2nn", "weights": "w"}}],
    "model.strict": [{"model": {"name": "2nn", "weights": "w", "strict": False}}],
    "model.save": [{"model": {"name": "2nn", "save": "trained"}}],
    "model.buffers": [{"model": {"name": "2nn", "buffers": {"a": rule}}} for rule in ("reset", "min", "any")],
    "data.augment": [{"data": {"augment": how}} for how in ("flip", "crop", "mine:changed")],
    "data.rotation": [{"data": {"rotation": 15.0}}],
    "data.zoom": [{"data": {"zoom": [0.9, 1.1]}}],
    "data.shift": [{"data": {"shift": 0.1}}],
    "data.brightness": [{"data": {"brightness": 0.2}}],
    "data.contrast": [{"data": {"contrast": 0.2}}],
    "cohort.fraction": [{"cohort": {"fraction": 0.5}}],
    "cohort.quorum": [{"cohort": {"quorum": 0.5}}],
    "cohort.deadline": [{"cohort": {"deadline": 3.0}}],
    "cohort.weights": [{"cohort": {"weights": weights}} for weights in ("uniform", "examples")],
    "cohort.select": [
        {"cohort": {"select": "examples"}},
        {"cohort": {"select": "unit.fits:drawn"}},
        {"cohort": {"select": "power-of-choice", "candidates": 3}},
    ],
    "cohort.late": [{"cohort": LATE}],
    "cohort.late_a": [{"cohort": {**LATE, "late_a": 1.0}}],
    "cohort.late_rounds": [{"cohort": {**LATE, "late_rounds": 3}}],
    "cohort.candidates": [{"cohort": {"candidates": 3, "select": "power-of-choice"}}],
    "aggregation.rule": [{"aggregation": {"rule": "median"}}],
    "aggregation.byzantine": [{"aggregation": {"byzantine": 1, "rule": "krum"}}],
    "aggregation.pre": [{"aggregation": {"pre": "bucketing", "rule": "median"}}],
    "aggregation.s": [{"aggregation": {"s": 3, "pre": "bucketing", "rule": "median"}}],
    "aggregation.m": [{"aggregation": {"m": 2, "rule": "multikrum", "byzantine": 1}}],
    "aggregation.tau": [{"aggregation": {"tau": 1.0, "rule": "centered"}}],
    "aggregation.nu": [{"aggregation": {"nu": 0.1, "rule": "rfa"}}],
    "aggregation.iterations": [{"aggregation": {"iterations": 9, "rule": "rfa"}}],
    "aggregation.disk_buffer": [{"aggregation": {"disk_buffer": ".", "rule": "rfa"}}],
    "aggregation.clip": [{"aggregation": {"clip": 1.5}}],
    "compression.upload": [{"compression": {"upload": up}} for up in ("float16", "bfloat16", "qsgd", "topk")],
    "compression.download": [{"compression": {"download": "qsgd"}}],
    "compression.error_feedback": [{"compression": {"error_feedback": True, "upload": "float16"}}],
    "compression.bits": [{"compression": {"bits": 4, "download": "qsgd"}}],
    "compression.bucket": [{"compression": {"bucket": 64, "download": "qsgd"}}],
    "compression.norm": [{"compression": {"norm": "l2", "download": "qsgd"}}],
    "compression.share": [{"compression": {"share": 0.5, "upload": "topk"}}],
    "attack.kind": [{"attack": {"kind": "sign_flip", "silos": [0]}}],
    "attack.silos": [{"attack": {"silos": [0], "kind": "sign_flip"}}],
    "attack.std": [{"attack": {"std": 2.0, "kind": "gaussian", "silos": [0]}}],
    "attack.factor": [{"attack": {"factor": 2.0, "kind": "scale", "silos": [0]}}],
    "attack.z": [{"attack": {"z": 1.0, "kind": "alie", "silos": [0]}}],
    "attack.epsilon": [{"attack": {"epsilon": 0.2, "kind": "ipm", "silos": [0]}}],
    "attack.direction": [{"attack": {"direction": "unit", "kind": "min_max", "silos": [0]}}],
    "attack.mimicked": [{"attack": {"mimicked": 1, "kind": "mimic", "silos": [0]}}],
    "attack.target": [{"attack": {"target": 1, **CLASSES}}],
    "attack.patch": [{"attack": {"patch": 2, **CLASSES}}],
    "attack.value": [{"attack": {"value": 2.0, **CLASSES}}],
    "attack.share": [{"attack": {"share": 0.4, **CLASSES}}],
    "attack.keep_optimizer_state": [{"attack": {"keep_optimizer_state": False, **CLASSES}}],
    "privacy.level": [{"privacy": PRIVATE}, {**UNIFORM, "privacy": {**PRIVATE, "level": "silo"}}],
    "privacy.noise_at": [{"privacy": {**PRIVATE, "noise_at": "silo"}}],
    "privacy.clip": [{"privacy": {**PRIVATE, "clip": 2.0}}],
    "privacy.quantile": [{**UNIFORM, "privacy": {**ADAPTIVE, "quantile": 0.4}}],
    "privacy.clip_start": [{**UNIFORM, "privacy": {**ADAPTIVE, "clip_start": 1.0}}],
    "privacy.noise": [{"privacy": {**PRIVATE, "noise": 2.0}}],
    "privacy.noise_of": [{"privacy": {**BARE, "noise_of": {"a": 1.0}}}],
    "privacy.epsilon": [{"privacy": {**BARE, "epsilon": 3.0}}],
    "privacy.delta": [{"privacy": {**PRIVATE, "delta": 1e-6}}],
    "privacy.accountant": [{"privacy": {**PRIVATE, "accountant": "rdp"}}],
    "privacy.evaluate_unprotected": [{"privacy": {**PRIVATE, "evaluate_unprotected": True}}],
    "security.masks": [{"security": {"masks": False}}],
    "security.range": [{"security": {"range": 9.0}}],
    "security.least": [{"security": {"least": 2}}],
    "security.colluding": [{"security": {"colluding": 0.1}}],
    "split.cut_width": [{**SPLIT, "split": {"cut_width": 3}}],
    "split.merge": [{**SPLIT, "split": {"cut_width": 4, "merge": "sum"}}],
    "split.top": [{**SPLIT, "split": {"cut_width": 4, "top": {"name": "logreg"}}}],
    "split.protect": [{**SPLIT, "split": BY_LABEL}],
    "split.epsilon": [{**SPLIT, "split": {**BY_LABEL, "epsilon": 2.0}}],
    "split.bottoms": [{**SPLIT, "split": {"cut_width": 4, "bottoms": {"0": {"name": "logreg"}}}}],
    "evaluate.every": [{"evaluate": {"every": 2}}],
    "evaluate.batch_size": [{"evaluate": {"batch_size": 10}}, {"evaluate": {"batch_size": "auto"}}],
    "evaluate.where": [{"evaluate": {"where": "workers"}}],
    "evaluate.behind": [{"evaluate": {"behind": True}}],
    "evaluate.silos": [{"evaluate": {"silos": False}}],
    "evaluate.target": [{"evaluate": {"target": 0.5}}],
    "evaluate.target_accuracy": [{"evaluate": {"target_accuracy": 0.5}}],
    "evaluate.stop_at_target": [{"evaluate": {"stop_at_target": True, "target": 0.5}}],
    "evaluate.split": [{"evaluate": {"split": "valid"}}],
    "evaluate.patience": [{"evaluate": {"patience": 2}}],
    "evaluate.keep_best": [{"evaluate": {"keep_best": True}}],
    "checkpoint.every": [{"checkpoint": {"every": 2}}],
    "checkpoint.keep": [{"checkpoint": {"keep": 2}}],
    "checkpoint.background": [{"checkpoint": {"background": True}}],
    "checkpoint.mirror": [{"checkpoint": {"mirror": True}}],
    "tracking.console": [{"tracking": {"console": False}}],
    "tracking.jsonl": [{"tracking": {"jsonl": False}}],
    "tracking.tensorboard": [{"tracking": {"tensorboard": True}}],
    "tracking.mlflow": [{"tracking": {"mlflow": True}}],
    "tracking.wandb": [{"tracking": {"wandb": True}}],
    "tracking.step_losses": [{"tracking": {"step_losses": 2}}],
    "tracking.observers": [{"tracking": {"observers": ["mine:Observer"]}}],
    **{f"local.{key}": [{"local": given} for given in samples] for key, samples in KEYS.items()},
}
"""Of all tables."""


def drawn(draw: Any) -> list[int]:
    """Select silos, as the user's own."""
    return list(draw.silos)[: draw.count]


def merged(*parts: Tables) -> Tables:
    """Return a job of several parts: tables of the same name are one."""
    job: Tables = {"name": "toy", "shards": "s", "rounds": 2, "model": {"name": "2nn"}}
    for part in parts:
        for name, table in part.items():
            job[name] = {**job.get(name, {}), **table} if isinstance(table, dict) else table
    return job
