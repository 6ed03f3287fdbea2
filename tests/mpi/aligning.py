"""Alignments one after another on the same ranks: `aligning.py FOLDER`, a folder for each, `case.json` in it.

`harm` says what a rank does that no honest one does; `said_R.json` is what rank R ended with, `seen.bin` all
that rank 0 has received, `masked.bin` the masked ids among it.
"""

import json
import sys
from pathlib import Path

import numpy as np

from data_prep.schemes import Shares
from data_prep.site import PartyTable, Site
from mpifl.cli.align import AlignmentStopped, AlignParty, Comparer, Means, align_server, curve, read_key, ring
from mpifl.common import InputError
from mpifl.wire import point_to_point
from mpifl.wire.launching import world


def means(case, key):
    def read(terms, silo):
        plain = case.get("plain", False)
        return Means(
            read_key(key) if plain is True or (plain and str(silo + 1) in plain) else None, threads=2
        )

    return read


def table_of(folder, out):
    def bring(terms, silo):
        name = terms.parties[silo]
        shares = Shares(terms.valid, terms.test)
        return PartyTable(
            folder / f"{name}.csv", out, Site(silo, name), terms.seed, shares=shares, id="person"
        )

    return bring


class Harmed:
    """What a rank does wrong while this is on."""

    def __init__(self, harm):
        self._harm = harm

    def __enter__(self):
        self._before = [(owner, name, getattr(owner, name)) for owner, name in TOUCHED]
        harms.get(self._harm, lambda: None)()

    def __exit__(self, *_):
        for owner, name, value in self._before:
            setattr(owner, name, value)


TOUCHED = [
    (curve.Masker, "mask"),
    (align_server, "places_of"),
    (PartyTable, "keep"),
    (PartyTable, "make"),
]


def zero():
    curve.Masker.mask = lambda self, points: bytes(len(points))


def short():
    curve.Masker.mask = lambda self, points: points[:-1]


def twice():
    whole = curve.Masker.mask
    curve.Masker.mask = lambda self, points: whole(self, points[:32] * (len(points) // 32))


def displaced():
    whole = align_server.places_of

    def places(names, sets):
        m, found = whole(names, sets)
        found[1][np.argmax(found[1])] = 0
        return m, found

    align_server.places_of = places


def full():
    def keep(self, federation):
        raise InputError("--out: cannot be written (No space left on device)")

    PartyTable.keep = keep


def other_entry():
    whole = PartyTable.make
    PartyTable.make = lambda self, rows, *given: whole(self, rows[1:], *given)


harms = {
    "zero": zero, "short": short, "twice": twice, "displaced": displaced, "full": full,
    "fewer rows": other_entry,
}  # fmt: skip


SENT = []
"""What rank 0 has worked out last: how many ids are common, and the place of each one that was sent."""


def noted(names, sets, whole=align_server.places_of):
    SENT[:] = [whole(names, sets)]
    return SENT[0]


def recorded(transport):
    """Note all that comes to this rank, and what of it is masked."""
    whole, seen, masked = transport._next_buffer, bytearray(), bytearray()

    def note(rank, tag, *given):
        found = whole(rank, tag, *given)
        seen.extend(found[1] if found else b"")
        masked.extend(found[1] if found and tag == point_to_point.PIECE else b"")
        return found

    transport._next_buffer = note
    return {"seen": seen, "masked": masked}


def run(transport, folder, seen):
    case = json.loads((folder / "case.json").read_text())
    rank = str(transport.rank)
    terms = folder / case.get("terms", {}).get(rank, "terms.toml")
    out = folder / case.get("out", {}).get(rank, "out")
    for content in seen.values():
        content.clear()
    said = {"error": None}
    with Harmed(case.get("harm", {}).get(rank)):
        try:
            if transport.is_server:
                said["rows"] = Comparer(transport, terms, out).align().rows
            else:
                key = folder / case.get("keys", {}).get(rank, "key")
                said["rows"] = AlignParty(transport, terms, table_of(folder, out), means(case, key)).align()
        except InputError as error:
            said = {"error": str(error), "stopped": isinstance(error, AlignmentStopped)}
    (folder / f"said_{rank}.json").write_text(json.dumps(said))
    if transport.is_server and "rows" in said:
        np.savez(folder / "places.npz", *SENT.pop()[1])
    for name, content in seen.items():
        (folder / f"{name}.bin").write_bytes(content)


def main():
    transport = world()
    align_server.places_of = noted
    ring.PIECE = 7 * curve.POINT  # many pieces of few ids
    seen = recorded(transport) if transport.is_server else {}
    for folder in sorted(path.parent for path in Path(sys.argv[1]).glob("*/case.json")):
        run(transport, folder, seen)
        transport.broadcast_record(b"next" if transport.is_server else None)


if __name__ == "__main__":
    main()
