"""The numbers of single silos without which an algorithm makes no round, so that a consent must name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STEPS, LEFT, WHOLE = "private_steps", "budget_left", "within clip"
"""Numbers of `[privacy]`; their owners would import torch, and a consent is given before that."""
_NEEDED = {
    "fednova": ["tau_eff"],
    "qfedavg": ["h"],
    "qfedsgd": ["h"],
    "fedexp": ["squared_norm"],
}
MOST_CLUSTERS = 64


def needed_numbers(job: Mapping[str, Any]) -> list[str]:
    """Return the numbers that a job needs of each silo; under masks none, since they ride in the sum.

    Args:
        job: The tables of the job; all defaults are filled in.
    """
    counted = _of_budgets(_table(job.get("privacy")))
    if _table(job.get("security")).get("masks"):
        return [name for name in counted if name == LEFT]  # a run ends where a budget does
    algorithm, cohort = (_table(job.get(key)) for key in ("algorithm", "cohort"))
    name, clusters = str(algorithm.get("name")), algorithm.get("clusters")
    found = [*counted, *_NEEDED.get(name, [])]
    if name == "fedprox" and algorithm.get("adaptive"):
        found.append("global_loss")
    if name == "ifcasgd":
        count = min(clusters, MOST_CLUSTERS) if isinstance(clusters, int) else 1
        found += ["share_w", *(f"share_w_{nth}" for nth in range(1, count))]
    if cohort.get("select") == "power-of-choice":
        found.append("train_loss")
    return found


def _of_budgets(privacy: Mapping[str, Any]) -> list[str]:
    """Return the numbers by which a server counts what noised answers cost, or follows the silos' norms."""
    if not privacy:
        return []
    if privacy.get("level") != "silo":
        return [STEPS, LEFT]
    return [WHOLE] if privacy.get("clip") == "adaptive" else []


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
