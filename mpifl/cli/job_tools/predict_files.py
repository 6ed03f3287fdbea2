"""`mpifl predict` of a table, a folder of images, or arrays that were never cut into shards."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import InputError, one_line
from mpifl.data import Array, Features
from mpifl.data.shards import (
    SPLITS,
    FederationSpec,
    Provenance,
    by_path,
    encoding_of,
    open_shard,
    unlike_readings,
)
from mpifl.report.judging import (
    MaskFiles,
    PredictedShards,
    Which,
    check_asked,
    columns_seen,
    learned_from,
    predict_pieces,
    predict_run,
    shards_at,
)

MOST_NAMED = 4
"""Differences between sites in a line."""
Seen = dict[int, tuple[str, float, float]]
"""By place among features, the name, mean and deviation of a column in the training."""
CUT_ANEW = "Cut its data with the unit of the training, of a table by factor in its spec"
"""What to do where shards have a column in another unit."""
PIECE = 1 << 16
"""Rows of shards that are read at a time."""
Pieces = Iterator[tuple[Array, Provenance]]
MADE_BY = {
    "table": "a table of a csv or parquet source",
    "images": "images",
    "volumes": "NIfTI volumes",
    "arrays": "arrays that data-prep standardised",
}


@dataclass(frozen=True)
class Predicting:
    """What new examples are predicted by.

    Attributes:
        run: The run folder.
        out: The file, `.parquet`, `.csv` or `.npz`.
        trusted: The plug-ins that the run's job may import.
        last: Take the model of the last round, or a silo's own.
        masks: Takes the predicted masks of images.
        force: Take columns that are too far from the training.
        threshold: The probability above which the answer is yes; by default that of the job.
    """

    run: Path
    out: Path
    trusted: Collection[str] = ()
    last: Which = False
    masks: MaskFiles | None = None
    force: bool = False
    threshold: float | None = None

    def learned(self) -> FederationSpec:
        """Return what is known of the training's shards, after checks of the output."""
        check_asked(self.out, None)
        return learned_from(self.run, self.trusted, self.threshold)[1]

    def write(self, data: Path, told: Iterable[str], pieces: Pieces) -> None:
        """Write the predictions of examples from `data`, after what is told of them."""
        for line in told:
            print(one_line(line), file=sys.stderr)
        job, spec = learned_from(self.run, self.trusted, self.threshold)
        if self.masks is not None:
            self.masks.take_values(spec.source)
        predict_pieces(self.run, job, spec, pieces, self.out, data, last=self.last, masks=self.masks)


def predict_table(asked: Predicting, table: Path, own: Path | None = None) -> None:
    """Write what the model of a run says of each row of a table, in the order of the table.

    Args:
        asked: The run, and where to write.
        table: CSV, or Parquet by its ending; it needs no label, and no row is left out.
        own: The spec of the site whose table it is; names in the file, units and notation are by it.

    Raises:
        InputError: the run keeps no spec of a table, the site's own differs from it, a column is missing, a
            value cannot be encoded, or the file cannot be written.
    """
    from data_prep.tables import UnlabelledTable, kind_of

    _check_tables(table)
    learned = asked.learned()
    record = _record(asked.run, table, learned, ("table",))
    if own is None and (apart := unlike_readings(learned.source)):
        which = "name that of the site with these rows, as agreed/SITE.toml of `data-prep sites`"
        more = f" and {len(apart) - MOST_NAMED:,} more" if len(apart) > MOST_NAMED else ""
        named = f"{', '.join(apart[:MOST_NAMED])}{more}"
        what = f"sites write their tables in different ways ({named})"
        raise InputError(f"{table}: --spec is not given, and {what}; {which}")
    known: dict[str, Any] = {"seen": columns_seen(asked.run), "force": asked.force}
    given = UnlabelledTable(kind_of(table), table, record["spec"], own, **known)
    asked.write(table, given.told(), _of_table(given))


def _check_tables(given: Path) -> None:
    """Refuse a folder of images in place of a table, or of a folder of them."""
    from data_prep.sources import has_images
    from data_prep.tables import is_table

    if given.is_dir() and not any(map(is_table, given.rglob("*"))) and has_images(given):
        raise InputError(f"{given}: is a folder of images, not a table; name it by --images {given}")


def _of_table(given: Any) -> Pieces:
    """Yield the features of the rows of a table, and where they were given."""
    from mpifl.data.shards import ids_of

    for piece in given.read():
        yield piece.x, Provenance(piece.row, ids_of(piece.id) if given.has_ids else None)


def predict_images(asked: Predicting, folder: Path) -> None:
    """Write what the model of a run says of each image or volume in a folder, in the order of their paths.

    Args:
        asked: The run, and where to write.
        folder: The images, or NIfTI volumes where the training had such, in folders of it, too.

    Raises:
        InputError: the run keeps no form of images, one is of another, or the file cannot be written.
    """
    from data_prep.sources import UnlabelledImages, UnlabelledVolumes

    record = _record(asked.run, folder, asked.learned(), ("images", "volumes"))
    kind = UnlabelledVolumes if record["kind"] == "volumes" else UnlabelledImages
    given = kind(folder, record)
    if asked.masks is not None and record.get("resize"):
        asked.masks.originals = getattr(given, "original", None)
    asked.write(folder, given.told, given.read())


