"""A party's own table, and its vertical shard of the rows that all parties of an alignment have."""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import changes_of, row_bytes
from data_prep.schemes import Shares
from data_prep.site.site import Site
from data_prep.sources import identified_table
from data_prep.tables import read_spec, spec_beside
from data_prep.write import check_room, partial, unwritable
from mpifl.common import InputError, write_atomic
from mpifl.data import Features
from mpifl.data.shards import VerticalEntry, VerticalSplit, write_vertical

FILE = "federation.json"
HEADER = 1 << 14
"""Bytes of a shard beside its rows, at most."""


class PartyTable:
    """A party's rows by their ids, which enter no file but one that it asks for.

    What it writes lies aside until it is kept and finished; `discard` leaves nothing of what is not.

    Attributes:
        where: The table and its column of ids, as messages name them.
        ids: One for each row, None where it is missing.
        names: Of its columns of numbers.
        learned: What its labels are: `classes`, `targets` and `class_names`; None without a label.
    """

    def __init__(
        self,
        table: Path,
        out: Path,
        site: Site,
        seed: int,
        *,
        shares: Shares,
        spec: Path | None = None,
        id: str | None = None,
        whom: Path | None = None,
    ) -> None:
        """Read a table.

        Args:
            table: CSV, or Parquet by its ending.
            out: The folder for the shard; others' files in it are left alone.
            site: Whose it is.
            seed: What the hold-out is drawn by, the same at all parties.
            shares: What is held out, the same at all parties.
            spec: What its columns mean; by default the table's name with the ending .toml.
            id: The column of ids, if the spec does not name it.
            whom: A new file, for this party alone: the number of each common row, and whose it is.

        Raises:
            InputError: something given is wrong, or a file is there that would be written.
        """
        self._out, self._site, self._seed, self._shares = out, site, seed, shares
        self._whom, self._told = whom, False
        self._check_free()
        if whom is not None:
            self._check_private(whom)
        path = spec or spec_beside(table)
        meant = read_spec(path)
        meant = meant if id is None else meant.by(id=id)
        if meant.id is None:
            raise InputError(f"--id: not given, and {path} names none; name the column of ids")
        self._table, self.where = identified_table(table, meant), f"{table}: {meant.id}"
        self.ids: Sequence[str | None] = self._table.ids
        self.names: Sequence[str] = self._table.columns.feature_names
        classes = self._table.columns.class_names
        self.learned: dict[str, Any] | None = None
        if meant.label.kind != "none":
            self.learned = {"classes": classes and len(classes), "targets": meant.label.targets}
            self.learned["class_names"] = classes and list(classes)

    @property
    def changes(self) -> list[str]:
        """Return what was done to its rows and values, a line each."""
        return [*changes_of(self._table.done).values()]

    def make(self, rows: np.ndarray, first: int, alignment: str, learned: dict[str, Any]) -> VerticalEntry:
        """Write the shard aside, and return its entry.

        Args:
            rows: The rows of the table in the common order, int64 [m].
            first: The number of its first column among those of all parties.
            alignment: The tag that all parties' shards carry.
            learned: What the labels are, wherever they lie.

        Raises:
            InputError: it cannot be written.
        """
        self._rows = rows
        x, y = self._table.x, self._table.y if self.learned else None
        size = len(rows) * (row_bytes(x) + 8 + (row_bytes(y) if y is not None else 0))
        check_room(self._out, size + HEADER)
        places = self._shares.split(np.arange(len(rows)), self._seed, 0)
        splits = {}
        for split, at in ((split, np.sort(at)) for split, at in places.items()):
            own = rows[at]
            splits[split] = VerticalSplit(x[own], at, None if y is None else y[own])
        about: dict[str, Any] = {"silo": self._site.silo, "name": self._site.name, "alignment": alignment}
        width = len(self.names)
        about |= {"features": Features(shape=(width,), dtype="float32")}
        about |= {key: learned[key] for key in ("classes", "targets")}
        try:
            self._aside.mkdir(parents=True)
            path = self._aside / f"{self._site.stem}.h5"
            return write_vertical(path, splits, list(range(first, first + width)), **about)
        except OSError as error:
            raise unwritable(self._out, error) from None

    def keep(self, federation: bytes) -> None:
        """Put the shard into its place, and `federation.json` ready; raise InputError if that fails."""
        if self._whom is not None:
            self._tell_whom(self._whom)
        try:
            write_atomic(self._aside / FILE, federation)
            os.replace(self._aside / self._shard.name, self._shard)
            self._kept = True
        except OSError as error:
            raise unwritable(self._out, error) from None

    def finish(self) -> None:
        """Put `federation.json` beside the shard; another party may have put the same there."""
        try:
            os.replace(self._aside / FILE, self._out / FILE)
        except OSError as error:
            raise unwritable(self._out, error) from None
        self._finished = True

    def discard(self) -> None:
        """Remove what lies aside and, if it is not finished, the shard and folders made for it, too."""
        shutil.rmtree(self._aside, ignore_errors=True)
        if self._finished:
            return
        if self._told and self._whom is not None:
            self._whom.unlink(missing_ok=True)
        if self._kept:
            self._shard.unlink(missing_ok=True)
        for folder in self._missing:
            with contextlib.suppress(OSError):  # another party's things are in it
                folder.rmdir()

    def _tell_whom(self, path: Path) -> None:
        """Write the ids of the common rows into a file that its owner alone can read."""
        try:
            made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            self._told = True
            with os.fdopen(made, "w", encoding="utf-8", newline="") as file:
                lines = csv.writer(file)
                lines.writerow(["id", "whose"])
                lines.writerows(enumerate(self.ids[row] for row in self._rows))
        except OSError as error:
            raise unwritable(path, error) from None

    def _check_private(self, path: Path) -> None:
        """See that a file of ids can be made, apart from the shards, which others may be shown."""
        if path.resolve().is_relative_to(self._out.resolve()):
            raise InputError(f"--ids: {path} is in the folder of the shard; name one that only you can read")
        if os.path.lexists(path) or not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            what = "exists" if os.path.lexists(path) else "is in no folder you may write to"
            raise InputError(f"--ids: {path} {what}; name another file")

    def _check_free(self) -> None:
        """See that the folder can be written to and has none of the files; note what is not there yet."""
        self._shard = self._out / f"{self._site.stem}.h5"
        self._aside = self._out / f".{self._site.stem}.{partial()}"
        self._kept = self._finished = False
        folders = [self._out, *self._out.absolute().parents]
        self._missing = [folder for folder in folders if not folder.exists()]
        for path in (self._out / FILE, self._shard):
            if os.path.lexists(path):
                raise InputError(f"--out: {path} exists; remove it or name another folder")
        above = next(folder for folder in folders if folder.exists())
        if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
            raise InputError(f"--out: {above} is not a folder you may write to; name another")
