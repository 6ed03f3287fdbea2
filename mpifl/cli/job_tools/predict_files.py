"""`mpifl predict` of a table or a folder of images that was never cut into shards."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mpifl.common import InputError, one_line
from mpifl.data.shards import FederationSpec, Provenance, encoding_of
from mpifl.report.judging import check_asked, learned_from, predict_pieces

Pieces = Iterator[tuple[np.ndarray, Provenance]]
MADE_BY = {"table": "a table of a csv or parquet source", "images": "images"}


def predict_table(
    run: Path,
    table: Path,
    out: Path,
    trusted: Collection[str] = (),
    last: bool = False,
    own: Path | None = None,
) -> None:
    """Write what the model of a run says of each row of a table, in the order of the table.

    Args:
        run: The run folder.
        table: CSV, or Parquet by its ending; it needs no label, and no row is left out.
        out: The file, `.parquet`, `.csv` or `.npz`.
        trusted: The plug-ins that the run's job may import.
        last: Take the model of the last round.
        own: The spec of the site whose table it is; names in the file, units and notation are by it.

    Raises:
        InputError: the run keeps no spec of a table, the site's own differs from it, a column is missing, a
            value cannot be encoded, or the file cannot be written.
    """
    from data_prep.tables import UnlabelledTable, kind_of

    _check_tables(table)

    def rows(record: dict[str, Any]) -> tuple[Iterable[str], Pieces]:
        given = UnlabelledTable(kind_of(table), table, record["spec"], own)
        return given.told(), _of_table(given)

    _predict(run, table, out, trusted, last, kind="table", made=rows)


def _check_tables(given: Path) -> None:
    """Refuse a folder of images in place of a table, or of a folder of them."""
    from data_prep.sources import has_images
    from data_prep.tables import is_table

    if given.is_dir() and not any(map(is_table, given.rglob("*"))) and has_images(given):
        raise InputError(f"{given}: is a folder of images, and no table; name it by --images {given}")


def _of_table(given: Any) -> Pieces:
    """Yield the features of the rows of a table, and where they were given."""
    from mpifl.data.shards import ids_of

    for piece in given.read():
        yield piece.x, Provenance(piece.row, ids_of(piece.id) if given.has_ids else None)


def predict_images(
    run: Path, folder: Path, out: Path, trusted: Collection[str] = (), last: bool = False
) -> None:
    """Write what the model of a run says of each image in a folder, in the order of their paths.

    Args:
        run: The run folder.
        folder: The images, in folders of it, too.
        out: The file, `.parquet`, `.csv` or `.npz`.
        trusted: The plug-ins that the run's job may import.
        last: Take the model of the last round.

    Raises:
        InputError: the run keeps no form of images, one is of another, or the file cannot be written.
    """
    from data_prep.sources import UnlabelledImages

    def rows(record: dict[str, Any]) -> tuple[Iterable[str], Pieces]:
        given = UnlabelledImages(folder, record)
        return given.told, given.read()

    _predict(run, folder, out, trusted, last, kind="images", made=rows)


def _predict(
    run: Path, data: Path, out: Path, trusted: Collection[str], last: bool, *, kind: str, made: Any
) -> None:
    check_asked(out, None)
    job, spec = learned_from(run, trusted)
    told, pieces = made(_record(run, data, spec, kind))
    for line in told:
        print(one_line(line), file=sys.stderr)
    predict_pieces(run, job, spec, pieces, out, data, last=last)


def _record(run: Path, data: Path, spec: FederationSpec, kind: str) -> dict[str, Any]:
    """Return how the training's examples became numbers."""
    record = encoding_of(spec.source)
    if record is None:
        what = (
            "does not say how its examples became numbers (shards of an older version, or of another source)"
        )
        raise InputError(f"{run}: {what}; cut {data} by data-prep as those were, and name it by --data")
    if record["kind"] != kind:
        learned = MADE_BY.get(record["kind"], record["kind"])
        raise InputError(f"{run}: was trained on {learned}; {data} is {MADE_BY[kind]}")
    return record
