"""What the silos of a run hold, from the `federation.json` of its shard folder."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import InputError, Names, ShardError
from mpifl.common.pages import BLUES, Fold, Said, across, charts, heat, ramp
from mpifl.data.shards import (
    FederationSpec,
    ShardEntry,
    VerticalSpec,
    encoding_of,
    group_note,
    held_out,
    labels_of,
    read_any,
)
from mpifl.learning.metrics import MetricInfo
from mpifl.report.runs import chance
from mpifl.report.runs.run_summary import Summary
from mpifl.run.folder import describe, same_data

FEWEST_EVENTS = 10
"""Rows of the rarer of two classes below which a difference, its interval and its p say little."""
MOST_SILOS = 200
MOST_NAMED = 20
Told = FederationSpec | VerticalSpec | str | None
"""What a shard folder says of itself, or why that cannot be told."""


OF_GROUPS = "intervals take rows as independent; rows of one group are not, so these may be too narrow"


def of_groups(entries: Iterable[ShardEntry | None]) -> str:
    """Return what is to be said against intervals of held-out rows; "" where no group has several of them."""
    shared = (
        entry.examples.get(split, 0) > count
        for entry in entries if entry
        for split, count in (entry.groups or {}).items() if split != "train"
    )  # fmt: skip
    return OF_GROUPS if any(shared) else ""


def doubts(spec: Told) -> str:
    """Return what is to be said against intervals of what a shard folder holds out; "" if nothing is."""
    return of_groups([*spec.silos, spec.test]) if isinstance(spec, FederationSpec) else ""


def fit_doubt(spec: Told) -> str:
    """Return what is to be said against errors of a fit to the training rows of a shard folder; "" where no
    group has several of them."""
    silos = spec.silos if isinstance(spec, FederationSpec) else ()
    shared = any(
        entry.examples["train"] > (entry.groups or {}).get("train", entry.examples["train"])
        for entry in silos
    )
    return f"errors, p and {OF_GROUPS}" if shared else ""


@dataclass(frozen=True)
class Held:
    """How many examples a silo trains on, how many it holds out, and how many of these each class has, where
    they can be counted here."""

    train: int
    out: int
    labels: Mapping[int, int] = field(default_factory=dict)
    reach: tuple[float, float] | None = None
    """The 95 % interval of a metric that is no share of right answers, where scores tell it."""
    counted: int | None = None
    """How many of those held out the main metric counts, where it leaves out some and scores tell it."""

    @property
    def events(self) -> int | None:
        """How many of those held out have the rarer class; None where they are not of two classes."""
        return min(self.labels.values()) if len(self.labels) == 2 else None

    @property
    def commonest(self) -> float | None:
        """The share of the commonest class in what it holds out: the accuracy of always that answer."""
        return max(self.labels.values()) / sum(self.labels.values()) if self.labels else None

    def interval(self, value: float, metric: MetricInfo) -> tuple[float, float] | None:
        """Return the 95 % interval of a score on what it holds out, if it is known."""
        return chance.interval(value, self.out) if self.out and chance.counts(metric) else self.reach

    def words(self) -> str:
        """Say how many these are."""
        return f"{self.train:,} training examples, {self.out:,} held out"


def rests_on(events: int | None) -> str:
    """Say on how few rows of the rarer class a difference rests; "" where they are enough, or not known."""
    if not events or events >= FEWEST_EVENTS:
        return ""
    return f"rests on {events:,} row{'s' * (events > 1)} of the rarer class"


def one_class(told: Mapping[str, Any], of: Held | None) -> bool:
    """Return whether the scored rows of a silo are known to have one class: they were counted, or its AUROC
    is undefined."""
    return ("auroc" in told and told["auroc"] is None) or (of is not None and of.commonest == 1.0)


def alike_told(names: Sequence[str], metric: MetricInfo, others: Sequence[tuple[float, int]] = ()) -> str:
    """Say of silos whose rows have one class whether a metric counts them; "" of none.

    Args:
        names: These silos.
        others: Value and rows of every other silo, where known: what the metric is without them.
    """
    if not names:
        return ""
    said = f"The rows of {Names().listed(names, MOST_NAMED)} have one class."
    if not chance.counts(metric):
        undefined = " AUROC is undefined there, so figures over silos leave them out."
        return said + undefined * (metric.name == "auroc")
    said += f" {metric.title} counts them, although one answer is always right there"
    rows = sum(many for _, many in others)
    share = sum(value * many for value, many in others) / rows if rows else None
    more = "" if share is None else f"; on the other silos' {rows:,} rows it is {metric.write(share)}"
    return f"{said}{more}."


def rows_left_out(spec: object) -> list[str]:
    """Say how many rows the partition has left out, and at which silos, if it has recorded any."""
    found = getattr(spec, "source", {}).get("dropped")
    if not isinstance(found, Mapping) or not {"rows", "of"} <= found.keys() or not found["rows"]:
        return []
    silos = found.get("silos")
    each = [f"{name} {many}" for name, many in silos.items()] if isinstance(silos, Mapping) else []
    where = f": {', '.join(each[:MOST_NAMED])}{', ...' * (len(each) > MOST_NAMED)}" if each else ""
    return [f"The partition left out {found['rows']} of {found['of']} rows, which lack values{where}."]


def as_counted(summary: Summary, held: Mapping[str, Held]) -> Summary:
    """Return a run as it is told where the scored rows of silos could be counted: what guessing gives is of
    these rows, for models of the silos' own each by its silo's. Where nothing was scored, no time went to
    that."""
    records = [*summary.records]
    if not summary.of_silos.get("silos") and summary.judged_by is None:
        records = [{key: of for key, of in one.items() if key != "seconds_evaluation"} for one in records]
    sets = [Counter(of.labels) for of in held.values() if of.labels]
    sets = sets if summary.own_models else [sum(sets, Counter[int]())]
    rows = sum(of.total() for of in sets)
    share = sum(max(of.values()) for of in sets) / rows if rows else None
    found = replace(summary, records=records, commonest=share)
    remarks = [one for one in summary.remarks if not one.startswith(chance.NO_BETTER)]
    remarks += [one for one in chance.unlearnt(found) if one.startswith(chance.NO_BETTER)]
    return replace(found, remarks=tuple(remarks))


def trained_on(summary: Summary, environment: Mapping[str, Any]) -> Told:
    """Return what a run's shard folder says of itself, or why that is not told: it cannot be read here, or
    holds others now, or the run is a table whose noise hides such counts."""
    if "shards" not in summary.job:
        return None
    if "noised" in summary.records[-1]:
        return "Not shown: the table has noise, which hides counts of rows and labels"
    try:
        folder, spec = read_shards(str(summary.job["shards"]), environment)
    except InputError as error:
        return f"Not shown: {error}"
    if not same_data(summary.data, describe(spec)):
        return f"Not shown: the shards at {folder} are not those that it was trained on"
    return spec


def groups_told(summary: Summary, environment: Mapping[str, Any], spec: Told) -> str:
    """Return what an epsilon of one example is to groups of these examples; see `group_note`."""
    if "privacy" not in summary.job or spec is None or isinstance(spec, str):
        return ""
    return group_note(read_shards(str(summary.job["shards"]), environment)[0], spec)


def examples(summary: Summary, spec: Told, names: Names, ran: Mapping[str, Any]) -> dict[str, Held]:
    """Return what each silo holds, by its name, as far as that is known."""
    if not isinstance(spec, FederationSpec):
        return {}
    given = summary.job.get("evaluate", {}).get("split") if summary.of_silos is not summary.at_end else None
    folder, found = read_shards(str(summary.job["shards"]), ran)[0], {}
    for entry in spec.silos:
        split = given or held_out(entry.examples) or ""
        many, labels = entry.examples.get(split, 0), Counter[int]()
        if entry.labels and many:
            with contextlib.suppress(ShardError):  # it lies elsewhere
                labels.update(labels_of(folder, entry, split).tolist())
        found[names[entry.silo or 0]] = Held(entry.examples["train"], many, labels)
    return found


def judging(summary: Summary, spec: Told, held: Mapping[str, Held]) -> int:
    """Return on how many rows the main metric of a run was scored, 0 where that is not known."""
    if summary.main is None or summary.main[0] != summary.metric.test:
        return sum(of.out for of in held.values())
    return rows_in(spec, server=True)


def rows_of_rounds(summary: Summary, spec: Told) -> int:
    """Return on how many rows a round of a run is judged, 0 where that is not known."""
    split = summary.job.get("evaluate", {}).get("split")
    return rows_in(spec, summary.judged_by == summary.metric.test, split)


def rows_in(spec: Told, server: bool, split: str | None = None) -> int:
    """Return how many rows the server's test set has, or a split of all silos, by default what they hold out;
    0 where that is not known."""
    if isinstance(spec, VerticalSpec):
        return spec.rows.get(split or "test", 0)
    if not isinstance(spec, FederationSpec):
        return 0
    if server:
        return spec.test.examples.get("test", 0) if spec.test is not None else 0
    return sum(one.examples.get(split or held_out(one.examples) or "", 0) for one in spec.silos)


def data(spec: Told) -> Fold | None:
    """Draw the labels or columns of every silo, or say why not."""
    if spec is None or isinstance(spec, str):
        return Fold("The data", [Said(spec)]) if spec else None
    return _drawn_columns(spec) if isinstance(spec, VerticalSpec) else _drawn(spec)


def read_shards(shards: str, environment: Mapping[str, Any]) -> tuple[Path, FederationSpec | VerticalSpec]:
    """Return a run's shard folder, as seen from where it was started or else from here, and what it holds.

    Raises:
        InputError: it can be read from neither.
    """
    started = Path(environment.get("directory", ".")) / shards
    try:
        return started, read_any(started)
    except InputError:
        with contextlib.suppress(OSError):  # a name that is too long
            if Path(shards, "federation.json").exists():
                return Path(shards), read_any(Path(shards))
        raise


def _drawn_columns(spec: VerticalSpec) -> Fold:
    """Draw how many columns every silo has, and say who holds the targets."""
    sizes = [len(entry.columns) for entry in spec.silos]
    holder = Names([entry.name for entry in spec.silos])[spec.holder]
    names = spec.class_names or [str(label) for label in range(spec.classes or 0)]
    counts = zip(names, spec.silos[spec.holder].labels or (), strict=False)
    told = ", ".join(f"{name}: {count:,}" for name, count in counts) if len(names) <= MOST_NAMED else ""
    note = (
        f"{spec.name}: {len(sizes):,} silos with {sum(sizes):,} columns of the same {spec.rows['train']:,} "
    )
    note += f"training rows; silo {holder} holds the targets{told and f' ({told})'}."
    drawn = charts.columns(sizes, "Columns", max(sizes), names=called([entry.name for entry in spec.silos]))
    return Fold("The data: columns of every silo", [Said(note), drawn])


def called(names: Sequence[str]) -> list[str]:
    """Return what silos are called, if any has a name that says more than its number; else nothing."""
    found = Names(names)
    return [found[silo] for silo in range(len(names))] if found.told else []


def _drawn(spec: FederationSpec) -> Fold:
    """Draw each silo's examples as a bar, and below it its share of each label, the first label lowest."""
    counts = np.array([entry.labels for entry in spec.silos], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    sizes = np.array([entry.examples["train"] for entry in spec.silos])
    keys = {key: f"{key} " if key != "name" else "" for key in spec.scheme}
    scheme = ", ".join(f"{keys[key]}{value}" for key, value in spec.scheme.items() if value != "")
    many = f"{len(sizes):,} silo{'s' * (len(sizes) > 1)}"
    note = f"{spec.name}: {many}, {sizes.sum():,} training examples; scheme {scheme}."
    if len(sizes) > MOST_SILOS:
        parts = np.array_split(np.arange(len(sizes)), MOST_SILOS)
        shares, sizes = (np.array([each[part].mean(axis=0) for part in parts]) for each in (shares, sizes))
        note += f" Each of the {MOST_SILOS} columns is the mean of neighbouring silos."
    beside = called([entry.name for entry in spec.silos]) if len(sizes) == len(spec.silos) else []
    below = across(beside)
    if len(below) < len(beside) <= MOST_NAMED or any(one.spare for one in below):  # on a phone, at least
        note += f" From the left: {', '.join(beside)}."
    if spec.classes is None:  # values, of which federation.json counts nothing
        return Fold("The data", [Said(note)])
    if (encoding_of(spec.source) or {}).get("kind") == "tokens":
        return _of_tokens(note, sizes, counts, beside)
    note += " Bars are training examples, colours are shares of each label."
    names = [name[:8] for name in spec.class_names or map(str, range(spec.classes))][::-1]
    most = float(shares.max()) or 1.0
    drawn = [
        charts.columns(
            list(map(round, sizes.tolist())), "Training examples", max(sizes.max(), 1), names=beside
        ),
        heat(shares.T[::-1] / most, BLUES, "The share of each label in every silo", names, along=beside),
        ramp("0 %", BLUES, f"{most:.0%} of a silo’s examples"),
    ]
    return Fold("The data: examples and labels of every silo", [Said(note), *drawn])


def _of_tokens(note: str, sizes: np.ndarray, counts: np.ndarray, names: Sequence[str]) -> Fold:
    """Draw each silo's sequences, and how many tokens they have; which tokens these are says little."""
    tokens = np.array([part.sum(axis=1).mean() for part in np.array_split(counts, len(sizes))])
    note = note.replace("training examples", "training sequences")
    note += f" They have {int(counts.sum()):,} tokens of {counts.shape[1]:,}, without padding."
    drawn = [
        charts.columns(list(map(round, of.tolist())), title, max(of.max(), 1), names=names)
        for title, of in (("Training sequences", sizes), ("Training tokens", tokens))
    ]
    return Fold("The data: sequences and tokens of every silo", [Said(note), *drawn])
