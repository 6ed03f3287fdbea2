"""What single silos scored, by their names; or why nobody here knows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mpifl.common import Names
from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs import Summary
from mpifl.run.folder import number

NAMES = Names()
"""Silos' names are anybody's text; by these they are fit to be read."""
ASKED = {"target", "target_accuracy", "patience", "split"}
"""Keys of `[evaluate]` that need a score."""
NONE_HELD_OUT = "there are no scores: no silo holds out examples"


def scores(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """Return the loss and the metrics of each silo by its name: of its test rows, which are scored at the end
    where rounds look at validation rows; else of the last round that was scored."""
    silos = summary.of_silos.get("silos")
    held = silos if isinstance(silos, Mapping) else {}
    return {NAMES[str(name)]: each for name, each in held.items() if isinstance(each, Mapping)}


def ranked(silos: Mapping[str, Mapping[str, Any]], metric: MetricInfo) -> list[tuple[str, float | None]]:
    """Return each silo's main metric, the worst silo first; those that have none at the end."""
    found = [(name, number(each, metric.name)) for name, each in silos.items()]
    sign = 1 if metric.higher_is_better else -1
    return sorted(found, key=lambda one: (one[1] is None, sign * (one[1] or 0.0)))


def evaluates(summary: Summary, *more: str) -> str:
    """Return the command, in quotes, that scores a run's model; `more` says on what."""
    return f"'mpifl evaluate {shlex.join([str(summary.run), *more])}'"


def why_none(job: Mapping[str, Any], scored: bool = False, held: Sequence[int] = ()) -> str:
    """Say why there is no score of single silos.

    Args:
        scored: Whether a round was scored at all.
        held: How many examples each silo holds out, where that is known.
    """
    if held and not any(held):
        return NONE_HELD_OUT
    security = job.get("security")
    if isinstance(security, Mapping) and security.get("masks", True):
        return "withheld: sums are masked, so no silo tells its score"
    privacy = job.get("privacy")
    if isinstance(privacy, Mapping) and privacy.get("evaluate_unprotected") is not True:
        return "withheld: differential privacy protects the scores on a silo's own examples"
    if isinstance(job.get("split"), Mapping):
        return "there are no scores of single silos: all hold columns of the same rows"
    return NONE_HELD_OUT + ", or no round was scored yet" * (not scored)


def expects_scores(summary: Summary) -> bool:
    """Whether a run is to have scores: not one of exact sums, unless it is a fit whose job asks for some."""
    job, last = summary.job, summary.records[-1]
    if any(key in last for key in ("table", "survival", "noised")):
        return False
    task = job.get("task")
    asked = job.get("evaluate", {}).keys() & ASKED or (isinstance(task, Mapping) and task.get("metrics"))
    return "coefficients" not in last or bool(asked)


def unscored(summary: Summary) -> str:
    """Say why a run has no score, and what would give one; "" of one from which none is expected."""
    if not expects_scores(summary):
        return ""
    why, more = why_none(summary.job), ""
    hidden = why.startswith("withheld")
    why = f"Scores of silos are {why}" if hidden else f"There are no scores of silos{why[why.index(':') :]}"
    if "privacy" in summary.job:
        command = evaluates(summary, "--silos")
        more = f". {command} scores this model by the silos' rows; its epsilon does not cover these figures"
    test = "a test set of the server (test.h5 in the shard folder)"
    return f"No round was scored. {why}. To get a score, add {test}{more}."


def weights_told(weights: object) -> str:
    """Say what a job's weights of classes mean for its probabilities; "" if there are none, or equal ones.

    A loss with weights is least at other probabilities than the classes' own frequencies.
    """
    if weights is None or (isinstance(weights, list) and len({*weights}) < 2):
        return ""
    what = "the loss has weights of classes, so probabilities are no risks"
    return f"{what}: they rank examples, and a class of larger weight looks more frequent than it is"


def counts_in(content: Mapping[str, Any], metric: MetricInfo) -> dict[str, tuple[int, int]]:
    """Return of how many examples the metric of each silo is, and how many these are, where it leaves out
    some."""
    key, silos = f"{metric.name}_examples", content.get("silos", {})
    if not any(key in one for one in silos.values()):
        return {}
    told = {name: (one.get(key, one.get("examples")), one.get("examples")) for name, one in silos.items()}
    return {NAMES[name]: each for name, each in told.items() if all(type(many) is int for many in each)}
