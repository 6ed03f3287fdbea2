"""What a job may name: the names of each registry, and what the docstrings there say of them.

Registries are imported when their items are asked for: a shell that completes a kind pays for none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mpifl import algorithms
from mpifl.learning import models, tasks
from mpifl.run.job import tables
from mpifl.silo import steps

if TYPE_CHECKING:
    from mpifl.algorithms import Algorithm

OWN = "your own, package.module:name"
"""What else most keys take."""
GIVEN = {"shape", "classes"}
"""What a model's factory is given by the federation, and not by the job."""


@dataclass(frozen=True)
class Item:
    """A name that something may be given.

    Attributes:
        name: As it is written.
        what: What it stands for, in a line.
        of: To what it belongs, where names of several are listed together: the tasks of a metric.
        keys: The keys or options that go with it, beside those that all of its kind have.
        better: Of a metric: the values that are better, "higher" or "lower".
    """

    name: str
    what: str
    of: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    better: str = ""


@dataclass(frozen=True)
class Kind:
    """Names of one kind.

    Attributes:
        where: What takes them, as a user writes it.
        items: Returns them.
        own: What it takes beside them, "" for nothing.
    """

    where: str
    items: Callable[[], list[Item]]
    own: str = ""


def summary(thing: Any) -> str:
    """Return the first paragraph of a docstring, an object's or as text, as one line that says what it is."""
    told = thing if isinstance(thing, str) else inspect.getdoc(getattr(thing, "func", thing)) or ""
    line = " ".join(told.partition("\n\n")[0].split())
    result = line.removeprefix("Return ")
    return line if result == line else result[:1].upper() + result[1:]


def options_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's keyword-only parameters: what a user may give it."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


def _plain(registry: Callable[[], Mapping[str, Any]]) -> list[Item]:
    return [Item(name, summary(kind)) for name, kind in registry().items()]


def _algorithms() -> list[Item]:
    def keys(kind: type[Algorithm]) -> tuple[str, ...]:
        fields = kind.model_fields.items()
        return tuple(
            field.alias or key for key, field in fields if key not in algorithms.Algorithm.model_fields
        )

    return [Item(name, summary(kind), keys=keys(kind)) for name, kind in algorithms.ALGORITHMS.items()]


def _models() -> list[Item]:
    def keys(factory: Callable[..., Any]) -> tuple[str, ...]:
        return tuple(key for key in inspect.signature(factory).parameters if key not in GIVEN)

    return [Item(name, summary(factory), keys=keys(factory)) for name, factory in models.MODELS.items()]


def _losses() -> list[Item]:
    return _by_task(
        (task, Item(name, summary(loss), keys=options_of(loss)))
        for task, kind in tasks.TASKS.items()
        if issubclass(kind, tasks.PackageTask)
        for name, loss in kind.losses.items()
    )


def _metrics() -> list[Item]:
    return _by_task(
        (task, Item(name, summary(one.what), (), tuple(one.arguments), one.better))
        for task, kind in tasks.TASKS.items()
        if issubclass(kind, tasks.PackageTask)
        for name, one in kind.catalogue.items()
    )


def _by_task(found: Iterable[tuple[str, Item]]) -> list[Item]:
    """Return each item once, with all tasks that have it."""
    tasks: dict[Item, list[str]] = {}
    for task, item in found:
        tasks.setdefault(item, []).append(task)
    return [replace(item, of=tuple(of)) for item, of in tasks.items()]


def _rules() -> Mapping[str, Any]:
    from mpifl.wings.robust import RULES

    return RULES


def _codecs() -> list[Item]:
    from mpifl.wings.compression import CODECS

    return [
        Item(name, summary(kind), keys=tuple(tables.OWN_KEYS.get(name, ()))) for name, kind in CODECS.items()
    ]


KINDS: dict[str, Kind] = {
    "algorithms": Kind("[algorithm] name", _algorithms, OWN),
    "models": Kind("[model] name", _models, OWN),
    "tasks": Kind("[task] name", partial(_plain, lambda: tasks.TASKS), OWN),
    "losses": Kind("[task] loss", _losses, OWN),
    "metrics": Kind("[task] metrics", _metrics, OWN),
    "optimizers": Kind("[local] optimizer", partial(_plain, lambda: steps.OPTIMIZERS)),
    "server-optimizers": Kind("[server_optimizer] name", partial(_plain, lambda: algorithms.OPTIMIZERS)),
    "selections": Kind("[cohort] select", partial(_plain, lambda: tables.SELECTIONS), OWN),
    "rules": Kind("[aggregation] rule", partial(_plain, _rules), OWN),
    "codecs": Kind("[compression] upload, download", _codecs),
}
"""What a job may name, by the word that `mpifl list` takes."""
