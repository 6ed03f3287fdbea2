"""A party of an alignment: it masks ids of all, and writes the rows of its own table that are common."""

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


class PartyTable(Protocol):
    """A party's own rows, and where it writes those that are common.

    Attributes:
        where: The table and its column of ids, as messages name them.
        ids: One for each row.
        names: Of its columns of numbers.
        learned: What its labels are: `classes`, `targets` and `class_names`; None where it has none.
    """

    where: str
    ids: Sequence[str | None]
    names: Sequence[str]
    learned: dict[str, Any] | None

    def make(self, rows: np.ndarray, first: int, alignment: str, learned: dict[str, Any]) -> VerticalEntry:
        """Write the shard aside: rows int64 [m] of the table, in the common order.

        `first` is the number that its first column has among those of all.
        """
        ...

    def keep(self, federation: bytes) -> None:
        """Put the shard into its place, and what all know of it ready."""
        ...

    def finish(self) -> None:
        """Put `federation.json` beside it."""
        ...

    def discard(self) -> None:
        """Leave nothing of what is not finished."""
        ...


@dataclass(frozen=True)
class Means:
    """How a party hides its ids: by a key that it shares with the others, or else on a curve."""

    key: bytes | None = None
    threads: int = 1


class AlignParty:
    """A party's side, part by part."""

    def __init__(
        self,
        transport: Transport,
        terms: Path,
        bring: Callable[[AlignTerms, int], PartyTable],
        means: Callable[[AlignTerms, int], Means],
        told: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        """Say what it brings; nothing is read yet.

        Args:
            transport: This rank's end of the wire.
            terms: The file of terms.
            bring: Reads the table, by the terms and the party's number.
            means: Reads the key, if there is one, likewise.
            told: Called with the points that are masked, and how many will be.
        """
        self._transport, self._path, self._bring, self._means, self._told = (
            transport,
            terms,
            bring,
            means,
            told,
        )
        self._silo = transport.rank - 1
        self._table: PartyTable | None = None

    def align(self) -> int:
        """Take part, and return the number of common rows; the shard and `federation.json` are written then.

        Raises:
            Stopped: another rank has stopped; nothing is left here.
            InputError: something is wrong here; nothing is left either.
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
    def _own(self) -> PartyTable:
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
        """Hide this party's ids, in an order that tells nothing, and have all put their masks on them."""
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
        """Write the common rows in the common order, in which rank 0 must have each once."""
        found = take_whole(self._transport, 0, 8 * len(self._ids))
        rows = self._order[rows_of(np.frombuffer(found, np.int64), common.rows)]
        first = sum(start.widths[: self._silo])
        learned = {key: getattr(start.learned, key) for key in AlignedLabels.model_fields}
        self._entry = self._own.make(rows, first, common.alignment, learned)
        return Made(entry=self._entry)

    def _keep(self, federation: AlignFederation, common: Common) -> AlignedShard:
        """See that what all write is of this alignment, and has this party's own entry."""
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
