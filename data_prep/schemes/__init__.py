"""The schemes that cut a data set into silos; a new one is a pure function and a line here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from data_prep.dataset import Dataset
from data_prep.schemes.iid import iid
from data_prep.schemes.labels import dirichlet, shards
from data_prep.schemes.natural import natural
from mpifl.errors import InputError

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Scheme:
    """A way to cut a data set.

    Attributes:
        assign: Called with a column of the data set [n], the number of silos and a generator; its keyword-only
            parameters are the scheme's options. Returns an index array for every silo.
        column: What is cut by: the labels, or the silo each example belongs to by nature.
    """

    assign: Callable[..., list[np.ndarray]]
    column: Literal["y", "silo"] = "y"

    @property
    def options(self) -> dict[str, Any]:
        """Return the scheme's options with their defaults; every scheme has `min_examples`."""
        return self._own | {"min_examples": self._own.get("min_examples", 1)}

    @property
    def _own(self) -> dict[str, Any]:
        parameters = inspect.signature(self.assign).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def __call__(
        self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options
    ) -> list[np.ndarray]:
        """Cut a data set; return the indices of every silo's examples.

        Raises:
            InputError: there is nothing to cut by, or not enough for that many silos.
        """
        column = getattr(data, self.column)
        if column is None:
            others = ", ".join(name for name, other in SCHEMES.items() if other.column == "y")
            lacking = f"{data.where} has no array '{self.column}' to cut by (an npz file can have one)"
            raise InputError(f"--scheme: {lacking}; add it, or take {others}")
        if self.column == "y":
            _check_count(data, silos, options["min_examples"])
        parts = self.assign(column, silos, rng, **{name: options[name] for name in self._own})
        _check_smallest(parts, options["min_examples"])
        return parts


SCHEMES: dict[str, Scheme] = {
    "iid": Scheme(iid),
    "shards": Scheme(shards),
    "dirichlet": Scheme(dirichlet),
    "natural": Scheme(natural, column="silo"),
}


def find_scheme(name: str) -> Scheme:
    """Return a scheme; raise InputError with the names there are."""
    if name not in SCHEMES:
        raise InputError(f"--scheme: '{name}' is unknown; there are {', '.join(SCHEMES)}")
    return SCHEMES[name]


def resolve(name: str, scheme: Scheme, given: Options) -> dict[str, Any]:
    """Fill in a scheme's defaults for the options that were not given (None); refuse those it does not take."""
    chosen = {option: value for option, value in given.items() if value is not None}
    for option in chosen:
        if option not in scheme.options:
            takes = ", ".join(map(flag, scheme.options))
            raise InputError(f"{flag(option)}: --scheme {name} has no use for it; it takes {takes}")
    options = scheme.options | chosen
    if options["min_examples"] < 1:
        raise InputError(f"--min-examples: {options['min_examples']} given; a silo needs at least 1")
    return options


def flag(option: str) -> str:
    """Return an option as it is typed."""
    return f"--{option.replace('_', '-')}"


def _check_count(data: Dataset, silos: int | None, min_examples: int) -> None:
    if silos is None or silos < 1:
        raise InputError(f"--silos: {'not' if silos is None else silos} given; it must be 1 or more")
    if len(data) < silos * min_examples:
        needed = f"{silos} silos of at least {min_examples} need {silos * min_examples}"
        raise InputError(f"--silos: {data.where} has {len(data)} examples, {needed}; ask for fewer silos")


def _check_smallest(parts: list[np.ndarray], min_examples: int) -> None:
    smallest = min(range(len(parts)), key=lambda silo: len(parts[silo]))
    if len(parts[smallest]) < min_examples:
        found = f"silo {smallest} has {len(parts[smallest])} examples, {min_examples} asked"
        raise InputError(f"--min-examples: {found}; lower it, or ask for fewer silos")
