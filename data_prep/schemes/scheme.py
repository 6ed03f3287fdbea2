"""What a scheme is: a cut of the examples over the silos, and for some an effect on what a silo then sees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from data_prep.dataset import Alter, Converted, Cut, Dataset
from mpifl.common import InputError
from mpifl.data import Aims, Features, Inputs

WITHOUT_CLASSES = "use iid, quantity, power-law or natural"
"""What schemes do without classes."""
Options = Mapping[str, Any]
Examples = tuple[np.ndarray, np.ndarray]
"""Features [n, *shape] and labels [n, ...]."""


@dataclass(frozen=True)
class EffectPlace:
    """Where the examples lie that an effect alters.

    Attributes:
        silo: Their silo, of `silos`.
        silos: How many silos there are.
        seed: The federation's seed.
        features: What the rows are: shape, dtype, and how a model sees them.
        classes: How many classes there are; None where targets are values.
        targets: What one example's target is, where it is no int64 class number.
    """

    silo: int
    silos: int
    seed: int
    features: Features
    classes: int | None
    targets: Aims | None = None


@dataclass(frozen=True)
class Effect:
    """What a scheme does to the examples of a silo, one by one: any cut of them into pieces gives the same
    bytes.

    Attributes:
        apply: Called with an `EffectPlace`, x, y and the examples' ids [n]; its keyword-only parameters are
            options.
        store: Called with the features as they are, the number of classes and the options; returns what the
            features become, or refuses.
        name: Called with a silo, the number of silos and the options; returns what tells the silo from
            others.
    """

    apply: Callable[..., Examples]
    store: Callable[..., Features]
    name: Callable[..., str]


@dataclass(frozen=True)
class Scheme:
    """A way to cut a data set.

    Attributes:
        assign: Called with a column of the data set [n], the number of silos and a generator; its
            keyword-only parameters are the scheme's options. Returns an index array for every silo.
        column: What is cut by: the labels, the silo each example belongs to by nature, or their order.
        effect: What happens to the examples of a silo, if anything.
        shares: Called with the number of silos, a generator and options; returns the silos' shares of all
            examples. Only for schemes that skew sizes alone.
        layout: Whether silos get examples, or columns of all examples.
        by_class: Whether it cuts by classes, one of each example.
        classes_exact: Whether it promises how many classes a silo has.
    """

    assign: Callable[..., list[np.ndarray]]
    column: Literal["y", "silo", "order"] = "y"
    effect: Effect | None = None
    shares: Callable[..., np.ndarray] | None = None
    layout: Literal["horizontal", "vertical"] = "horizontal"
    by_class: bool = False
    classes_exact: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Return the scheme's options with their defaults; every scheme has `min_examples`."""
        own = keywords(self.assign) | (keywords(self.effect.apply) if self.effect else {})
        return own | {"min_examples": own.get("min_examples", 1)}

    @property
    def what(self) -> str:
        """What it does, by the docstring of its effect or else of its cut."""
        return inspect.getdoc(self.effect.apply if self.effect else self.assign) or ""

    def by(self, options: Options) -> Literal["y", "silo", "order"]:
        """Return the column that is cut by."""
        return self.column

    @property
    def takes_order(self) -> bool:
        """Tell whether it may cut by the order of examples."""
        return self.column == "order"

    @property
    def told(self) -> dict[str, Any]:
        """Return what `federation.json` says of it beside its name and options."""
        return {}

    def exact(self, options: Options) -> bool:
        """Tell whether it promises how many classes a silo has."""
        return self.classes_exact

    def __call__(self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options) -> Cut:
        """Cut a data set into the indices of every silo's examples.

        Raises:
            InputError: there is nothing to cut by, or not enough for that many silos.
        """
        column = column_of(data, self)
        if self.column != "silo":
            check_count(data, silos, options["min_examples"])
        parts = self.assign(column, silos, rng, **chosen(self.assign, options))
        check_smallest(parts, options["min_examples"])
        return Cut(parts, numbered(self.endings(len(parts), options)) if self.effect else None)

    def prepared(self, data: Dataset, options: Options) -> Dataset:
        """Return the data set with its features, and those of its test set,
        in the dtype that the effect leaves."""
        stored = self.stored(data.features, data.classes, options)
        if isinstance(stored, dict) or (dtype := np.dtype(stored.dtype)) == data.x.dtype:
            return data
        test = (Converted(data.test[0], dtype), data.test[1]) if data.test else None
        return replace(data, x=Converted(data.x, dtype), test=test)

    def alter(self, data: Dataset, options: Options) -> Alter | None:
        """Return what happens to a silo's examples on their way into its shard,
        for data that is `prepared`."""
        if not self.endings(1, options):
            return None
        seen = data.one, data.classes, data.targets

        def alter(
            silo: int, silos: int, x: np.ndarray, y: np.ndarray, ids: np.ndarray, seed: int
        ) -> Examples:
            return self.altered(EffectPlace(silo, silos, seed, *seen), x, y, ids, options)

        return alter

    def stored(self, features: Inputs, classes: int | None, options: Options) -> Inputs:
        """Return how the features are stored for the effect; raise InputError where they do not allow it."""
        if not self.effect:
            return features
        if isinstance(features, dict):
            named = f"features are named arrays ({', '.join(features)}), and this one alters one array"
            raise InputError(f"--scheme: {named}; use iid, natural or another that alters none")
        if features.ragged:
            told = "features are of unequal lengths, and this one alters those of one length"
            raise InputError(f"--scheme: {told}; use iid, natural or another that alters none")
        return self.effect.store(features, classes, **chosen(self.effect.apply, options))

    def altered(
        self, place: EffectPlace, x: np.ndarray, y: np.ndarray, ids: np.ndarray, options: Options
    ) -> Examples:
        """Apply the effect to some of a silo's examples, x in the stored dtype."""
        return (
            self.effect.apply(place, x, y, ids, **chosen(self.effect.apply, options))
            if self.effect
            else (x, y)
        )

    def endings(self, silos: int, options: Options) -> list[str]:
        """Say what the effect does to every silo, as the end of its name;
        nothing where there is no effect."""
        if not self.effect:
            return []
        own = chosen(self.effect.apply, options)
        return [
            f", {text}" if (text := self.effect.name(silo, silos, **own)) else "" for silo in range(silos)
        ]


