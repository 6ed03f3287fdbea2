"""What the `job.toml` of a run says, whatever version wrote it: its tables, its target and a headline.

Also what was changed in it on the way, by which metrics it is judged, and what a round must have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpifl import __version__
from mpifl.common import one_line, tables
from mpifl.learning.metrics import ACCURACY, MetricInfo
from mpifl.run.folder import number
from mpifl.run.job import OF_SUMS
from mpifl.silo.steps import LOCAL

HARMLESS, BEFORE_ALL = ('name "', 'shards "'), " after round 0"
"""What changes begin or end with on which nothing that is trained depends."""
BYTES = ("bytes_sent", "bytes_received")
NUMBERS = ("test_loss", "train_loss", "seconds", *BYTES)
"""Figures of a round that must be numbers, or null, in what this program wrote; the main metric's, too."""
TABLES = ("faults", "rank_seconds", "weights", "outside", "epsilon_silos", "final", "answers", "sites")
CHOSEN = {"optimizer": "sgd", "accumulate_batches": 1, "schedule": "constant"}
"""Keys of `[local]` that a headline has where they are not as usual."""
SHOWN = ("optimizer", "lr", "schedule", "epochs", "steps", "batch_size", "accumulate_batches")
MORE = "more rounds may gain more"
PLAIN_STEP = {"lr": 1.0, "momentum": 0.0, "nesterov": False}
"""How the server takes the mean as it is."""
EACH_ALONE = "each silo alone"
"""What a way of training is called in which no silo learns of another, by whichever key."""
RANK = re.compile("[0-9]{1,9}")


def headline(job: Mapping[str, Any]) -> list[str]:
    """Return a job's algorithm, model, shards, seed and how silos train, as far as it has them, as terminals
    can show."""
    local = _used(job)
    way = EACH_ALONE if trains_alone(job) else _named(job.get("algorithm"))
    words = [way, _server_step(job), _model(job), job.get("shards")]
    told = {"seed": job, **dict.fromkeys(SHOWN, local)}
    words += [f"{key.replace('_', ' ')} {of[key]}" for key, of in told.items()
              if isinstance(of, Mapping) and key in of and of[key] != CHOSEN.get(key)]  # fmt: skip
    return [one_line(word) for word in words if word]


def _server_step(job: Mapping[str, Any]) -> str:
    """Name the optimizer by which the server takes its step, if it is another than the mean itself."""
    table = job.get("server_optimizer")
    keys = table if isinstance(table, Mapping) else {}
    said = [f"{key} {value}" for key, value in keys.items() if key in PLAIN_STEP and value != PLAIN_STEP[key]]
    name = keys.get("name", "sgd")
    told = " ".join([f"server {name}", *said]).replace("nesterov True", "nesterov")
    return told if said or name != "sgd" else ""


def longer(job: Mapping[str, Any], rounds: int) -> str:
    """Say what may gain more after a best last round: more rounds, unless the learning rate has come to 0."""
    local = job.get("local", {})
    span, shape = local.get("schedule_rounds", 1), local.get("schedule", "constant")
    if shape == "constant" or span == 1 or rounds % span:
        return MORE
    return f"the {shape} schedule has ended, and a larger schedule_rounds with as many rounds may gain more"


def _used(job: Mapping[str, Any]) -> object:
    """Return a job's table `[local]`, without what an algorithm of exact sums does not use."""
    local, algorithm = job.get("local"), job.get("algorithm")
    if not isinstance(local, Mapping) or _named(algorithm) not in OF_SUMS:
        return local
    return {key: one for key, one in local.items() if LOCAL.cells["newton"].get(key) != "-"}


def _model(job: Mapping[str, Any]) -> str:
    """Name a job's model; both halves of one that is split."""
    name, split = _named(job.get("model")), job.get("split")
    if not isinstance(split, Mapping):
        lora = job["model"].get("lora") if name else None
        rank = f" r {lora['r']}" if isinstance(lora, Mapping) and "r" in lora else ""
        return name if lora is None else f"{name} with LoRA{rank}"
    top = split.get("top", "none")
    return f"bottom {name}, top {top.get('name') if isinstance(top, Mapping) else 'sum'}"


def _named(table: object) -> str:
    return str(table.get("name", "")) if isinstance(table, Mapping) else ""


