"""What held-out rows of silos cannot tell: classes that they lack, and rows that are all of one class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from data_prep.dataset import Dataset
from data_prep.write import NewShard

ALIKE = "alike"
"""The note on splits whose rows are all of one class: a training tells it, too."""
BLOCK = 64
"""Examples that are looked at together."""


def with_untested(data: Dataset, shards: Sequence[NewShard]) -> Dataset:
    """Return data that notes which classes silos train on, by two examples or more, and lack in their test
    split, and which silos' held-out splits have one class alone."""
    lines = {
        "untested": _line(
            [*_untested(data, shards)],
            "and its test split has none",
            "pair of silo and class",
            "pairs of silo and class",
        ),
        ALIKE: _line([*_alike(data, shards)], "so scores on it tell nothing", "such split", "such splits"),
    }
    return data.noting(**lines)


def _line(told: Sequence[str], so: str, one: str, many: str) -> str:
    rest = len(told) - 1
    more = f"; {rest:,} more {one if rest == 1 else many}" * (rest > 0)
    return f"{told[0]}, {so}{more}" if told else ""


def _untested(data: Dataset, shards: Sequence[NewShard]) -> Iterator[str]:
    for shard in shards if data.single else ():
        of = {one.split: np.asarray(data.y[one.ids]) for one in shard.sections}
        there = zip(*np.unique(of["train"], return_counts=True), strict=True) if "test" in of else ()
        for label, count in there:
            if count > 1 and label not in of["test"]:
                yield f"{_called(shard)} has {count:,} training examples of class '{_class(data, label)}'"


def _alike(data: Dataset, shards: Sequence[NewShard]) -> Iterator[str]:
    """Find splits that are held out and of which all rows, or all pixels of masks, are of one class."""
    masks = isinstance(data.y, np.ndarray) and data.y.ndim > 2
    if not (masks and data.classes) and not (data.single and data.classes == 2):
        return  # of several classes, rows of one still tell how often it is found
    for shard in shards:
        for one in shard.sections:
            if one.split == "train" or not len(one.ids):
                continue
            if (only := _only(data.y, one.ids)) is not None:
                what = f"{one.split} {'images have masks' if masks else 'rows are'}"
                yield f"{_called(shard)}: all {len(one.ids):,} {what} of class '{_class(data, only)}'"


def _only(y: np.ndarray, ids: np.ndarray) -> int | None:
    """Return the one class of these examples; None if there are several, which is mostly seen at once."""
    first = np.asarray(y[ids[:1]]).flat[0]
    blocks = (np.asarray(y[ids[at : at + BLOCK]]) for at in range(0, len(ids), BLOCK))
    return int(first) if all((block == first).all() for block in blocks) else None


def _called(shard: NewShard) -> str:
    return shard.name if shard.name.startswith("silo ") else f"silo '{shard.name}'"


def _class(data: Dataset, label: int) -> str:
    return data.class_names[label] if data.class_names else str(label)
