"""A party of an alignment: it masks the ids of all parties, and writes the common rows of its own table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mpifl.cli.align.align_phases import tell
from mpifl.cli.align.align_records import (
    AlignedLabels,
    AlignedShard,
    AlignFederation,
    Common,
    Finished,
    Hello,
    Made,
    Passed,
    Start,
)
from mpifl.cli.align.curve import Masker
from mpifl.cli.align.ids import normal_ids, random_order
from mpifl.cli.align.keyed import check_of, keyed
from mpifl.cli.align.order import rows_of
from mpifl.cli.align.ring import pass_round, send_whole, take_whole
from mpifl.cli.align.terms import AlignTerms, check_ranks, digest_of_terms, read_terms
from mpifl.common import InputError
from mpifl.data.shards import VerticalEntry, VerticalSpec
from mpifl.wire import Transport


class AlignTable(Protocol):
    """A party's own table, and the writer of its common rows.

    Attributes:
        where: The table and its column of ids, as messages name them.
        ids: An id for each row.
        names: The names of its columns of numbers.
        learned: The format of its labels: `classes`, `targets` and `class_names`; None if it has no labels.
    """

    where: str
    ids: Sequence[str | None]
    names: Sequence[str]
    learned: dict[str, Any] | None

    def make(self, rows: np.ndarray, first: int, alignment: str, learned: dict[str, Any]) -> VerticalEntry:
        """Write the shard under a temporary name: rows int64 [m] of the table, in the common order.

        `first` is the number of its first column among the columns of all parties.
        """
        ...

    def keep(self, federation: bytes) -> None:
        """Rename the shard into its place, and write `federation.json` under a temporary name."""
        ...

    def finish(self) -> None:
        """Rename `federation.json` into its place."""
        ...

    def discard(self) -> None:
        """Remove all unfinished files."""
        ...


@dataclass(frozen=True)
class Means:
    """How a party hides its ids: by a key that all parties share, or else by masks on a curve."""

    key: bytes | None = None
    threads: int = 1


class AlignParty:
    """A party's side of an alignment, phase by phase."""

    def __init__(
        self,
        transport: Transport,
        terms: Path,
        bring: Callable[[AlignTerms, int], AlignTable],
        means: Callable[[AlignTerms, int], Means],
        told: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        """Keep the arguments; nothing is read yet.

        Args:
            transport: This rank's end of the wire.
            terms: The file of terms.
            bring: Reads the table, given the terms and the party's number.
            means: Reads the key, if there is one, given the same.
            told: Called with the number of masked points, and their total.
        """
        self._transport, self._path, self._bring, self._means, self._told = (
            transport,
            terms,
            bring,
            means,
            told,
        )
        self._silo = transport.rank - 1
        self._table: AlignTable | None = None

    def align(self) -> int:
        """Take part, write the shard and `federation.json`, and return the number of common rows.

        Raises:
            AlignmentStopped: another rank has stopped; no file is left here.
            InputError: something is wrong here; no file is left here either.
        """
        transport = self._transport
        try:
            start = tell(transport, self._hello, Start)
            common = tell(transport, lambda: self._pass(start), Common)
            federation = tell(transport, lambda: self._make(start, common), AlignFederation)
            tell(transport, lambda: self._keep(federation, common), Finished)
            self._own.finish()
        finally:
            if self._table is not None:
                self._table.discard()
        return common.rows

    @property
    def _own(self) -> AlignTable:
        assert self._table is not None
        return self._table

    def _hello(self) -> Hello:
        digest = digest_of_terms(self._path)
        terms = read_terms(self._path)
        check_ranks(self._path, terms, self._transport.size)
        self._with = means = self._means(terms, self._silo)
        self._masker = None if means.key else Masker(means.threads)
        self._terms, self._table = terms, self._bring(terms, self._silo)
        own = self._table
        self._ids = normal_ids(own.where, own.ids)
        return Hello(
            terms=digest,
            ids=len(self._ids),
            key=check_of(means.key, digest) if means.key else None,
            width=len(own.names),
            columns=list(own.names) if terms.columns else None,
            learned=None if own.learned is None else AlignedLabels(**own.learned),
        )

    def _pass(self, start: Start) -> Passed:
        """Hide this party's ids in a random order, and let all parties mask them."""
        if len(start.sizes) != len(self._terms.parties) or start.sizes[self._silo] != len(self._ids):
            raise InputError("rank 0 has sent other sizes than the parties have; ask who runs it")
        self._order, nonce = random_order(len(self._ids)), bytes.fromhex(start.nonce)
        shuffled = [self._ids[row] for row in self._order]
        if self._masker is None:
            assert self._with.key is not None
            send_whole(self._transport, 0, keyed(self._with.key, nonce, shuffled))
            self._transport.await_taken()
            return Passed()
        done, of = 0, sum(start.sizes)

        def told(points: int) -> None:
            nonlocal done
            done += points
            self._told(done, of)

        masker = self._masker
        pass_round(self._transport, start.sizes, masker.points(shuffled, nonce), masker.mask, told)
        return Passed()

    def _make(self, start: Start, common: Common) -> Made:
        """Write the common rows in the common order, after a check that rank 0's order has each row once."""
        found = take_whole(self._transport, 0, 8 * len(self._ids))
        rows = self._order[rows_of(np.frombuffer(found, np.int64), common.rows)]
        first = sum(start.widths[: self._silo])
        learned = {key: getattr(start.learned, key) for key in AlignedLabels.model_fields}
        self._entry = self._own.make(rows, first, common.alignment, learned)
        return Made(entry=self._entry)

    def _keep(self, federation: AlignFederation, common: Common) -> AlignedShard:
        """Check that `federation.json` belongs to this alignment and has this party's own entry; keep it."""
        try:
            spec = VerticalSpec.model_validate_json(federation.text)
        except ValueError:
            raise InputError("rank 0 has sent no federation.json; see that all run the same mpifl") from None
        entries = spec.silos
        tags = {entry.alignment for entry in entries}
        same = len(entries) == len(self._terms.parties) and entries[self._silo] == self._entry
        if not same or tags != {common.alignment}:
            raise InputError(
                "rank 0 has sent a federation.json that is not of this alignment; ask who runs it"
            )
        self._own.keep(federation.text.encode())
        return AlignedShard()
