"""Tables: CSV and Parquet, by a small TOML file that says what their columns mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.model import Dataset
from data_prep.sources.reading import needed, noted
from data_prep.sources.spool import Spool
from data_prep.tables import Columns, Encoder, TableSpec, check_label, ordered, read_spec, survey
from mpifl.common import InputError


def read_table(kind: str, data: Path | None, seed: int, *, spec: str = "", test: str = "") -> Dataset:
    """Read a `csv` or `parquet` table piece by piece; features become float32 [n, d].

    `spec` is the TOML file; the table's name with the ending .toml unless given. `test` is another table with
    the same columns, the server's test set. Levels, classes and statistics come from the first one alone,
    from all its rows. What silos hold out of it later has a part in them.
    """
    path = needed(kind, data, f"patients.{kind}")
    files: dict[str, str] = {}
    spec_path = Path(spec) if spec else path.with_suffix(".toml")
    wanted = read_spec(spec_path)
    check_label(spec_path, wanted)
    noted(spec_path, files)
    return table_dataset(kind, path, Path(test) if test else None, wanted, files)


@dataclass(frozen=True)
class Table:
    """A table with a row for each id.

    Attributes:
        x: Features float32 [n, d], mapped.
        y: Targets [n, ...]; [n, 0] without a label.
        ids: One for each row, None where it is missing.
        columns: What it is made of.
    """

    x: np.ndarray
    y: np.ndarray
    ids: list[str | None]
    columns: Columns


def identified_table(path: Path, spec: TableSpec) -> Table:
    """Read a table, Parquet by its ending or else CSV, whose spec names a column of ids."""
    encoder = Encoder("parquet" if path.suffix == ".parquet" else "csv", path, spec)
    x, y, ids = Spool(), list[np.ndarray](), list[str | None]()
    for piece in encoder.read(path):
        x.append(piece.x)
        y.append(piece.y)
        ids += piece.id
    if not ids:
        raise InputError(
            f"{path}: has no rows without a missing value; look at 'missing' in the table's spec"
        )
    spec.label.check_whole(str(path), together := np.concatenate(y))
    return Table(x.rows(), together, ids, encoder.columns)


def write_statistics(kind: str, data: Path, spec: Path | None, out: Path) -> None:
    """Write the counts, sums and sums of squares of a table's numeric columns:
    what a silo may share; as JSON."""
    if kind not in ("csv", "parquet"):
        raise InputError(f"SOURCE: '{kind}' given; statistics are those of a csv or parquet table")
    moments = survey(kind, data, read_spec(spec or data.with_suffix(".toml"))).moments
    try:
        moments.write(out)
    except OSError as error:
        raise InputError(f"--out: {out} cannot be written ({error.strerror}); name another") from None


def table_dataset(
    kind: str, path: Path, test: Path | None, spec: TableSpec, files: dict[str, str]
) -> Dataset:
    """Encode a table and, where there is one, that of the server's test set; note their sha256 in `files`."""
    encoder = Encoder(kind, noted(path, files), spec)
    columns = encoder.columns
    for statistics in spec.statistics:
        noted(statistics, files)
    x, y, silos = _read(encoder, path)
    held = _read(encoder, noted(test, files))[:2] if test else None
    numbers, names = silos.numbered() if spec.silo else (None, None)
    return Dataset(
        where=str(path),
        x=x,
        y=y,
        classes=None if columns.class_names is None else len(columns.class_names),
        files=files,
        test=held,
        silo=numbers,
        silo_names=names,
        class_names=columns.class_names,
        feature_names=columns.feature_names,
        targets=spec.label.targets,
    )


def _read(encoder: Encoder, path: Path) -> tuple[np.ndarray, np.ndarray, Silos]:
    x, y, silos = Spool(), list[np.ndarray](), Silos()
    for piece in encoder.read(path):
        x.append(piece.x)
        y.append(piece.y)
        silos.append(piece.silo)
    rows = x.rows()
    if not len(rows):
        raise InputError(
            f"{path}: has no rows without a missing value; look at 'missing' in the table's spec"
        )
    encoder.spec.label.check_whole(str(path), together := np.concatenate(y))
    return rows, together, silos


class Silos:
    """The silo of every row, as numbers from the start: names would fill the memory."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._codes: list[np.ndarray] = []

    def append(self, names: list[str]) -> None:
        """Add the silos of some rows."""
        self._codes.append(
            np.array([self._seen.setdefault(name, len(self._seen)) for name in names], np.int64)
        )

    def numbered(self) -> tuple[np.ndarray, dict[int, str]]:
        """Return the silos' numbers [n], in the order of their names, and these."""
        names = ordered(set(self._seen))
        number_of = {name: number for number, name in enumerate(names)}
        renumbered = np.array([number_of[name] for name in self._seen], np.int64)
        return renumbered[np.concatenate(self._codes)], dict(enumerate(names))
