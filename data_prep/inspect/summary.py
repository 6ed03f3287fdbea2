"""A shard folder in figures: what its silos hold, and how much they differ in one number each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import codes_told, doubts, ids_told, odd_told, of_tokens, units_told
from data_prep.inspect.feature_moments import (
    FeatureMoments,
    feature_moments,
    feature_skew,
    target_columns,
    target_moments,
    total,
)
from data_prep.inspect.heterogeneity import heterogeneity, jensen_shannon
from mpifl.data import Features
from mpifl.data.shards import SPLITS, FederationSpec, VerticalSpec, by_path, read_federation

FEATURE_HEADS = ("feature", "mean", "deviation", "lowest at a silo", "highest at a silo")
"""The headings of a table of features that have names."""
MOST_DRAWN = 6
"""Columns of targets that have a drawing each."""


@dataclass(frozen=True)
class Measure:
    """One number of a federation: 0 where all silos are alike."""

    name: str
    text: str
    value: float
    unit: str
    most: float
    """What it cannot exceed."""
    ends: str = "0 where all are alike"
    """What a value of it means."""

    def __str__(self) -> str:
        return f"{self.value:.4f} {self.unit}".rstrip()

    @property
    def share(self) -> float:
        """Return it as a share of what it cannot exceed, from 0 to 1."""
        return min(max(self.value, 0) / self.most, 1)


@dataclass(frozen=True)
class FolderSummary:
    """What `inspect` shows of a folder.

    Attributes:
        spec: Its `federation.json`.
        counts: The training labels of every silo, int [silos, classes]; [silos, 0] where targets are values.
        moments: Those of every silo's features, if the shards were read.
        targets: Those of every silo's targets, if the shards were read and targets are values.
        looked: What the shards make doubtful, if they were read.
    """

    spec: FederationSpec
    counts: np.ndarray
    moments: list[FeatureMoments] | None = None
    targets: list[FeatureMoments] | None = None
    looked: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        """Return what is doubtful: by `federation.json`, and by the shards if they were read."""
        return [*(doubt.what for doubt in doubts(self.spec)), *self.looked]

    @property
    def splits_of_groups(self) -> list[str]:
        """Return the splits of which silos have groups."""
        return [split for split in SPLITS if any(split in (of.groups or ()) for of in self.spec.silos)]

    def groups_of(self, silo: int) -> list[str]:
        """Return of how many groups a silo's rows are, in each of these splits."""
        groups = self.spec.silos[silo].groups or {}
        return [f"{groups[split]:,}" if split in groups else "" for split in self.splits_of_groups]

    @property
    def called(self) -> list[str]:
        """Return the names of silos."""
        return [entry.name for entry in self.spec.silos]

    @property
    def labelled(self) -> bool:
        """Tell whether targets are class numbers, so that there are labels to show; next tokens are none."""
        return self.spec.classes is not None and not of_tokens(self.spec)

    def tokens_of(self, silo: int) -> list[str]:
        """Return how many tokens a silo trains on, where its examples are blocks of them; else nothing."""
        features, of = self.spec.features, self.spec.silos[silo]
        if self.labelled or self.spec.classes is None or isinstance(features, dict) or features.ragged:
            return []
        return [f"{of.examples['train'] * math.prod(features.shape):,}"] if is_tokens(features) else []

    @property
    def of_one_kind(self) -> bool:
        """Tell whether features have a mean of all together: none where they are columns with names, in units
        of their own."""
        return bool(self.moments) and not self.spec.feature_names

    def feature_rows(self) -> list[list[str]]:
        """Return name, mean, deviation, lowest and highest mean of a silo, for each feature with a name."""
        silos, names = self.moments or [], self.spec.feature_names or []
        if not silos or len(silos[0].mean) != len(names):
            return []
        pooled, means = total(silos), np.array([one.mean for one in silos])
        ends = [
            [f"{means[silo, at]:.4g} {self.called[silo]}" for at, silo in enumerate(of)]
            for of in (means.argmin(axis=0).tolist(), means.argmax(axis=0).tolist())
        ]
        figures = [[f"{one:.4g}" for one in of] for of in (pooled.mean, pooled.deviation)]
        return [list(row) for row in zip(names, *figures, *ends, strict=True)]

    def target_names(self, most: int) -> list[str]:
        """Return what is shown of targets, as headings: their columns, or all as one where they are more."""
        if not self.targets:
            return []
        names = [name for of_array in target_columns(self.spec).values() for name in of_array]
        return ["targets"] if len(names) > most else names

    def target_figures(self, silo: int, most: int) -> list[str]:
        """Return mean and deviation of a silo's targets, below each of their names."""
        if not self.targets:
            return []
        one = self.targets[silo]
        columns = list(zip(one.mean.tolist(), one.deviation.tolist(), strict=True))
        shown = [one.overall()] if len(columns) > most else columns
        return [f"{mean:.3g} ± {deviation:.2g}" for mean, deviation in shown]

    def drawn_targets(self) -> dict[str, list[FeatureMoments]]:
        """Return what is drawn of targets: each column by its name, or all as one where they are more."""
        if not self.targets:
            return {}
        names = self.target_names(MOST_DRAWN)
        if len(names) == 1:  # one column, or all of them
            return {names[0]: self.targets}
        return {name: [one.column(i) for one in self.targets] for i, name in enumerate(names)}

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of training examples of every silo."""
        return np.array([entry.examples["train"] for entry in self.spec.silos])

    @property
    def shares(self) -> np.ndarray:
        """Return the share of each label in each silo's training set [silos, classes]."""
        return np.asarray(self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1))

    @property
    def darkest(self) -> float:
        """Return the share of the darkest cell of a heat map:
        twice that of alike classes, or more where there is."""
        if not self.spec.classes:
            return 1.0
        return max(float(self.shares.max()), min(1.0, 2 / self.spec.classes))

    @property
    def divergences(self) -> np.ndarray:
        """Return every silo's Jensen-Shannon divergence to the pooled labels, in bits."""
        return jensen_shannon(self.shares, self.counts.sum(axis=0) / max(self.counts.sum(), 1))

    @property
    def measures(self) -> list[Measure]:
        """Return how much the silos differ."""
        found = heterogeneity(self.counts, self.sizes)
        pooled = "mean Jensen-Shannon divergence to the pooled labels"
        moved = "mean earth mover's (total variation) distance"
        measures = [
            Measure("Label divergence", pooled, found.jensen_shannon, "bit", 1.0),
            Measure("Label distance", moved, found.total_variation, "", 1.0),
        ]
        measures = measures if self.labelled else []
        measures.append(Measure("Size skew", "Gini coefficient of the training sets", found.gini, "", 1.0))
        if self.targets:
            text = "mean distance to the pooled targets, in their deviations"
            measures.append(Measure("Target skew", text, feature_skew(self.targets), "", 2.0))
        if self.moments:
            text = "mean distance to the pooled features, in their deviations"
            measures.append(Measure("Feature skew", text, feature_skew(self.moments), "", 2.0))
        return measures

    @property
    def title(self) -> str:
        """Say what was cut and how."""
        return title_of(self.spec)

    def label(self, number: int) -> str:
        """Return what a class is called."""
        names = self.spec.class_names
        return names[number] if names and number < len(names) else str(number)


