"""Rows of a table without labels, by the spec of a training with all stated that was learned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from data_prep.tables.encoding import Encoded, Encoder
from data_prep.tables.files import column_names
from data_prep.tables.own_reading import read_as
from data_prep.tables.spec import TableSpec
from mpifl.common import InputError

OF_TRAINING = ("label", "classes", "threshold", "silo", "group", "order", "order_format", "held_out")
"""Keys of a spec that rows to be predicted need not have."""
MOST_NAMED = 20
"""Columns in a line."""


class UnlabelledTable:
    """A table whose rows are to be predicted: each row becomes one example, in the order of the file.

    Args:
        kind: `csv` or `parquet`.
        stated: The spec of the training, as `Encoder.fitted` returns it.
        own: The spec of the site whose table it is: names in the file, units and notation are by it.
        seen: Mean and deviation of columns in the training, where `stated` has none.
        force: Take columns that are too far from the training.

    Raises:
        InputError: a column is missing, a spec is none, or the site's own means other columns.
    """

    def __init__(
        self,
        kind: str,
        path: Path,
        stated: Mapping[str, Any],
        own: Path | None = None,
        *,
        seen: Mapping[str, tuple[float, float]] | None = None,
        force: bool = False,
    ) -> None:
        self._path, self._seen, self._force = path, seen, force
        spec = _unlabelled(path, stated)
        spec = spec if own is None else read_as(spec, own, _validated(path, stated))
        names = column_names(kind, path, spec)
        self._told: list[str] = []
        if spec.id is not None and spec.id not in names:
            what = f"the id column '{spec.id}' is not there, so the predictions have no ids"
            self._told.append(f"warning: {path}: {what}; --spec takes a spec that names it, as id = ...")
            spec = spec.model_copy(update={"id": None})
        self._encoder = Encoder(kind, path, spec)
        self.has_ids = spec.id is not None
        wanted = {spec.in_file(name) for name in spec.columns}
        unread = [name for name in names if name not in wanted]
        more = f" and {len(unread) - MOST_NAMED:,} more" if len(unread) > MOST_NAMED else ""
        said = f"{path}: columns that the model does not take are not read"
        self._told += [f"{said}: {', '.join(unread[:MOST_NAMED])}{more}"] if unread else []

    def told(self) -> Iterator[str]:
        """Yield lines about ids that are not there, columns that are not read, those far from known ones, and
        values that are filled in.

        Raises:
            InputError: a row lacks a value that the model needs, or has no number where one must be; a column
                is too far from the training.
        """
        yield from self._told
        for line in self._encoder.look_through(self._path, self._seen, force=self._force):
            yield f"warning: {self._path}: {line}"

    def read(self) -> Iterator[Encoded]:
        """Yield all rows as numbers, piece by piece, once `told` has looked through them.

        Raises:
            InputError: a row has a value that the model does not know.
        """
        yield from self._encoder.read(self._path)


def _unlabelled(path: Path, stated: Mapping[str, Any]) -> TableSpec:
    """Return a spec without a label, that leaves no row out."""
    told = {key: value for key, value in stated.items() if key not in OF_TRAINING}
    features = told.get("features")
    if isinstance(features, dict):
        told["features"] = {
            name: {key: value for key, value in one.items() if (key, value) != ("missing", "drop")}
            if isinstance(one, dict)
            else one
            for name, one in features.items()
        }
    return _validated(path, told)


def _validated(path: Path, told: Mapping[str, Any]) -> TableSpec:
    """Return a spec as the run keeps it."""
    try:
        return TableSpec.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        what = f"the training's spec, as the run keeps it, is damaged ({where}: {first['msg'][:200]})"
        raise InputError(f"{path}: {what}; cut the rows by data-prep, and name them by --data") from None
