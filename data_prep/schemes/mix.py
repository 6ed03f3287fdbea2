"""The scheme that is made of others: who sees which labels, how many, and how."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from data_prep.dataset import Cut, Dataset
from data_prep.schemes.grouping import DRAWS, deal, out_of_reach, sorted_by_label, whole
from data_prep.schemes.scheme import (
    EffectPlace,
    Examples,
    Options,
    Scheme,
    check_count,
    chosen,
    column_of,
    numbered,
)
from data_prep.schemes.scheme_registry import PLAIN
from mpifl.common import InputError, did_you_mean
from mpifl.data import Inputs

EXAMPLE = "dirichlet alpha=0.5 + quantity alpha=2 + feature-noise sigma=0.1"


@dataclass(frozen=True)
class MixPart:
    """One of the schemes of a mix, with all its options."""

    name: str
    scheme: Scheme
    options: Options

    @property
    def role(self) -> str:
        """Say what it decides: labels, sizes, or an effect."""
        return "effect" if self.scheme.effect else "sizes" if self.scheme.shares else "labels"


@dataclass(frozen=True)
class Mix(Scheme):
    """Cut by at most one scheme of labels and one of sizes, and let any number of effects follow in their
    order.

    The scheme of labels gives silo k n_ck examples of class c, and the one of sizes gives it a share q_k.
    Then silo k gets the part n_ck q_k / sum_j n_cj q_j of class c. So a class that a silo did not have stays
    away, and where labels are spread alike the sizes are q.
    """

    @property
    def options(self) -> dict[str, Any]:
        """Return the scheme's options with their defaults."""
        return {"mix": EXAMPLE, "min_examples": 1}

    @property
    def what(self) -> str:
        """What it does."""
        return inspect.getdoc(type(self)) or ""

    def by(self, options: Options) -> Literal["y", "silo", "order"]:
        """Return the column that its scheme of labels cuts by."""
        return next(
            (part.scheme.column for part in parse(options["mix"]) if part.role == "labels"), self.column
        )

    def exact(self, options: Options) -> bool:
        """Tell whether its scheme of labels promises how many classes a silo has."""
        return any(part.scheme.classes_exact for part in parse(options["mix"]))

    def __call__(self, data: Dataset, silos: int | None, rng: np.random.Generator, options: Options) -> Cut:
        """Cut a data set, in up to 100 draws until every silo has the minimum."""
        parts, least = parse(options["mix"]), options["min_examples"]
        labels = next((part for part in parts if part.role == "labels"), MixPart("iid", PLAIN["iid"], {}))
        column = column_of(data, labels.scheme)
        if labels.scheme.column != "silo":
            check_count(data, silos, least)
        best = 0
        for _ in range(DRAWS):
            cut = labels.scheme.assign(column, silos, rng, **chosen(labels.scheme.assign, labels.options))
            for part in parts:
                cut = _resized(data, cut, part, rng) if part.role == "sizes" else cut
            best = max(best, smallest := min(map(len, cut)))
            if smallest >= least:
                natural = labels.scheme.column == "silo"
                return Cut(
                    cut, None if natural else numbered(self.endings(len(cut), options) or [""] * len(cut))
                )
        raise out_of_reach("--mix", best, least)

    def stored(self, features: Inputs, classes: int | None, options: Options) -> Inputs:
        """Return how the features are stored for all effects."""
        for part in parse(options["mix"]):
            features = part.scheme.stored(features, classes, part.options)
        return features

    def altered(
        self, place: EffectPlace, x: np.ndarray, y: np.ndarray, ids: np.ndarray, options: Options
    ) -> Examples:
        """Let the effects follow one another."""
        for part in parse(options["mix"]):
            x, y = part.scheme.altered(place, x, y, ids, part.options)
        return x, y

    def endings(self, silos: int, options: Options) -> list[str]:
        """Say what all effects do to every silo; nothing where there are none."""
        parts = [part for part in parse(options["mix"]) if part.role == "effect"]
        each = zip(*(part.scheme.endings(silos, part.options) for part in parts), strict=True)
        return ["".join(endings) for endings in each]


def parse(text: str) -> list[MixPart]:
    """Read 'dirichlet alpha=0.5 + feature-noise sigma=0.1' into schemes and all their options."""
    parts = [_part(words.split()) for words in text.split("+")]
    for role in ("labels", "sizes"):
        if len(names := [part.name for part in parts if part.role == role]) > 1:
            raise InputError(f"--mix: {' and '.join(names)} are both schemes of {role}; use one of them")
    if {"natural"} < {part.name for part in parts if part.role != "effect"}:
        raise InputError("--mix: natural silos have their own sizes; leave the scheme of sizes out")
    return parts


def _part(words: list[str]) -> MixPart:
    name, *given = words or [""]
    if name not in PLAIN:
        raise InputError(
            f"--mix: '{name}' is not a scheme; write for instance '{EXAMPLE}', of {', '.join(PLAIN)}"
        )
    scheme = PLAIN[name]
    # the minimum is the mix's own: with one of its own, a part would draw until its sizes suit, which change
    # yet
    options = scheme.options | {"min_examples": 0}
    for word in given:
        option, _, value = word.partition("=")
        option = option.replace("-", "_")
        if option not in options or option == "min_examples":
            takes = (
                ", ".join(f"{key.replace('_', '-')}=" for key in options if key != "min_examples")
                or "no options"
            )
            raise InputError(
                f"--mix: {name} has no '{word}'; {did_you_mean(option, options)}it takes {takes}"
            )
        options[option] = _read(name, word, value, type(options[option]))
    return MixPart(name, scheme, options)


def _read(name: str, word: str, value: str, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InputError(f"--mix: {name} {word}: '{value}' is not of type {kind.__name__}") from None


def _resized(
    data: Dataset, cut: list[np.ndarray], sizes: MixPart, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return a cut in which the silos' parts of every class are weighed by their shares of all examples."""
    assert sizes.scheme.shares is not None
    shares = sizes.scheme.shares(len(cut), rng, **chosen(sizes.scheme.shares, sizes.options))
    single = data.y if data.single else np.zeros(len(data), dtype=np.int64)
    counts = np.stack([np.bincount(single[part], minlength=single.max() + 1) for part in cut], axis=1)
    weights = counts * shares
    lost = weights.sum(axis=1, keepdims=True) == 0  # a class whose owners' shares are all rounded to 0
    weights = np.where(lost, counts, weights)
    within = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    dealt = np.zeros_like(counts)
    for given, share, size in zip(dealt, within, counts.sum(axis=1), strict=True):
        owners = share > 0  # alone: shares may add up to less than 1, and the last silo gets what is left
        given[owners] = whole(share[None, owners], np.array([size]))[0] if size else 0
    return deal(sorted_by_label(single, rng), dealt)
