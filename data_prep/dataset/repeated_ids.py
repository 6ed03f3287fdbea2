"""Ids in two splits of shards that say nothing of groups, as those of persons with several rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mpifl.data.shards import FederationSpec, ShardEntry, provenance_of, texts_of

TRAINED = ("train", "public")
"""Splits that are trained on; the others are held out."""


def ids_told(folder: Path, spec: FederationSpec) -> list[str]:
    """Return a line if ids are both trained on and held out: figures of held-out rows are then too good.

    Sites that imported their own data may give equal ids to different persons, so each shard is looked at by
    itself there.

    Raises:
        ShardError: a shard cannot be read.
    """
    entries = [one for one in (*spec.silos, spec.test, spec.public) if one and one.groups is None]
    apart = spec.scheme.get("name") == "import"
    counts = np.zeros(2, np.int64)
    for some in [[one] for one in entries] if apart else [entries]:
        counts += _counted(folder, some)
    both, held = counts.tolist()
    if not both:
        return []
    what = f"{both:,} of {held:,} ids of held-out rows are also trained on"
    return [f"{what}; if an id is a person's, keep its rows together: --group, or group in the table's spec"]


def share_ids(folder: Path, entries: Sequence[ShardEntry]) -> bool:
    """Tell whether an id is trained on in one of some shards, and held out in one.

    Raises:
        ShardError: a shard cannot be read.
    """
    return _counted(folder, entries)[0] > 0


def _counted(folder: Path, entries: Sequence[ShardEntry]) -> tuple[int, int]:
    """Return how many held-out ids are also trained on, and how many there are."""
    found: dict[bool, list[np.ndarray]] = {True: [np.zeros(0, "U1")], False: [np.zeros(0, "U1")]}
    for entry in entries:
        for split, given in provenance_of(folder, entry).items():
            if given.ids is not None:
                found[split in TRAINED].append(texts_of(given.ids))
    trained, held = (np.unique(np.concatenate(found[of])) for of in (True, False))
    return len(np.intersect1d(trained, held)), len(held)
