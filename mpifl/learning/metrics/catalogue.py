"""The metrics that jobs may name, by task. A metric is made when it is needed, since importing torchmetrics
takes seconds."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from mpifl.common import InputError, choices, load_plugin
from mpifl.learning.metrics.metric import Metric, MetricInfo
from mpifl.learning.tasks import TaskFacts

Number = float | int | bool


@dataclass(frozen=True)
class MetricEntry:
    """A metric of the package.

    Attributes:
        maker: The `module:function` of this folder that makes it. It is called with the task's form, the
            federation's facts, and the arguments.
        arguments: The keys of its table in `[task] metrics`, with their defaults.
        higher_is_better: Whether a higher value is better.
        share: Whether it lies between 0 and 1.
    """

    maker: str
    arguments: Mapping[str, Number] = field(default_factory=dict)
    higher_is_better: bool = True
    share: bool = True

    @property
    def what(self) -> str:
        """The docstring of its maker. It is read from the source, since importing takes seconds."""
        module, _, maker = self.maker.partition(":")
        body = ast.parse(Path(__file__).with_name(f"{module}.py").read_text("utf-8")).body
        found = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == maker)
        return ast.get_docstring(next(found)) or ""

    @property
    def better(self) -> str:
        """Which of two values is better: "higher" or "lower"."""
        return "higher" if self.higher_is_better else "lower"


@dataclass(frozen=True)
class Chosen:
    """A metric that a job has named, with its arguments."""

    name: str
    kind: MetricEntry | Any
    arguments: Mapping[str, Any]

    def make(self, form: str, facts: TaskFacts) -> Metric:
        """Return a new metric; `form` is the prefix of torchmetrics' classes: "Binary", "Multiclass",
        "Multilabel"."""
        if not isinstance(self.kind, MetricEntry):
            made: Metric = self.kind(**self.arguments)
            return made
        module, _, maker = self.kind.maker.partition(":")
        room = importlib.import_module(f"mpifl.learning.metrics.{module}")
        made = getattr(room, maker)(form, facts, **{**self.kind.arguments, **self.arguments})
        return made

    @property
    def info(self) -> MetricInfo:
        """Its `MetricInfo`; a user's own metric is made to read it."""
        if not isinstance(self.kind, MetricEntry):
            return MetricInfo.of(self.name, self.kind(**self.arguments))
        better = self.kind.higher_is_better
        return MetricInfo(name=self.name, higher_is_better=better, share=self.kind.share)


Catalogue: TypeAlias = dict[str, MetricEntry]

_COUNTED = {
    "f1": MetricEntry("torchmetrics_library:f1"),
    "fbeta": MetricEntry("torchmetrics_library:fbeta", {"beta": 1.0}),
    "precision": MetricEntry("torchmetrics_library:precision"),
    "recall": MetricEntry("torchmetrics_library:recall"),
}
_CURVES = {
    "auroc": MetricEntry("ranking:auroc"),
    "average_precision": MetricEntry("ranking:average_precision"),
}
_ACCURACY = {"accuracy": MetricEntry("accuracy:accuracy")}
CLASSES: Catalogue = {
    **_ACCURACY,
    **_CURVES,
    **_COUNTED,
    "balanced_accuracy": MetricEntry("torchmetrics_library:balanced_accuracy"),
    "calibration_error": MetricEntry(
        "summed_metrics:calibration_error", {"bins": 15}, higher_is_better=False
    ),
    "brier": MetricEntry("summed_metrics:brier", higher_is_better=False, share=False),
    "matthews": MetricEntry("torchmetrics_library:matthews", share=False),
    "cohen_kappa": MetricEntry("torchmetrics_library:cohen_kappa", share=False),
}
YES_OR_NO: Catalogue = {**CLASSES, "specificity": MetricEntry("torchmetrics_library:specificity")}
LABELS: Catalogue = {
    **_CURVES,
    **_COUNTED,
    "accuracy": MetricEntry("torchmetrics_library:accuracy_of_labels"),
    "hamming": MetricEntry("torchmetrics_library:hamming", higher_is_better=False),
}
VALUES: Catalogue = {
    "mae": MetricEntry("torchmetrics_library:mae", higher_is_better=False, share=False),
    "mse": MetricEntry("torchmetrics_library:mse", higher_is_better=False, share=False),
    "rmse": MetricEntry("torchmetrics_library:rmse", higher_is_better=False, share=False),
    "r2": MetricEntry("summed_metrics:r2", share=False),
}
VOXELS: Catalogue = {
    "dice": MetricEntry("overlap:dice", {"background": False, "ignore_empty": True}),
    "iou": MetricEntry("overlap:iou", {"background": False, "ignore_empty": True}),
    "dice_pooled": MetricEntry("overlap:dice_pooled", {"background": False}),
    "iou_pooled": MetricEntry("overlap:iou_pooled", {"background": False}),
    **_ACCURACY,
}
TOKENS: Catalogue = {
    "perplexity": MetricEntry("summed_metrics:perplexity", higher_is_better=False, share=False),
    **_ACCURACY,
}
RISKS: Catalogue = {"c_index": MetricEntry("concordance:c_index")}


