"""Tables that are read for what their columns hold, and how each of them writes its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from data_prep.tables import TableSpec
from data_prep.tables.files import kind_of, pieces
from data_prep.tables.values.notation import OTHERS, PLAIN, Notation
from data_prep.tables.values.tallying import Tally, Ways
from mpifl.common import InputError


class Tallied(NamedTuple):
    """What tables hold.

    Attributes:
        columns: What each column of the spec holds.
        rows: How many rows there are.
        notations: How the numbers of each table are written, in the order of the tables.
    """

    columns: dict[str, Tally]
    rows: int
    notations: list[Notation]


def tallied(paths: Sequence[Path], specs: Sequence[TableSpec]) -> Tallied:
    """Read tables once, each by its spec, and again where numbers are written otherwise than plainly.

    A table writes numbers as its spec states it. All others are taken to write them alike, unless each by a
    way of its own has more columns of numbers.

    Raises:
        InputError: a table cannot be read, or has no rows.
    """
    found = Tallied({name: Tally() for name in specs[0].columns}, 0, [PLAIN] * len(paths))
    found = _read(paths, specs, found)
    stated = {at: spec.notation for at, spec in enumerate(specs) if "decimal" in spec.model_fields_set}
    others = [at for at in range(len(paths)) if at not in stated]
    for tally in found.columns.values():
        tally.ways = Ways.of_all([tally.each[at] for at in others or stated])
    if "parquet" in map(kind_of, paths):
        return found._replace(notations=[stated.get(at, PLAIN) for at in range(len(paths))])
    guessed = dict(zip(others, _notations(found.columns, others), strict=True)) if others else {}
    notations = [{**stated, **guessed}[at] for at in range(len(paths))]
    if set(notations) == {PLAIN}:
        return found
    known = {name: _settled(tally, notations) for name, tally in found.columns.items()}
    again = _read(paths, specs, Tallied(known, 0, notations))
    for tally in again.columns.values():  # of tables that part, it is any by which its values are numbers
        tally.notation = tally.ways.all[0] if len(set(notations)) > 1 and tally.ways.all else notations[0]
    return again


def _read(paths: Sequence[Path], specs: Sequence[TableSpec], found: Tallied) -> Tallied:
    every = 0
    for path, spec, notation in zip(paths, specs, found.notations, strict=True):
        for tally in found.columns.values():
            tally.begin(notation)
        rows = 0
        for piece in pieces(kind_of(path), path, spec):
            rows += len(piece)
            for name, tally in found.columns.items():
                tally.add(piece, name)
        if not rows:
            raise InputError(f"{path}: has no rows")
        every += rows
    return found._replace(rows=every)


def _notations(found: Mapping[str, Tally], tables: Sequence[int]) -> list[Notation]:
    """Return how each of some tables writes numbers."""
    known = {name: tally for name, tally in found.items() if tally.known}
    one = _likeliest({name: tally.ways for name, tally in known.items()})
    own = [_likeliest({name: tally.each[at] for name, tally in known.items()}) for at in tables]
    alike = sum(one in tally.ways.certain for tally in known.values())
    apart = sum(
        all(way in ways.certain for way, ways in zip(own, [tally.each[at] for at in tables], strict=True))
        for tally in known.values()
    )
    return own if apart > alike else [one] * len(tables)


def _likeliest(ways: Mapping[str, Ways]) -> Notation:
    """Return how a table writes numbers: the way by which most of its columns are of numbers.

    Where two ways are as good and mean other numbers, it is the plain one.
    """
    columns = {way: {name for name, one in ways.items() if way in one.certain} for way in (PLAIN, *OTHERS)}
    most = max(map(len, columns.values()))
    best = [way for way, names in columns.items() if len(names) == most]
    # a mark of thousands that is in doubt decides nothing, and leaves a doubt in what else would
    rivals = [way for way in columns if sum(way in one.all for one in ways.values()) >= most]
    alike = all(columns[way] == columns[best[0]] for way in best)
    apart = any((a, b) in ways[name].apart for name in columns[best[0]] for a in best for b in rivals)
    return PLAIN if PLAIN in best or apart or not alike else best[0]


def _settled(tally: Tally, notations: Sequence[Notation]) -> Tally:
    """Return an empty tally of a column whose tables write numbers in such ways."""
    if len(set(notations)) == 1:
        return Tally(settled=True, ways=tally.ways)
    both = [*zip(notations, tally.each, strict=True)]
    if not all(way in ways.all for way, ways in both):
        return Tally(settled=True, ways=Ways(all=()))
    doubted = [(way, ways.marked[way]) for way, ways in both if way not in ways.certain]
    named = doubted[0][0] if doubted else notations[0]
    return Tally(settled=True, ways=Ways(all=(named,), marked=dict(doubted[:1])))
