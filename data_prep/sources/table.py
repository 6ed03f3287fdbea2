"""Tables: CSV and Parquet, by a small TOML file that says what their columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_prep.dataset import Dataset, Groups, Order, with_notes
from data_prep.sources.reading import needed, noted, noted_all
from data_prep.sources.spool import Spool
from data_prep.sources.standardising import StandardisedRows, Standardising
from data_prep.tables import (
    PARTED,
    Changes,
    Columns,
    Encoder,
    TableSpec,
    check_label,
    kind_of,
    learned_of_rows,
    ordered,
    read_spec,
    respelled,
    spec_beside,
    survey,
    told_of,
)
from mpifl.common import InputError
from mpifl.data import Ragged
from mpifl.data.shards import Provenance, ids_of, joined_ids


def read_table(
    kind: str,
    data: Path | None,
    seed: int,
    *,
    spec: str = "",
    test: str = "",
    group: str = "",
    order: str = "",
    id: str = "",
) -> Dataset:
    """Read a `csv` or `parquet` table piece by piece; features become float32 [n, d].

    `spec` is the TOML file; the table's name with the ending .toml unless given. `test` is another table with
    the same columns, the server's test set. Levels, classes and statistics come from the first one alone,
    from all its rows. What silos hold out of it later has a part in them. `group`, `order` and `id` are
    columns in place of those that the spec names.
    """
    path = needed(kind, data, f"patients.{kind}")
    files: dict[str, str] = {}
    spec_path = Path(spec) if spec else spec_beside(path)
    wanted = read_spec(spec_path)
    for column in ({"group": group}, {"order": order}, {"id": id}):
        wanted = wanted.by(**column) if all(column.values()) else wanted
    check_label(spec_path, wanted)
    noted(spec_path, files)
    return table_dataset(kind, path, Path(test) if test else None, wanted, files)


@dataclass(frozen=True)
class TableSource:
    """A table with a row for each id.

    Attributes:
        x: Features float32 [n, d], mapped.
        y: Targets [n, ...]; [n, 0] without a label.
        ids: One for each row, None where it is missing.
        columns: What it is made of.
        done: What was done to its rows, as `source` of `federation.json` has it.
    """

    x: np.ndarray
    y: np.ndarray
    ids: list[str | None]
    columns: Columns
    done: dict[str, Any]


def identified_table(path: Path, spec: TableSpec) -> TableSource:
    """Read a table, Parquet by its ending or else CSV, whose spec names a column of ids."""
    encoder = Encoder(kind_of(path), path, spec)
    x, y, ids, changes = Spool(), list[np.ndarray](), list[str | None](), Changes(spec)
    for piece in encoder.read(path, changes):
        x.append(piece.x)
        y.append(piece.y)
        ids += piece.id
    if not ids:
        raise InputError(f"{path}: {_without_rows(changes)}")
    spec.label.check_whole(str(path), together := np.concatenate(y))
    return TableSource(x.rows(), together, ids, encoder.columns, changes.told())


def write_statistics(kind: str, data: Path, spec: Path | None, out: Path) -> dict[str, Any]:
    """Write the counts, sums and sums of squares of a table's numeric columns:
    what a silo may share; as JSON. Return what was left out of it, as `dropped` of `source` has it."""
    if kind not in ("csv", "parquet"):
        raise InputError(f"SOURCE: '{kind}' given; statistics are those of a csv or parquet table")
    found = survey(kind, data, read_spec(spec or spec_beside(data)))
    try:
        found.moments.write(out)
    except OSError as error:
        raise InputError(f"--out: {out} cannot be written ({error.strerror}); name another") from None
    return found.gaps.told()


def table_dataset(
    kind: str, path: Path, test: Path | None, spec: TableSpec, files: dict[str, str]
) -> Dataset:
    """Encode a table and, where there is one, that of the server's test set; note their sha256 in `files`."""
    encoder = Encoder(kind, _noted(path, files), spec, later=True)
    columns = encoder.columns
    places = {columns.feature_names.index(name): name for name in spec.fitted_later}
    scaling = Standardising("train", places, np.float32, encoder.learn) if places else None
    for statistics in spec.statistics:
        noted(statistics, files)
    groups, silos, changes, of_test = Keys(), Keys(), Changes(spec), Changes(spec)
    read = _read(encoder, path, silos, groups, changes)
    tested = _read(encoder, _noted(test, files), Keys(), groups, of_test) if test else None
    if tested:
        spec.label.check_whole(str(test), tested.y)
    numbers, names = silos.numbered() if spec.silo else (None, None)
    x = scaling.training(read.x) if scaling else read.x
    test_set = tested and (StandardisedRows(tested.x, scaling) if scaling else tested.x, tested.y)
    return Dataset(
        where=str(path),
        x=x,
        y=read.y,
        classes=None if columns.class_names is None else len(columns.class_names),
        files=files,
        test=test_set,
        silo=numbers,
        silo_names=names,
        class_names=columns.class_names,
        feature_names=columns.feature_names,
        targets=spec.label.targets,
        held=read.held if spec.held_out else None,
        groups=groups.groups(spec.group or "", len(read.y), tested=test is not None),
        order=Order(spec.order, read.order) if spec.order else None,
        done=with_notes(told_of(changes, of_test), groups=groups.respelled(spec)),
        given=read.given,
        given_of_test=tested and tested.given,
        ids_asked=spec.id is not None,
        encoding=None if scaling else encoder.record,
        scaling=scaling,
        by_own=learned_of_rows(spec),
        lacks=spec.label.lacks(read.y),
    )