def read_tables(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the tables of a job, whatever version wrote them, and what is wrong with the file."""
    try:
        job = tables(path)
    except OSError as error:
        return {}, [f"job.toml cannot be read ({error.strerror})"]
    except ValueError:
        return {}, ["job.toml is torn"]
    nested = all(
        isinstance(job.get(name, {}), dict) for name in ("algorithm", "model", "evaluate", "aggregation")
    )
    evaluate = job.get("evaluate", {}) if nested else {}
    counts = job.get("rounds", 0), evaluate.get("patience", 1)
    if nested and _targets_are_numbers(evaluate) and all(type(count) is int for count in counts):
        return job, []
    return {}, [f"job.toml is not as mpifl {__version__} writes it"]


def _targets_are_numbers(evaluate: Mapping[str, Any]) -> bool:
    share = evaluate.get("target_accuracy", 1)
    is_share = type(share) in (int, float) and 0 < share <= 1
    return is_share and number({"target": 0, **evaluate}, "target") is not None


def target_of(job: Mapping[str, Any]) -> float | None:
    """Return the target in a job's tables, by whichever key it is given."""
    evaluate = job.get("evaluate", {})
    found = evaluate.get("target", evaluate.get("target_accuracy"))
    return None if found is None else float(found)


def metric_of(environment: Mapping[str, Any]) -> MetricInfo:
    """Return the main metric that a run notes; of one that notes none the accuracy."""
    return next(iter(infos_of([environment.get("metric")])), ACCURACY)


def infos_of(noted: Sequence[object]) -> tuple[MetricInfo, ...]:
    """Return metrics that a run notes; none if it notes what this program does not write."""
    try:
        return tuple(map(MetricInfo.model_validate, noted))
    except ValidationError:
        return ()


def further(
    metrics: Sequence[MetricInfo], model: Mapping[str, Any], silos: Mapping[str, Any], end: Mapping[str, Any]
) -> dict[str, float | None]:
    """Return the figures of further metrics, as far as they are known: of the model's round, of silos and of
    the end."""
    found: dict[str, float | None] = {}
    for one in metrics:
        at_silos = (f"{one.silo}_mean", one.pooled, one.weighted, f"{one.silo}_worst")
        found |= {one.test: number(model, one.test), f"final_{one.name}": number(end, one.test)}
        found |= {key: number(silos, key) for key in at_silos}
    return {key: value for key, value in found.items() if value is not None}


def classes_of(environment: Mapping[str, Any]) -> int:
    """Return how many classes a run's task has, 0 where its folder does not tell."""
    told = environment.get("federation")
    found = told.get("classes") if isinstance(told, Mapping) else None
    return found if type(found) is int and found > 1 else 0


def changed_by_force(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what `environment.json` says was changed on the way and what is trained depends on.

    Not a new name, shards that were moved, or what was changed before the first round.
    """
    changes = map(str, environment.get("changes", ()))
    return tuple(c for c in changes if not c.startswith(HARMLESS) and not c.endswith(BEFORE_ALL))


def is_round(record: Mapping[str, Any], metric: MetricInfo) -> bool:
    """Return whether a line of metrics.jsonl is a round as this program writes it."""
    names = (*NUMBERS, metric.test, f"{metric.silo}_worst")
    numbers = all(record.get(name) is None or number(record, name) is not None for name in names)
    tables = all(isinstance(record.get(name, {}), dict) for name in TABLES)
    ranks = record.get("rank_seconds", {})
    return numbers and tables and all(RANK.fullmatch(k) and isinstance(v, dict) for k, v in ranks.items())


def unprotected(job: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say how well gradients reveal labels that a split network does not protect, by its worst round."""
    split, found = job.get("split"), [number(record, "norm_leak_auc") for record in records]
    leaks = [leak for leak in found if leak is not None]
    if not leaks or not isinstance(split, Mapping) or split.get("protect", "none") != "none":
        return []
    said = "labels are not protected: silos can tell them from the norms of the gradients that they receive"
    said += f", with a label leak of up to {max(leaks):.2%} in a round (50% reveals none)"
    return [f"{said}; to hide them, set [split] protect = 'label-dp', or 'max-norm' without a guarantee"]


def trains_alone(job: Mapping[str, Any]) -> bool:
    """Return whether each silo of a job trains by itself: Ditto with lambda 0."""
    algorithm = job.get("algorithm")
    return isinstance(algorithm, Mapping) and algorithm.get("lambda") == 0
