"""The options of all schemes as options of a command:
what a scheme takes by keyword, the command line takes too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Optional, get_type_hints

import typer

from data_prep.schemes import SCHEMES

HELP = {
    "alpha": "The smaller, the more skewed; 0.5, with vertical none: as many columns to each.",
    "shards_per_silo": "How many shards each silo is dealt; 2.",
    "classes": "How many classes each silo has, exactly; 2.",
    "exponent": "Of the sizes: n_k falls as k^-exponent; 1.",
    "sigma": "The variance of the last silo's noise, in the units a model sees; 0.1.",
    "angles": "In degrees, for equal numbers of silos as 0,90,180,270, or evenly spaced as 0..90.",
    "factors": "What features are multiplied by; as angles; 1..0.25.",
    "drifted": "The share of silos whose labels are permuted; 0.5.",
    "concepts": "How many different permutations there are; 1.",
    "mix": "What is mixed, as in 'dirichlet alpha=0.3 + quantity alpha=2 + feature-noise sigma=0.1'.",
    "label_silo": "The silo that holds the targets; 0.",
    "columns": "shuffled; contiguous: neighbours stay together; or by name, as 'age,sex;age,bmi'; shuffled.",
    "merge": "Which silos are one, by name, as north+east,south+west; the others stay.",
    "sizes": "How many examples, or of vertical columns, each silo gets, as 15,93; shares as 0.7,0.3, too.",
    "counts": "How many of each class, as 30,0;0,40 with a row for each silo; or a file of such lines.",
    "strictness": "How strictly by --order: from 0, as iid, to 1, sorted; 1.",
    "along": "flat, or of images height or width: they are cut along it and stay images; flat.",
    "min_examples": "The fewest examples a silo may hold; 1, with dirichlet and quantity 10.",
}
"""What the help says; an option that is not in it has its name to speak for it."""


def with_scheme_options(command: Callable[..., None]) -> Callable[..., None]:
    """Have a command with a parameter `**options` take every scheme's options, None where not given."""
    return taken_too(command, [_parameter(name, kind) for name, kind in _kinds().items()])


def taken_too(command: Callable[..., None], more: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Have a command with a parameter `**options` take more options."""
    own, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    others = [p for p in own.parameters.values() if p.kind is p.VAR_KEYWORD]
    plain = [p.replace(annotation=hints[p.name]) for p in own.parameters.values() if p not in others]
    taken = [*plain, *more]
    command.__signature__ = own.replace(parameters=[*taken, *others])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    return command


def only(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take only the options that it has now, and no `**options`."""
    own = inspect.signature(command)
    kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    command.__signature__ = own.replace(parameters=kept)  # type: ignore[attr-defined]
    return command


def _parameter(name: str, kind: type) -> inspect.Parameter:
    schemes = ", ".join(scheme for scheme, found in SCHEMES.items() if name in found.options)
    told = HELP.get(name, "") if name == "min_examples" else f"{schemes}: {HELP.get(name, '')}"
    annotation: Any = Annotated[Optional[kind], typer.Option(help=told)]  # noqa: UP045
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _kinds() -> dict[str, type]:
    """Return the type of every option that some scheme takes, the common one last."""
    found: dict[str, Any] = {
        name: type(value) for scheme in SCHEMES.values() for name, value in scheme.options.items()
    }
    return {**{name: kind for name, kind in found.items() if name != "min_examples"}, "min_examples": int}