def _noted(path: Path, files: dict[str, str]) -> Path:
    """Note the sha256 of a table, a file or all of a folder, and return its path."""
    noted_all(path, files)
    return path


class _Rows(NamedTuple):
    """All rows of a table in numbers; `order` and `held` are empty where no column says them."""

    x: np.ndarray
    y: np.ndarray
    order: np.ndarray
    held: np.ndarray
    given: Provenance


def _read(encoder: Encoder, path: Path, silos: Keys, groups: Keys, changes: Changes) -> _Rows:
    """Read a table, and note whose its rows are, and which are left out."""
    x, several, ids = Spool(), list[tuple[np.ndarray, ...]](), list[Ragged]()
    for piece in encoder.read(path, changes):
        x.append(piece.x)
        several.append((piece.y, piece.order, piece.held, piece.row))
        ids += [ids_of(piece.id)] if encoder.spec.id is not None else []
        silos.append(*piece.silo)
        groups.append(*piece.group)
    rows = x.rows()
    if not len(rows):
        raise InputError(f"{path}: {_without_rows(changes)}")
    y, order, held, row = map(np.concatenate, zip(*several, strict=True))
    return _Rows(rows, y, order, held, Provenance(row, joined_ids(ids) if ids else None))


def _without_rows(changes: Changes) -> str:
    """Say why a table gives no example."""
    if not changes.dropped.of:
        return "has no rows"
    return "has no rows without a missing value; look at 'missing' in the table's spec"


class Keys:
    """Whose every row is, as numbers from the start: names would fill the memory."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._codes: list[np.ndarray] = []

    def append(self, names: Sequence[str], codes: np.ndarray) -> None:
        """Add some rows, each by the number of its name, int64 [m]; names are in the order of their rows."""
        numbers = [self._seen.setdefault(name, len(self._seen)) for name in names]
        self._codes.append(np.array(numbers, np.int64)[codes])

    def codes(self) -> np.ndarray:
        """Return the number of each row [n], in the order in which names were seen."""
        return np.concatenate(self._codes)

    def provenance(self, ids: Keys | None = None) -> Provenance:
        """Return the numbers as those of rows, and the names in `ids` as theirs, if it has any."""
        return Provenance(self.codes(), ids_of(ids.names()) if ids and ids._seen else None)

    def names(self) -> list[str]:
        """Return the name of each row."""
        names = list(self._seen)
        return [names[number] for number in self.codes().tolist()]

    def groups(self, name: str, rows: int, *, tested: bool) -> Groups | None:
        """Return whose each of the first `rows` is, and the others of the server's test set, by a column;
        None without a name."""
        own, others = np.split(self.codes(), [rows if name else 0])
        return Groups(name, own, others if tested else None) if name else None

    def respelled(self, spec: TableSpec) -> str:
        """Say which names of groups most likely are one and are spelled in several ways; "" without such."""
        if not spec.group or not (found := respelled(self._seen, spec.notation)):
            return ""
        one = " and ".join(map(repr, found[0]))
        are = "ids are" if len(found) > 1 else "id is"
        what = f"{spec.group}: {len(found):,} {are} spelled in several ways, as {one}, and not taken for one"
        return f"{what}, so {PARTED}; spell them alike in the table"

    def numbered(self) -> tuple[np.ndarray, dict[int, str]]:
        """Return the numbers [n], in the order of the names, and these."""
        names = ordered(set(self._seen))
        number_of = {name: number for number, name in enumerate(names)}
        renumbered = np.array([number_of[name] for name in self._seen], np.int64)
        return renumbered[self.codes()], dict(enumerate(names))