def choose(
    given: Iterable[str | Mapping[str, Any]], catalogue: Mapping[str, MetricEntry]
) -> dict[str, Chosen]:
    """Return the metrics that a job names, in order, by their names in files.

    Raises:
        ValueError: there is no such metric or argument, or two metrics have one name.
    """
    found: dict[str, Chosen] = {}
    for one in given:
        table = {"name": one} if isinstance(one, str) else dict(one)
        chosen = _chosen(str(table.pop("name", "")), table, catalogue)
        if chosen.name in found:
            raise ValueError(f"metric: two are called '{chosen.name}'; give one another name by as = '...'")
        found[chosen.name] = chosen
    return found


def names_in(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the losses and metrics that a table `[task]` names, by key; some may be a user's own."""
    metrics = table.get("metrics")
    named = [one.get("name") if isinstance(one, Mapping) else one for one in metrics or ()]
    found = {"loss": table.get("loss"), **{f"metrics.{i}": name for i, name in enumerate(named)}}
    return {key: name for key, name in found.items() if isinstance(name, str)}


def _chosen(name: str, table: dict[str, Any], catalogue: Mapping[str, MetricEntry]) -> Chosen:
    called = table.pop("as", None)
    if name in catalogue:
        _check_arguments(name, table, catalogue[name].arguments)
        return Chosen(str(called or name), catalogue[name], table)
    kind = plugin(name, "metrics", catalogue)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.partition(":")[2]).lower()
    try:
        missing = [part for part in ("update", "compute") if not hasattr(kind(**table), part)]
    except (TypeError, ValueError) as error:
        raise ValueError(f"metrics = '{name}': cannot be made with {table}: {error}") from None
    if missing or inspect.isfunction(kind):
        raise ValueError(f"metrics = '{name}': is not a metric; name a class with update and compute")
    return Chosen(str(called or snake), kind, table)


def plugin(name: str, key: str, known: Iterable[str]) -> Any:
    """Import an object that a job names as `package.module:name`; raise ValueError, which lists the known
    names."""
    try:
        return load_plugin(name, key, known)
    except InputError as error:
        raise ValueError(str(error)) from None


def _check_arguments(name: str, given: Mapping[str, Any], takes: Mapping[str, Number]) -> None:
    """Check a metric's arguments: numbers above 0 of the default's type, or true and false."""
    for key, value in given.items():
        if key not in takes:
            raise ValueError(f"metric: {name} has no key '{key}'; {choices(key, takes, 'it takes')}")
        kind = type(takes[key])
        right = type(value) is kind or (kind is float and type(value) is int)
        if not right or (kind is not bool and value <= 0):
            wanted = {bool: "true or false", int: "a whole number above 0"}.get(kind, "a number above 0")
            raise ValueError(f"metric: {name}: {key} = {value!r}: should be {wanted}")
