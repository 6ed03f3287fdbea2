"""The command `align`, which brings the parties' tables to the ranks of an alignment."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mpifl.cli import ending
from mpifl.common import InputError, RankLost, one_line
from mpifl.common.machine import imports

if TYPE_CHECKING:
    from mpifl.cli.align import Aligned, AlignTable, AlignTerms, Means
    from mpifl.wire import Transport

Given = TypeVar("Given")
EACH = "One for all parties, or one for each in their order."
WHOSE = "A new file, for a party alone, that says whose each of its rows is. One for each."
FIRST, LONGEST = 10.0, 60.0
"""Seconds until a party's first line of progress, and the most seconds between two lines."""


def align(
    terms: Annotated[Path, typer.Argument(metavar="TERMS.toml", help="What the parties have agreed on.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for this party's shard.")],
    table: Annotated[
        list[Path], typer.Option(metavar="FILE", help=f"A party's own table, CSV or Parquet. {EACH}")
    ] = [],  # noqa: B006
    id: Annotated[list[str], typer.Option(metavar="COLUMN", help=f"Its column of ids. {EACH}")] = [],  # noqa: B006
    spec: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help=f"What its columns mean; the table's name with .toml. {EACH}"),
    ] = [],  # noqa: B006
    ids: Annotated[list[Path], typer.Option(metavar="FILE", help=WHOSE)] = [],  # noqa: B006
    plain: Annotated[
        bool, typer.Option("--plain", help="Compare keyed hashes, where all parties share a key.")
    ] = False,
    key: Annotated[
        list[Path], typer.Option(metavar="FILE", help=f"With --plain: the key, for its owner alone. {EACH}")
    ] = [],  # noqa: B006
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of each party; its part of the cores by default.")
    ] = None,
) -> None:
    """Find the persons that all parties have, and write each party's own shard of their rows.

    Rank 0 compares and has no table; the ranks 1, 2, ... are the parties. Without a launcher all are started.
    """
    from mpifl.wire.launching import launcher

    own = _Own(tables=table, ids=id, specs=spec, whom=ids, out=out, plain=plain, keys=key, threads=threads)
    if not launcher.launched():
        from mpifl.cli.align import read_terms

        own.check(agreed := read_terms(terms))
        raise typer.Exit(abs(launcher.launch(len(agreed.parties) + 1)))
    with imports.gc_frozen():
        from mpifl.wire.launching import world

        transport = world()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that `discard` removes unfinished files
    try:
        _align(transport, terms, own)
    except RankLost:
        raise InputError("a rank has died; nothing is left of the alignment, start it again") from None


@dataclass(frozen=True)
class _Own:
    """The options of a rank. Values of a party's own may be given for all parties, or for this party
    alone."""

    tables: Sequence[Path]
    ids: Sequence[str]
    specs: Sequence[Path]
    whom: Sequence[Path]
    out: Path
    plain: bool
    keys: Sequence[Path]
    threads: int | None

    def check(self, terms: AlignTerms) -> None:
        """Refuse options that fit no rank."""
        given = {"table": self.tables, "id": self.ids, "spec": self.specs, "ids": self.whom, "key": self.keys}
        for option, values in given.items():
            if len(values) not in (0, 1, len(terms.parties)):
                wanted = f"one for all, or one for each of {', '.join(terms.parties)}"
                said = f"given {len(values)} times for {len(terms.parties)} parties"
                raise InputError(f"--{option}: {said}; {wanted}")
        if self.plain != bool(self.keys):
            raise InputError(
                "--plain: keyed hashes need a key, and nothing else does; give --plain and --key FILE"
            )

    def bring(self, terms: AlignTerms, party: int) -> AlignTable:
        """Read a party's table."""
        from data_prep.schemes import Shares
        from data_prep.site import PartyTable, Site

        table = _mine(self.tables, party)
        if table is None:
            raise InputError(f"--table: not given for {terms.told(party)}; name its own table")
        id, spec, whom = _mine(self.ids, party), _mine(self.specs, party), _mine(self.whom, party)
        site, shares = Site(party, terms.parties[party]), Shares(terms.valid, terms.test)
        own = PartyTable(table, self.out, site, terms.seed, shares=shares, spec=spec, id=id, whom=whom)
        for told in own.changes:
            print(f"warning: {terms.told(party)}: {one_line(told)}", file=sys.stderr, flush=True)
        return own

    def means(self, transport: Transport, terms: AlignTerms, party: int) -> Means:
        """Read the key, if there is one."""
        from mpifl.cli.align import Means, read_key

        self.check(terms)
        key = _mine(self.keys, party)
        return Means(read_key(key) if key else None, self.threads or _threads(len(transport.peers)))


def _mine(given: Sequence[Given], party: int) -> Given | None:
    """Return the value for a party: its own if there is one for each party, else the only one."""
    return given[party if len(given) > 1 else 0] if given else None


def _threads(parties: int) -> int:
    """Return this party's share of the cores that the parties of its node may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores // max(parties, 1), 1)


def _align(transport: Transport, path: Path, own: _Own) -> None:
    from mpifl.cli.align import AlignmentStopped, AlignParty, Comparer

    if transport.is_server:
        _tell(Comparer(transport, path, own.out, own.check).align(), own.out)
        return
    told = _MaskingProgress(transport.rank)
    party = AlignParty(transport, path, own.bring, lambda *given: own.means(transport, *given), told)
    try:
        party.align()
    except AlignmentStopped:
        raise typer.Exit(ending.WRONG) from None
    except InputError:
        ending.speak_if(lambda: True)
        raise


def _tell(aligned: Aligned, out: Path) -> None:
    examples = aligned.spec.silos[0].examples
    of = ", ".join(
        f"{entry.name} has {n:,}" for entry, n in zip(aligned.spec.silos, aligned.sizes, strict=True)
    )
    splits = ", ".join(f"{count:,} {split}" for split, count in examples.items())
    typer.echo(f"{out}: {aligned.rows:,} ids in common ({of}): {splits}")


class _MaskingProgress:
    """Prints from time to time how many points a party has masked."""

    def __init__(self, rank: int) -> None:
        self._rank, self._begun = rank, time.monotonic()
        self._next = self._pause = FIRST

    def __call__(self, done: int, of: int) -> None:
        passed = time.monotonic() - self._begun
        if passed < self._next or done == of:
            return
        self._pause = min(2 * self._pause, LONGEST)
        self._next = passed + self._pause
        left = passed * (of - done) / max(done, 1)
        line = f"rank {self._rank}: {done:,} of {of:,} ids masked, about {left:.0f} s left"
        print(line, file=sys.stderr, flush=True)
