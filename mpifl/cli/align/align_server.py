"""Rank 0 of an alignment: it compares masked ids, has no ids itself, and checks whatever it can."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpifl.cli.align.align_phases import decide
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
from mpifl.cli.align.order import places_of
from mpifl.cli.align.ring import collect, last_before, send_whole
from mpifl.cli.align.terms import AlignTerms, check_ranks, digest_of_terms, read_terms
from mpifl.common import InputError, write_atomic
from mpifl.data import Features
from mpifl.data.shards import VerticalEntry, VerticalSpec, version_of
from mpifl.wire import Transport

FILE = "federation.json"


@dataclass(frozen=True)
class Aligned:
    """The result of an alignment: the number of common rows, and the number of each party's ids."""

    rows: int
    sizes: Sequence[int]
    spec: VerticalSpec


class Comparer:
    """Rank 0's side of an alignment, phase by phase."""

    def __init__(
        self,
        transport: Transport,
        terms: Path,
        out: Path,
        check: Callable[[AlignTerms], None] = lambda terms: None,
    ) -> None:
        """Keep the arguments; nothing is read yet.

        Args:
            transport: This rank's end of the wire.
            terms: The file of terms.
            out: The folder for `federation.json`.
            check: Raises InputError if other options do not fit the terms.
        """
        self._transport, self._path, self._out, self._check = transport, terms, out, check
        self._terms: AlignTerms | None = None

    def align(self) -> Aligned:
        """Compare the parties' masked ids, and write `federation.json` when all shards are in their places.

        Raises:
            InputError: something is wrong here or at a party; then nothing is written.
        """
        transport = self._transport
        start = decide(transport, Hello, self._begin, self._named, self._ready)
        of = range(parties := len(start.sizes))
        senders = [last_before(party, parties) if self._masked else party + 1 for party in of]
        sets = collect(transport, start.sizes, senders)
        places: list[bytes] = []

        def compare(passed: list[Passed]) -> Common:
            if sets is None:
                raise InputError(
                    "the masked ids of a party have not come whole; see that all run the same mpifl"
                )
            rows, found = places_of(self._agreed.parties, sets)
            places.extend(one.tobytes() for one in found)
            return Common(rows=rows, alignment=os.urandom(16).hex())

        common = decide(transport, Passed, compare, self._named)
        for party, content in enumerate(places):
            send_whole(transport, party + 1, content)
        transport.await_taken()
        federation = decide(transport, Made, lambda made: self._described(made, start, common), self._named)
        decide(transport, AlignedShard, lambda kept: self._written(federation), self._named)
        return Aligned(common.rows, start.sizes, VerticalSpec.model_validate_json(federation.text))

    @property
    def _agreed(self) -> AlignTerms:
        assert self._terms is not None
        return self._terms

    def _named(self, rank: int) -> str:
        return self._terms.told(rank - 1) if self._terms else f"rank {rank}"

    def _ready(self) -> None:
        """Check rank 0's own input, before a party is heard."""
        self._digest = digest_of_terms(self._path)
        terms = read_terms(self._path)
        check_ranks(self._path, terms, self._transport.size)
        self._terms = terms
        self._check(terms)
        if os.path.lexists(path := self._out / FILE):
            raise InputError(f"--out: {path} exists; remove it or name another folder")

    def _begin(self, hellos: list[Hello]) -> Start:
        """Check the parties' first messages against the terms and each other."""
        terms, digest = self._agreed, self._digest
        for party, hello in enumerate(hellos):
            if hello.terms != digest:
                said = f"another file of terms (sha256 {hello.terms[:12]}..., here it is {digest[:12]}...)"
                raise InputError(f"{terms.told(party)} has {said}; give all the same {self._path}")
        self._check_keys([hello.key for hello in hellos])
        self._masked = hellos[0].key is None
        learned = self._learned([hello.learned for hello in hellos])
        self._columns = [hello.columns for hello in hellos]
        sizes, widths = [hello.ids for hello in hellos], [hello.width for hello in hellos]
        return Start(nonce=os.urandom(32).hex(), sizes=sizes, widths=widths, learned=learned)

    def _check_keys(self, keys: Sequence[str | None]) -> None:
        told = self._agreed.told
        for party, key in enumerate(keys):
            if (key is None) != (keys[0] is None):
                plain = [told(one) for one, given in enumerate(keys) if given]
                raise InputError(
                    f"--plain: given by {' and '.join(plain)} alone; all parties give it, or none"
                )
            if key != keys[0]:
                raise InputError(f"--key: {told(party)} has another key than {told(0)}; give all the same")

    def _learned(self, told: Sequence[AlignedLabels | None]) -> AlignedLabels:
        """Return the labels' format from the party that holds them by the terms; no other party may have
        labels."""
        terms = self._agreed
        holder = terms.parties.index(terms.labels)
        for party, learned in enumerate(told):
            if learned is not None and party != holder:
                what = f"has labels, and by {self._path} {terms.told(holder)} holds them"
                raise InputError(f"{terms.told(party)} {what}; one party does")
        if (found := told[holder]) is None:
            what = "has no labels, which it holds"
            raise InputError(f"{terms.told(holder)} {what} by {self._path}; name them in its table's spec")
        return found

    def _described(self, made: list[Made], start: Start, common: Common) -> AlignFederation:
        """Return `federation.json`, made from the parties' entries."""
        terms, entries = self._agreed, [one.entry for one in made]
        for party, entry in enumerate(entries):
            self._check_entry(party, entry, start, common)
            if entry.examples != entries[0].examples:
                said = f"{entry.examples} rows, {terms.told(0)} has {entries[0].examples}"
                raise InputError(f"{terms.told(party)}: {said}; see that all run the same mpifl")
        try:
            spec = self._spec(entries, start)
        except ValueError as error:
            raise InputError(
                f"the parties' entries do not go together ({error}); nothing is written"
            ) from None
        return AlignFederation(text=spec.model_dump_json(indent=1) + "\n")

    def _spec(self, entries: list[VerticalEntry], start: Start) -> VerticalSpec:
        """Return the federation's description; raise ValueError for entries that do not fit each other."""
        terms, learned = self._agreed, start.learned
        features = Features(shape=(sum(start.widths),), dtype="float32")
        own = zip(terms.parties, self._columns, strict=True)
        names = [f"{party}.{name}" for party, columns in own for name in columns or ()]
        return VerticalSpec(
            name=terms.name,
            format_version=version_of(features, learned.targets),
            features=features,
            **{key: getattr(learned, key) for key in AlignedLabels.model_fields},
            seed=terms.seed,
            scheme={"name": "align", "valid": terms.valid, "test": terms.test},
            source={"name": "align", "parties": terms.parties},
            silos=entries,
            feature_names=names if len(names) == sum(start.widths) else None,
        )

    def _check_entry(self, party: int, entry: VerticalEntry, start: Start, common: Common) -> None:
        """Refuse an entry that does not fit this party and this alignment."""
        terms, first = self._agreed, sum(start.widths[:party])
        expected = {
            "silo": party,
            "name": terms.parties[party],
            "columns": list(range(first, first + start.widths[party])),
            "alignment": common.alignment,
        }
        wrong = [key for key, value in expected.items() if getattr(entry, key) != value]
        wrong += ["examples"] * (sum(entry.examples.values()) != common.rows)
        wrong += ["labels"] * ((entry.labels is not None) != (terms.parties[party] == terms.labels))
        if wrong:
            said = f"has made an entry with another '{wrong[0]}' than this alignment gives it"
            raise InputError(f"{terms.told(party)} {said}; see that all run the same mpifl")

    def _written(self, federation: AlignFederation) -> Finished:
        """Write `federation.json` as the last file."""
        path = self._out / FILE
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            write_atomic(path, federation.text.encode())
        except OSError as error:
            raise InputError(f"--out: {path} cannot be written ({error.strerror})") from None
        return Finished()