def predict_arrays(asked: Predicting, file: Path) -> None:
    """Write what the model of a run says of each example of a `.npz` file, in their order.

    Args:
        asked: The run, and where to write.
        file: x, or every x_NAME, with offsets where examples have unequal lengths; other arrays do not count.

    Raises:
        InputError: the arrays are not such as those of the training, or the file cannot be written.
    """
    from data_prep.sources import unlabelled_arrays

    spec = asked.learned()
    seen = _seen(asked.run, spec)
    x, told = unlabelled_arrays(file, spec.features, encoding_of(spec.source), seen, force=asked.force)
    count = len(next(iter(by_path("x", x).values())))
    asked.write(file, told, iter([(x, Provenance(np.arange(count)))]))


def predict_shards(asked: Predicting, data: Path, split: str | None = None) -> None:
    """Write what the model of a run says of each example of some shards.

    Args:
        asked: The run, and where to write.
        data: A shard folder, or one shard of it.
        split: Predict this split alone; by default all of them.

    Raises:
        InputError: as of `predict_run`, or a column is too far from that of the training.
    """
    tell_far_shards(asked.run, data, force=asked.force)
    how: dict[str, Any] = {"masks": asked.masks, "force": asked.force, "threshold": asked.threshold}
    predict_run(asked.run, data, asked.out, asked.trusted, asked.last, split=split, **how)


def tell_far_shards(run: Path, data: Path, *, force: bool = False) -> None:
    """Warn of columns of shards that lie far from those of the training, as in another unit: of those that
    shards have standardised, and of those that a regression knows.

    Args:
        data: A shard folder, or one shard of it.
        force: Take columns that are too far.

    Raises:
        InputError: there are no such shards, or a column is too far.
    """
    from data_prep.sources import far_columns

    shards = shards_at(data)
    scaled = _scaled(shards.spec)
    if not (seen := _seen(run, shards.spec) | scaled):
        return  # other features than those of the training are refused where these are read
    if said := far_columns(data, _columns_of(shards, scaled), seen, CUT_ANEW, force=force):
        print(f"warning: {one_line(f'{data}: {said}')}", file=sys.stderr)


def _scaled(spec: FederationSpec) -> Seen:
    """Return name, mean and deviation of the columns that shards have in their deviations."""
    record, form = encoding_of(spec.source) or {}, spec.features
    named = record.get("spec", {}).get("features") if record.get("kind") == "table" else None
    if not isinstance(named, dict) or not isinstance(form, Features) or len(form.shape) != 1:
        return {}
    places = {name: at for at, name in enumerate(spec.feature_names or ())}
    return {
        places[name]: (name, one["mean"], one["deviation"])
        for name, one in named.items()
        if name in places and isinstance(one, dict) and "deviation" in one and one.get("kind") != "date"
    }


def _seen(run: Path, spec: FederationSpec) -> Seen:
    """Return name, mean and deviation that columns had in a regression, by their place among features."""
    of_run, form = columns_seen(run), spec.features
    if not isinstance(form, Features) or len(form.shape) != 1:
        return {}
    names = spec.feature_names or [f"x{at}" for at in range(form.shape[0])]  # as a regression calls them
    return {names.index(name): (name, *both) for name, both in of_run.items() if name in names}


def _columns_of(shards: PredictedShards, scaled: Seen) -> Iterator[np.ndarray]:
    """Yield the columns [m, d] of all rows of some shards, so many at a time, none in its deviations."""
    factors, means = np.ones(shards.spec.single.shape), np.zeros(shards.spec.single.shape)
    for at, (_, mean, deviation) in scaled.items():
        means[at], factors[at] = mean, deviation
    for entry in shards.entries.values():
        shard = open_shard(shards.folder, entry, shards.spec)
        for split in (split for split in SPLITS if entry.examples.get(split)):
            for at in range(0, len(shard[split]), PIECE):
                yield np.asarray(shard[split][at : at + PIECE].x, np.float64) * factors + means


def _record(run: Path, data: Path, spec: FederationSpec, kinds: Collection[str]) -> dict[str, Any]:
    """Return how the training's examples became numbers."""
    record = encoding_of(spec.source)
    if record is None:
        causes = "of an older version, of another source, or of sites that read their data in different ways"
        what = f"does not say how its examples became numbers: its shards are {causes}"
        to_do = f"make arrays x of {data} as those were made, and say: mpifl predict {run} FILE.npz"
        raise InputError(f"{run}: {what}; {to_do}; or cut them by data-prep, and name shards by --data")
    if record["kind"] not in kinds:
        learned = MADE_BY.get(record["kind"], "texts")
        given = " or ".join(MADE_BY[kind] for kind in kinds)
        raise InputError(f"{run}: was trained on {learned}; {data} is {given}")
    return record
