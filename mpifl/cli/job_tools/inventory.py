"""The names that a job and `data-prep` may use: each registry's names with their docstrings.

`scripts/job_keys.py` writes them to a file beside the package's jobs, which `mpifl list` reads.
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
"""The note that a key also takes the user's own code."""
GIVEN = {"shape", "classes"}
"""The arguments of a model's factory that come from the federation, not from the job."""


@dataclass(frozen=True)
class Item:
    """A name that a key or an option may have.

    Attributes:
        what: Its meaning in one line.
        of: What it belongs to, such as the tasks of a metric.
        keys: Its own keys or options, beyond those of its kind.
        better: For a metric, the better values: "higher" or "lower".
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
        where: The key or option that takes them, as a user writes it.
        items: Returns the items.
        own: What else it takes; "" for nothing.
    """

    where: str
    items: Callable[[], list[Item]]
    own: str = ""


def summary(thing: Any) -> str:
    """Return the first paragraph of a docstring (an object's, or as text) as one line."""
    told = thing if isinstance(thing, str) else inspect.getdoc(getattr(thing, "func", thing)) or ""
    line = " ".join(told.partition("\n\n")[0].split())
    result = line.removeprefix("Return ")
    return line if result == line else result[:1].upper() + result[1:]


def options_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's keyword-only parameters, which a user may set."""
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
    """Return each item once, with all its tasks."""
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


def _schemes() -> list[Item]:
    from data_prep.schemes import SCHEMES

    def flags(options: Any) -> tuple[str, ...]:
        return tuple(f"--{option.replace('_', '-')}" for option in options)

    return [Item(name, summary(one.what), keys=flags(one.options)) for name, one in SCHEMES.items()]


def _sources() -> list[Item]:
    from data_prep.sources import SOURCES

    return [Item(name, summary(read), keys=options_of(read)) for name, read in SOURCES.items()]


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
    "schemes": Kind("data-prep partition --scheme", _schemes),
    "sources": Kind("data-prep partition SOURCE, --option", _sources, "your own, module:function"),
}
"""The kinds of names from registries, by the word for `mpifl list`."""