def title_of(spec: FederationSpec | VerticalSpec) -> str:
    """Say what was cut and how, to the shards of a folder."""
    options = ", ".join(
        f"{key} {worded(value)}" for key, value in spec.scheme.items() if key != "name" and value != ""
    )
    named = by_path("x", spec.features).items()
    inputs = [
        (path[2:], one.dtype, f"{'up to ' * one.ragged}{'x'.join(map(str, one.shape))}")
        for path, one in named
    ]
    examples = ", ".join(" ".join(filter(None, told)) for told in inputs)
    classes = f"a vocabulary of {spec.classes}" if of_tokens(spec) else f"{spec.classes} classes"
    learned = f"targets {spec.aim}" if spec.classes is None else classes
    cut = f"{spec.source.get('name') or spec.name} by {spec.scheme.get('name')}"
    cut += f" ({options})" * bool(options) + f", seed {spec.seed}"
    return f"{cut}; {examples}, {learned}"


def worded(value: Any) -> str:
    """Return an option as a command takes it: Python's True is yes."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def summarise(folder: Path, *, features: bool = False) -> FolderSummary:
    """Read a folder's `federation.json`, and with `features` its shards, unless tokens are in them."""
    spec = read_federation(folder)
    moments = feature_moments(folder, spec) if features and not tokens(spec) else None
    targets = target_moments(folder, spec) if features else None
    looks = (units_told, codes_told, odd_told, ids_told) if features else ()
    looked = [told for look in looks for told in look(folder, spec)]
    return FolderSummary(spec, label_counts(spec), moments, targets, looked)


def tokens(spec: FederationSpec) -> bool:
    """Tell whether features have no means to show: tokens, which are integers without a scale, and named
    arrays."""
    return isinstance(spec.features, dict) or is_tokens(spec.features)


def is_tokens(features: Features) -> bool:
    """Tell whether features are integers without a scale."""
    return features.scale is None and not features.dtype.startswith("float")


def label_counts(spec: FederationSpec) -> np.ndarray:
    """Return the label histograms of all silos, int [silos, classes]."""
    return np.array([entry.labels for entry in spec.silos], np.int64).reshape(len(spec.silos), -1)