def numbered(endings: Sequence[str]) -> list[str]:
    """Name silos by their numbers and these endings."""
    return [f"silo {silo}{ending}" for silo, ending in enumerate(endings)]


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's keyword-only parameters with their defaults: a scheme's options."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def chosen(function: Callable[..., Any], options: Options) -> dict[str, Any]:
    """Return those of the options that a function takes."""
    return {name: options[name] for name in keywords(function) if name in options}


def column_of(data: Dataset, scheme: Scheme) -> np.ndarray:
    """Return what to cut by; raise InputError if the data has no such column, or no classes in it."""
    if scheme.by_class and not data.single and data.targets is not None:
        cuts = "and this one cuts by one class number of each example"
        raise InputError(f"--scheme: targets of {data.where} are {data.aim}, {cuts}; {WITHOUT_CLASSES}")
    column = scheme.column
    if column == "order":
        if data.order is None:
            raise InputError("--order: not given; name the column or array of numbers or dates to cut by")
        return data.order.of
    found: np.ndarray | None = getattr(data, column)
    if found is None:
        lacking = f"{data.where} has no array '{column}' to cut by (an npz file can have one)"
        raise InputError(f"--scheme: {lacking}; add it, or use another scheme, for instance iid or dirichlet")
    return found


def check_count(data: Dataset, silos: int | None, min_examples: int) -> None:
    """Refuse a wrong number of silos, or one that the examples cannot fill."""
    if silos is None or silos < 1:
        raise InputError(f"--silos: {'not' if silos is None else silos} given; it must be 1 or more")
    if len(data) < silos * min_examples:
        needed = f"{silos} silos of at least {min_examples} need {silos * min_examples}"
        raise InputError(f"--silos: {data.where} has {len(data)} examples, {needed}; ask for fewer silos")


def check_smallest(parts: Sequence[np.ndarray], min_examples: int) -> None:
    """Refuse a cut whose smallest silo is below the minimum."""
    smallest = min(range(len(parts)), key=lambda silo: len(parts[silo]))
    if len(parts[smallest]) < min_examples:
        found = f"silo {smallest} has {len(parts[smallest])} examples, {min_examples} asked"
        raise InputError(f"--min-examples: {found}; lower it, or ask for fewer silos")
