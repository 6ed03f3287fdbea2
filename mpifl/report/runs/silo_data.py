"""What the silos of a run hold, from the `federation.json` of its shard folder."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import InputError, Names
from mpifl.data.shards import FederationSpec, VerticalSpec, read_any
from mpifl.report.pages import charts
from mpifl.report.runs.runs import Summary
from mpifl.run.folder import describe, same_data

MOST_SILOS = 200
MOST_NAMED = 20
SHADES = 10


def data(summary: Summary, environment: dict[str, Any]) -> str:
    """Draw the labels or columns of every silo, or say why not: the folder cannot be read here, or holds
    others now."""
    if "shards" not in summary.job:
        return ""
    try:
        folder, spec = read_shards(str(summary.job["shards"]), environment)
    except InputError as error:
        return charts.titled("The data", f"Not shown: {error}")
    if not same_data(summary.data, describe(spec)):
        why = f"the shards at {folder} are not those that it was trained on"
        return charts.titled("The data", f"Not shown: {why}")
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


def _drawn_columns(spec: VerticalSpec) -> str:
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
    body = f'<div class="plot heat">{_bars(sizes, "Columns")}{_below(len(sizes))}</div>'
    return charts.figure("The data: columns of every silo", note, body, wide=True)


def _bars(sizes: Sequence[int], what: str) -> str:
    return (
        f'<div class="ticks y"><span style="top:6px">{max(sizes):,}</span></div>'
        f'<svg class="low" viewBox="0 0 {len(sizes)} 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{what} of every silo"><path d="{_columns(sizes)}"/></svg>'
    )


def _below(silos: int) -> str:
    return charts.below(charts.Scale(-0.5, silos - 0.5), "silo")


def _drawn(spec: FederationSpec) -> str:
    counts = np.array([entry.labels for entry in spec.silos], dtype=float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    sizes = np.array([entry.examples["train"] for entry in spec.silos])
    keys = {key: f"{key} " if key != "name" else "" for key in spec.scheme}
    scheme = ", ".join(f"{keys[key]}{value}" for key, value in spec.scheme.items())
    note = f"{spec.name}: {len(sizes):,} silos, {sizes.sum():,} training examples; scheme {scheme}."
    if len(sizes) > MOST_SILOS:
        parts = np.array_split(np.arange(len(sizes)), MOST_SILOS)
        shares, sizes = (np.array([each[part].mean(axis=0) for part in parts]) for each in (shares, sizes))
        note += f" Each of the {MOST_SILOS} columns is the mean of neighbouring silos."
    called = Names([entry.name for entry in spec.silos])
    if called.told and len(sizes) <= MOST_NAMED:
        note += f" From the left: {', '.join(called[silo] for silo in range(len(sizes)))}."
    if spec.classes is None:  # values, of which federation.json counts nothing
        return charts.titled("The data", note)
    names = spec.class_names or [str(label) for label in range(spec.classes)]
    return heat(shares.tolist(), names, [round(size) for size in sizes.tolist()], note)


def heat(shares: Sequence[Sequence[float]], names: Sequence[str], sizes: Sequence[int], note: str) -> str:
    """Draw each silo's examples as a bar, and below it its share of each label, the first label lowest.

    Args:
        shares: [silos, labels], each silo's adding up to 1.
        names: Of the labels.
        sizes: The silos' examples.
        note: What stands above.
    """
    most = max(max(of_silo) for of_silo in shares) or 1.0
    ramp = "".join(f'<i style="opacity:{shade / SHADES:g}"></i>' for shade in range(SHADES + 1))
    body = (
        f'<div class="plot heat">{_bars(sizes, "Training examples")}'
        f"{_labels(shares, names, most)}{_below(len(shares))}</div>"
        f'<div class="key"><span>0 %<span class="ramp">{ramp}</span>{most:.0%} '
        "of a silo’s examples</span></div>"
    )
    return charts.figure("The data: examples and labels of every silo", note, body, wide=True)


def _columns(sizes: Sequence[int]) -> str:
    tops = [100 - 100 * size / max(sizes) for size in sizes]
    return "".join(f"M{silo + 0.1:g} 100V{top:.1f}h0.8V100z" for silo, top in enumerate(tops))


def _labels(shares: Sequence[Sequence[float]], names: Sequence[str], most: float) -> str:
    """Draw the share of each label in every silo, in shades up to the largest share."""
    many = len(names)
    height = max(min(16 * many, 420), 48)
    step = -(-many // (height // 14))
    beside = "".join(
        f'<span style="top:{100 * (many - label - 0.5) / many:.2f}%">{escape(names[label][:8])}</span>'
        for label in range(0, many, step)
    )
    return (
        f'<div class="ticks y">{beside}</div><svg style="height:{height}px;margin-top:6px" '
        f'viewBox="0 0 {len(shares)} {many}" preserveAspectRatio="none" role="img" '
        f'aria-label="The share of each label in every silo">{_cells(shares, most)}</svg>'
    )


def _cells(shares: Sequence[Sequence[float]], most: float) -> str:
    shades = [""] * (SHADES + 1)
    for silo, of_silo in enumerate(shares):
        for label, share in enumerate(of_silo, 1):
            shades[math.ceil(SHADES * share / most - 1e-9)] += f"M{silo} {len(of_silo) - label}h1v1h-1z"
    drawn = [(shade, path) for shade, path in enumerate(shades) if shade and path]
    return "".join(f'<path fill-opacity="{shade / SHADES:g}" d="{path}"/>' for shade, path in drawn)
