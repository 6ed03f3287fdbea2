"""What a hostile rank does in place of an honest answer: one line of a table an attack.

A forge changes the report that is about to leave (`rank.report`, a dict), or returns what leaves instead:
bytes, or a tuple of reports. `tests/faults/hostile.py` has one rank of a training carry them out, each in a
round of its own.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DEADLINE = 3.0
"""Seconds of `[cohort] deadline`: after them a rank that has not answered is left out of a round."""
REFUSED, MISPLACED, STOPPED, HARMLESS = "refused", "misplaced", "stopped", "harmless"
"""The hostile rank's silos are left out; or, where another node's leader and not the server finds out, the
attempt is lost; or it may be lost anywhere, and names the rank; or all may count, truly."""
ONE_NODE, FOLLOWER, LEADER = "one-node", "follower", "leader"
"""Where the hostile rank is: on the server's node, on another that an honest rank leads, on one of its own.
"""
MEDIAN, MEDIAN_NODES = "median", "median-on-nodes"
"""The same as the first two of these, where updates are combined by a rule of columns."""
RFA, RFA_NODES = "rfa", "rfa-on-nodes"
"""The same by a rule by weights, which all that is tried with rules of columns is tried with as well."""
HUGE = 10**400
ANSI = "\x1b[2J\x1b]0;owned\x07\r\nround 1: all is well\u202e"


@dataclass
class Hostile:
    """The hostile rank when it is to report.

    Attributes:
        report: What an honest rank would send.
        request: What it answers.
        others: A silo that another rank hosts, and one of its own that is not asked.
        judged: Called when the server's verdict has come.
        undo: Called when the next request has come.
    """

    report: dict[str, Any]
    request: dict[str, Any]
    transport: Any
    foreign: int
    spared: int
    judged: list[Callable[[], Any]] = field(default_factory=list)
    undo: list[Callable[[], Any]] = field(default_factory=list)

    @property
    def headers(self) -> list[dict[str, Any]]:
        return self.report["headers"]

    @property
    def header(self) -> dict[str, Any]:
        return self.headers[0]

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.report["parts"]

    def part(self, name: str = "delta") -> dict[str, Any]:
        return next(part for part in self.parts if part["name"] == name)


Reports = tuple[dict[str, Any], ...]
Forge = Callable[[Hostile], Any]


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: Of the test.
        forge: What it does.
        word: What the fault says, or the line of the lost attempt: a regular expression, in either case of
            letters.
        ends: How it ends at best for the hostile rank.
        asked: Which silos: "some" of the hostile rank's, as many as others have; "one" of them alone; or it
            has "most".
        at: What it answers falsely: a kind of request, or the method of the work.
        where: In which worlds it is tried. A follower tries in the long form of the suite what is tried on
            one node.
    """

    name: str
    forge: Forge
    word: str = ""
    ends: str = REFUSED
    asked: str = "some"
    at: str = "train"
    where: tuple[str, ...] = (ONE_NODE,)


# --- how reports are forged


def raw(content: bytes) -> Forge:
    return lambda rank: content


def report(**keys: Any) -> Forge:
    return lambda rank: rank.report.update(keys)


def without(key: str) -> Forge:
    return lambda rank: [rank.report.pop(key)]


def header(**keys: Any) -> Forge:
    return lambda rank: rank.header.update(keys)


def headers(**keys: Any) -> Forge:
    return lambda rank: [one.update(keys) for one in rank.headers]


def more(*added: Callable[[Hostile], dict[str, Any]]) -> Forge:
    """Add headers, each made from the rank's first."""
    return lambda rank: rank.headers.extend([{**copy.deepcopy(rank.header), **one(rank)} for one in added])


def weight(change: Callable[[float], Any]) -> Forge:
    return lambda rank: rank.header.update(weight=change(rank.header["weight"]))


def scalars(**named: Any) -> Forge:
    return lambda rank: rank.header["scalars"].update(named)


def all_scalars(**named: Any) -> Forge:
    return lambda rank: [one["scalars"].update(named) for one in rank.headers]


def vector(name: str = "delta", **keys: Any) -> Forge:
    return lambda rank: rank.header["vectors"][name].update(keys)


def vectors(name: str = "delta", **keys: Any) -> Forge:
    return lambda rank: [one["vectors"][name].update(keys) for one in rank.headers]


def part(name: str = "delta", **keys: Any) -> Forge:
    return lambda rank: rank.part(name).update(keys)


def another(**keys: Any) -> Forge:
    """Add a part like that of delta."""
    return lambda rank: rank.parts.append({**rank.part(), **keys})


def both(*forges: Forge) -> Forge:
    def forge(rank: Hostile) -> Any:
        return [one(rank) for one in forges][-1]

    return forge


def _renamed(rank: Hostile) -> None:
    for one in rank.headers:
        one["vectors"]["delta2"] = one["vectors"].pop("delta")
    rank.part()["name"] = "delta2"


def _added(rank: Hostile) -> None:
    for one in rank.headers:
        one["vectors"]["delta2"] = dict(one["vectors"]["delta"])
    rank.parts.append({**rank.part(), "name": "delta2"})


def _missing(nth: slice) -> Forge:
    return lambda rank: [one["vectors"].pop("delta") for one in rank.headers[nth]]


def _lengths(change: Callable[[int], int], every: bool = True) -> Forge:
    """Have vectors be of another length, with memory of that length behind it where there can be such."""

    def forge(rank: Hostile) -> None:
        length = change(rank.header["vectors"]["delta"]["length"])
        for one in rank.headers if every else rank.headers[:1]:
            one["vectors"]["delta"]["length"] = length
        if 0 < length < 1 << 30:
            rank.part()["handle"] = _sealed(bytes(8 * length))

    return forge


def _all_fail(rank: Hostile) -> None:
    for one in rank.headers:
        one["fault"] = "the disk is gone"


def _deep(depth: int) -> bytes:
    return b'{"headers": ' + b"[" * depth + b"]" * depth + b"}"


def _serial(step: int) -> Forge:
    return lambda rank: rank.report.update(serial=rank.report["serial"] + step)


def _twice(rank: Hostile) -> Reports:
    second = copy.deepcopy(rank.report)
    second["headers"][0]["weight"] *= 1e6
    return rank.report, second


def _flood(rank: Hostile) -> Reports:
    return (rank.report,) * 50


def _unasked(rank: Hostile) -> Reports:
    """Answer the next request before it is made, as if it were this one."""
    early = copy.deepcopy(rank.report)
    early["serial"] += 1
    return rank.report, early


def _many_scalars(rank: Hostile) -> None:
    rank.header["scalars"].update({f"extra_{n}": 1.0 for n in range(10_000)})


def _as_updates(rank: Hostile) -> None:
    rank.headers[:] = [{"kind": "update", "silo": one["silo"], "weight": 1e6} for one in rank.headers]


def _host_of(text: str) -> Forge:
    return lambda rank: rank.report["about"].update(host=text)


# --- how memory is


SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
ALL_SEALS = SEALS | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def _sealed(content: bytes, seals: int = SEALS) -> int:
    """Return an anonymous file as the package makes them."""
    file = os.memfd_create("mpifl", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, len(content))
    os.pwrite(file, content, 0)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def _content(rank: Hostile) -> bytes:
    handle = rank.part()["handle"]
    return os.pread(handle, os.fstat(handle).st_size, 0)


def _unsealed(rank: Hostile) -> int:
    file = os.memfd_create("mpifl")
    content = _content(rank)
    os.ftruncate(file, len(content))
    os.pwrite(file, content, 0)
    return file


def _file(rank: Hostile) -> int:
    file, path = tempfile.mkstemp()
    os.unlink(path)  # noqa: PTH108 (the file stays open)
    os.pwrite(file, _content(rank), 0)
    return file


def _pipe(rank: Hostile) -> int:
    reader, writer = os.pipe()
    os.close(writer)  # who opens the reader's end again waits for another for ever
    return reader


def handle(made: Callable[[Hostile], int]) -> Forge:
    """Have the part of delta be in another file."""
    return lambda rank: rank.part().update(handle=made(rank))


def written(value: float, name: str = "delta", dtype: str = "f8") -> Forge:
    """Change what lies in a sum that has headers already."""

    def forge(rank: Hostile) -> None:
        file = rank.part(name)["handle"]
        held = os.pread(file, os.fstat(file).st_size, 0)
        rank.undo.append(lambda: os.pwrite(file, held, 0))
        os.pwrite(file, np.full(len(held) // np.dtype(dtype).itemsize, value, dtype).tobytes(), 0)

    return forge


def truncated(rank: Hostile) -> None:
    """Take away the memory that the others have mapped; where it is sealed, nothing happens."""
    file = rank.part()["handle"]
    held = _content(rank)

    def restore() -> None:
        os.ftruncate(file, len(held))
        os.pwrite(file, held, 0)

    try:
        os.ftruncate(file, 0)
    except PermissionError:
        return
    rank.undo.append(restore)


def _vast(rank: Hostile) -> int:
    """Return a file that is not as large as it says, but for its beginning."""
    file, content = os.memfd_create("mpifl", os.MFD_ALLOW_SEALING), _content(rank)
    os.ftruncate(file, 1 << 40)
    os.pwrite(file, content, 0)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    return file


def _gone(rank: Hostile) -> None:
    """Have the file be one that nobody has mapped yet, and gone when some might want to."""
    file = rank.part()["handle"] = _sealed(_content(rank))
    rank.judged.append(lambda: os.close(file))


def _unsealed_and_truncated(rank: Hostile) -> None:
    file = _unsealed(rank)
    rank.part()["handle"] = file
    rank.judged.append(lambda: os.ftruncate(file, 0))


def _swapped(rank: Hostile) -> None:
    """Have the number mean another file as soon as the verdict is there."""
    number = rank.part()["handle"]
    kept = os.dup(number)
    rank.judged.append(lambda: os.dup2(_pipe(rank), number))
    rank.undo.append(lambda: os.dup2(kept, number))


def truncated_when_judged(rank: Hostile) -> None:
    rank.judged.append(lambda: truncated(rank))


def sleeping(seconds: float) -> Forge:
    return lambda rank: rank.judged.append(lambda: time.sleep(seconds))


def stopping(rank: Hostile) -> None:
    rank.judged.append(lambda: os.kill(os.getpid(), signal.SIGSTOP))


# --- how shares of a sum, and sums between nodes, are


def _silent_share(rank: Hostile) -> None:
    """Make one's share of the sum, and never say so."""
    rank.transport.instead_of_done = lambda serial: None


def _no_share(rank: Hostile) -> None:
    """Say that one's share is made as soon as there is a verdict, and make none."""
    rank.transport.no_share = True


def _wrong_done(content: bytes) -> Forge:
    def forge(rank: Hostile) -> None:
        rank.transport.done_as = content

    return forge


def _sum_of(change: Callable[[Any], Any]) -> Forge:
    """Send something else than the sum to the next node."""

    def forge(rank: Hostile) -> None:
        rank.transport.sum_as = change

    return forge


def _share_as(content: bytes | None) -> Forge:
    """End one's share of the columns by other words, or by none."""

    def forge(rank: Hostile) -> None:
        rank.transport.share_as = (content,)

    return forge


def _misplaced(told: Any) -> Any:
    """Digits of 2^2376, which no product of float32 numbers has."""
    told = told.clone()
    told[0] = 99
    return told


def _digits_as(change: Callable[[Any], Any]) -> Forge:
    """Send something else than one's share of the Gram matrix."""

    def forge(rank: Hostile) -> None:
        rank.transport.digits_as = change

    return forge


def _rows_as(change: Callable[[Any], Any]) -> Forge:
    """Send something else than one's silos' columns to other nodes."""

    def forge(rank: Hostile) -> None:
        rank.transport.rows_as = change

    return forge


ATTACKS = [
    # what cannot be read
    Attack("bytes-brace", raw(b"{"), "cannot be read", where=(ONE_NODE, LEADER)),
    Attack("bytes-none", raw(b""), "cannot be read"),
    Attack("bytes-spaces", raw(b" " * 10_000_000), "cannot be read"),
    Attack("bytes-deep", raw(_deep(1_000_000)), "cannot be read"),
    Attack("bytes-not-utf8", raw(b'{"headers": "\xff\xfe"}'), "cannot be read"),
    Attack("bytes-utf16", lambda rank: json.dumps(rank.report).encode("utf-16"), "cannot be read"),
    Attack("bytes-list", raw(b"[1, 2]"), "cannot be read"),
    Attack("bytes-null", raw(b"null"), "cannot be read"),
    Attack("bytes-nan", raw(b"NaN"), "cannot be read"),
    Attack("bytes-binary", raw(bytes(range(256)) * 16), "cannot be read"),
    Attack(
        "bytes-100-mb",
        lambda rank: json.dumps(rank.report).encode().ljust(100_000_000),
        "cannot be read|bytes",
    ),
    Attack("keys-extra", report(owned=True), "owned"),
    Attack("keys-extra-in-header", header(owned=1), "owned"),
    Attack("keys-missing", without("headers"), "silo|headers"),
    Attack("type-headers", report(headers={}), "headers"),
    Attack("type-headers-null", report(headers=None), "headers"),
    Attack("type-parts", report(parts="all"), "parts"),
    Attack("type-weight", header(weight="much"), "weigh"),
    Attack("type-vectors", header(vectors=[]), "vectors"),
    Attack("type-silo-float", lambda rank: rank.header.update(silo=rank.header["silo"] + 0.5), "silo"),
    Attack("type-keeps", header(keeps="yes"), "keeps"),
    Attack("type-interrupted", report(interrupted="now"), "interrupted"),
    # which request it answers
    Attack("serial-of-the-future", _serial(7), "serial|request|answer"),
    Attack("serial-of-before", _serial(-1), "serial|request|answer"),
    Attack("serial-huge", report(serial=HUGE), "serial"),
    Attack("serial-text", report(serial="1"), "serial"),
    Attack("twice", _twice, ends=HARMLESS),
    Attack("fifty-times", _flood, ends=HARMLESS),
    Attack("before-it-is-asked", _unasked, ends=HARMLESS),
    Attack("told-otherwise", report(heard="0" * 32), "told other"),
    # whose update it is
    Attack("silo-foreign", more(lambda rank: {"silo": rank.foreign}), "silo|header"),
    Attack(
        "silo-foreign-fault", more(lambda rank: {"silo": rank.foreign, "fault": "evicted"}), "silo|header"
    ),
    Attack("silo-foreign-instead", lambda rank: rank.header.update(silo=rank.foreign), "silo|header"),
    Attack("silo-not-asked", more(lambda rank: {"silo": rank.spared}), "silo|header"),
    Attack("silo-twice", more(lambda rank: {}), "silo|header|twice"),
    Attack("silo-often", more(*[lambda rank: {}] * 1000), "silo"),
    Attack("silo-unknown", more(lambda rank: {"silo": 10**30}), "silo"),
    Attack("silo-negative", more(lambda rank: {"silo": -1}), "silo"),
    Attack("silo-left-out", lambda rank: rank.headers.pop(0), "silo|header|answer"),
    Attack("silos-left-out", report(headers=[]), "silo|header|answer"),
    # what it weighs
    Attack("weight-1e300", header(weight=1e300), "weigh", where=(ONE_NODE, LEADER)),
    Attack("weight-a-million-times", weight(lambda true: true * 1e6), "weigh"),
    Attack("weight-1.7e308", headers(weight=1.7e308), "weigh"),
    Attack("weight-none", header(weight=0.0), "weigh"),
    Attack("weight-none-at-all", headers(weight=0.0), "weigh"),
    Attack("weight-negative", weight(lambda true: -true), "weigh"),
    Attack("weight-half", weight(lambda true: true / 2), "weigh"),
    Attack("weight-one-ulp", weight(lambda true: float(np.nextafter(true, 2 * true))), "weigh"),
    Attack("weight-nan", header(weight=float("nan")), "weigh"),
    Attack("weight-huge", header(weight=HUGE), "weigh"),
    Attack("weight-of-one-silo", header(weight=1e6), "weigh", asked="one"),
    Attack("counts-alike", vectors(combined="uniform"), "uniform|weigh|alike", STOPPED),
    Attack("counts-not-alike", vectors("shift", combined="weighted"), "uniform|weigh|alike", STOPPED),
    # which vectors it sends
    Attack("vector-renamed", _renamed, "delta", ends=STOPPED),
    Attack("vector-renamed-by-most", _renamed, "delta", asked="most", ends=STOPPED),
    Attack("vector-added", _added, "delta2", ends=STOPPED),
    Attack("vector-missing", _missing(slice(1)), "delta", ends=STOPPED),
    Attack("vector-missing-of-all", _missing(slice(None)), "delta", ends=STOPPED),
    Attack("vectors-missing", header(vectors={}), "delta|vector", ends=STOPPED),
    Attack("length-short", _lengths(lambda true: true - 1, every=False), "element|length"),
    Attack("length-long", _lengths(lambda true: true + 1, every=False), "element|length"),
    Attack("length-short-of-all", _lengths(lambda true: true - 1), "element|length"),
    Attack("length-long-by-most", _lengths(lambda true: true + 1), "element|length", asked="most"),
    Attack("length-none", _lengths(lambda true: 0), "element|length"),
    Attack("length-2^62", _lengths(lambda true: 1 << 62), "element|length", asked="most"),
    Attack("length-negative", _lengths(lambda true: -1), "element|length"),
    Attack("length-huge", _lengths(lambda true: HUGE), "element|length"),
    Attack("window-100000", both(vectors(window=100_000), part(window=100_000)), "window"),
    Attack("window-below", both(vectors(window=-100_000), part(window=-100_000)), "window"),
    Attack("window-huge", both(vectors(window=HUGE), part(window=HUGE)), "window"),
    Attack("window-in-header-alone", vectors(window=3), "window|part|sum"),
    Attack("window-none-with-a-part", vectors(window=None), "window|part|sum"),
    Attack("window-without-a-part", lambda rank: rank.parts.remove(rank.part()), "window|part|sum"),
    Attack("bytes-of-payload-negative", vector(bytes=-1), "bytes"),
    Attack("bytes-of-payload-huge", vector(bytes=10**15), "bytes|payload"),
    # which sums it sends
    Attack("part-of-no-vector", another(name="delta2"), "part|sum|delta2"),
    Attack("part-twice", another(), "part|sum|delta|window"),
    Attack(
        "part-in-another-window",
        lambda rank: another(window=rank.part()["window"] - 1)(rank),
        "part|sum|window",
    ),
    Attack("part-of-failed-silos", _all_fail, "part|sum|disk"),
    Attack("parts-ten-thousand", lambda rank: rank.parts.extend([rank.part()] * 10_000), "part|sum"),
    Attack("part-weighs", part(weight=1e6), "weigh|part|sum"),
    Attack("part-alone-weighs-more", part(weight=1e6), "weigh|part|sum", asked="one"),
    Attack(
        "part-alone-weighs-double",
        lambda rank: part(weight=2 * rank.part()["weight"])(rank),
        "weigh",
        asked="one",
    ),
    Attack("part-alone-weighs-nothing", part(weight=0.0), "weigh|part|sum|segment|memory", asked="one"),
    # where they lie
    Attack("handle-2^40", part(handle=1 << 40), "handle|cannot be read"),
    Attack("handle-2^63", part(handle=1 << 63), "handle|cannot be read"),
    Attack("handle-huge", part(handle=HUGE), "handle|cannot be read"),
    Attack("handle-negative", part(handle=-1), "handle|cannot be read"),
    *(
        Attack(f"file-{name}", forge, "cannot be read|sealed|suspected", MISPLACED)
        for name, forge in [
            ("none", part(handle=0)),
            ("not-open", part(handle=9999)),
            ("on-disk", handle(_file)),
            ("pipe", handle(_pipe)),
            ("folder", handle(lambda rank: os.open("/", os.O_RDONLY))),
            ("device", handle(lambda rank: os.open("/dev/zero", os.O_RDWR))),
            ("socket", handle(lambda rank: socket.socket().detach())),
            ("unsealed", handle(_unsealed)),
            ("unsealed-then-truncated", _unsealed_and_truncated),
            ("sealed-by-half", handle(lambda rank: _sealed(_content(rank), fcntl.F_SEAL_GROW))),
            ("too-small", handle(lambda rank: _sealed(bytes(8)))),
            ("empty", handle(lambda rank: _sealed(b""))),
        ]
    ),
    Attack(
        "file-sealed-against-writing", handle(lambda rank: _sealed(_content(rank), ALL_SEALS)), ends=HARMLESS
    ),
    Attack("file-of-a-tebibyte", handle(_vast), ends=HARMLESS),
    Attack("file-gone-when-judged", _gone, ends=HARMLESS),
    Attack("memory-truncated", truncated, ends=HARMLESS),
    Attack("memory-truncated-when-judged", truncated_when_judged, ends=HARMLESS),
    Attack("memory-swapped-when-judged", _swapped, ends=HARMLESS),
    Attack("sum-nan", written(float("nan")), ends=STOPPED),
    Attack("sum-inf", written(float("inf"), "shift"), ends=STOPPED),
    Attack("sum-1e300", written(1e300), ends=STOPPED),
    Attack("sum-nan-of-one-silo", written(float("nan"), dtype="f4"), ends=STOPPED, asked="one"),
    Attack("share-never-told", _silent_share, ends=HARMLESS),
    Attack("share-never-made", _no_share, ends=STOPPED),
    Attack("share-told-falsely", _wrong_done(b"\xff" * 1000), ends=HARMLESS),
    Attack("share-told-emptily", _wrong_done(b""), ends=HARMLESS),
    Attack("sum-between-nodes-short", _sum_of(lambda total: total[:-7]), ends=STOPPED, where=(LEADER,)),
    Attack("sum-between-nodes-long", _sum_of(lambda total: total.repeat(3)), ends=STOPPED, where=(LEADER,)),
    Attack("sum-between-nodes-empty", _sum_of(lambda total: total[:0]), ends=STOPPED, where=(LEADER,)),
    Attack(
        "sum-between-nodes-nan", _sum_of(lambda total: total * float("nan")), ends=STOPPED, where=(LEADER,)
    ),
    Attack("asleep-when-judged", sleeping(DEADLINE + 1), ends=HARMLESS, where=(ONE_NODE, LEADER)),
    Attack("stopped-when-judged", stopping, ends=HARMLESS, where=()),
    # what a rank does whose silos' vectors are compared, and that makes columns of the result
    Attack("row-of-no-vector", another(name="delta2"), "vectors are not those", where=(MEDIAN,)),
    Attack("row-twice", another(), "vectors are not those", where=(MEDIAN, MEDIAN_NODES)),
    Attack(
        "row-missing", lambda rank: rank.parts.remove(rank.part()), "vectors are not those", where=(MEDIAN,)
    ),
    Attack(
        "row-foreign", lambda rank: part(silo=rank.foreign)(rank), "vectors are not those", where=(MEDIAN,)
    ),
    Attack(
        "rows-ten-thousand",
        lambda rank: rank.parts.extend([rank.part()] * 10_000),
        "vectors",
        where=(MEDIAN,),
    ),
    Attack("row-unreadable", part(silo="first"), "vectors cannot be read", where=(MEDIAN,)),
    *(
        Attack(f"row-{name}", forge, "cannot be read|suspected", MISPLACED, where=(MEDIAN, *farther))
        for name, forge, *farther in [
            ("not-open", part(handle=9999), MEDIAN_NODES),
            ("on-disk", handle(_file)),
            ("pipe", handle(_pipe), MEDIAN_NODES),
            ("unsealed", handle(_unsealed)),
            ("too-small", handle(lambda rank: _sealed(bytes(8)))),
            ("empty", handle(lambda rank: _sealed(b"")), MEDIAN_NODES),
        ]
    ),
    Attack("row-sent-and-not-read", part(handle=0), ends=HARMLESS, where=(MEDIAN, MEDIAN_NODES)),
    Attack("row-truncated-when-judged", truncated_when_judged, ends=HARMLESS, where=(MEDIAN,)),
    Attack("row-gone-when-judged", _gone, ends=HARMLESS, where=(MEDIAN,)),
    Attack("row-nan", written(float("nan"), dtype="f4"), ends=STOPPED, where=(MEDIAN, MEDIAN_NODES)),
    Attack("row-inf", written(float("inf"), "shift", dtype="f4"), ends=STOPPED, where=(MEDIAN,)),
    Attack("columns-never-told", _share_as(None), ends=HARMLESS, where=(MEDIAN,)),
    Attack("columns-told-in-bytes", _share_as(b"\xff" * 1000), ends=HARMLESS, where=(MEDIAN,)),
    Attack("columns-told-at-length", _share_as(b" " * 10_000_000), ends=HARMLESS, where=(MEDIAN,)),
    Attack(
        "columns-blame-others",
        _share_as(b'{"fault": "x", "suspects": [2, 99]}'),
        ends=HARMLESS,
        where=(MEDIAN,),
    ),
    Attack("rows-sent-short", _rows_as(lambda vector: vector[:-7]), ends=STOPPED, where=(MEDIAN_NODES,)),
    Attack("rows-sent-long", _rows_as(lambda vector: vector.repeat(3)), ends=STOPPED, where=(MEDIAN_NODES,)),
    Attack(
        "rows-sent-nan", _rows_as(lambda vector: vector * float("nan")), ends=STOPPED, where=(MEDIAN_NODES,)
    ),
    Attack("columns-asleep", sleeping(DEADLINE + 2), ends=HARMLESS, where=(MEDIAN,)),
    Attack("columns-asleep-elsewhere", sleeping(DEADLINE + 2), ends=STOPPED, where=(MEDIAN_NODES,)),
    Attack("digits-short", _digits_as(lambda told: told[:-3]), ends=STOPPED, where=(RFA, RFA_NODES)),
    Attack("digits-long", _digits_as(lambda told: told.repeat(1000)), ends=HARMLESS, where=(RFA,)),
    Attack("digits-elsewhere", _digits_as(_misplaced), ends=STOPPED, where=(RFA,)),
    # what numbers it sends
    *(
        Attack(f"scalar-{name}", all_scalars(**{name: value}), name)
        for name, value in {
            "test_accuracy": 1.0,
            "test_loss": 0.0,
            "round": 999,
            "time": 0.0,
            "seconds": 1.0,
            "faults": 0.0,
            "wire_sent": 5.0,
            "bytes_received": 7,
            "seconds_training": 1.0,
            "silo_accuracy_worst": 1.0,
            "attempts_lost": 1.0,
            "ranks_lost": 1.0,
        }.items()
    ),
    Attack("scalar-text", scalars(train_loss="abc"), "train_loss"),
    Attack("scalar-text-of-all", all_scalars(train_loss="abc"), "train_loss"),
    Attack("scalar-nan", scalars(train_loss=float("nan")), "train_loss"),
    Attack("scalar-inf", scalars(train_loss=float("inf")), "train_loss"),
    Attack("scalar-1e120", all_scalars(train_loss=1e120), "train_loss"),
    Attack("scalar-1e308", all_scalars(train_loss=1.7e308), "train_loss"),
    Attack(
        "scalar-1e308-and-back",
        lambda rank: [
            one["scalars"].update(train_loss=1.7e308 * (-1) ** nth) for nth, one in enumerate(rank.headers)
        ],
        "train_loss",
    ),
    Attack("scalar-huge", scalars(train_loss=HUGE), "train_loss"),
    Attack("scalar-list", scalars(train_loss=[1.0]), "train_loss"),
    Attack("scalar-name-of-1-mb", scalars(**{"extra_" + "x" * 1_000_000: 1.0}), "scalar"),
    Attack("scalar-name-empty", scalars(**{"": 1.0}), "scalar"),
    Attack("scalar-name-of-control-characters", scalars(**{ANSI: 1.0}), "scalar"),
    Attack("scalar-name-half-a-character", scalars(**{"extra_\ud800": 1.0}), "scalar|cannot be read"),
    Attack("scalar-text-of-1-mb", scalars(extra_text="x" * 1_000_000), "extra_text"),
    Attack("scalars-ten-thousand", _many_scalars, "scalars"),
    Attack("scalar-of-its-own", all_scalars(extra_number=1.0), ends=HARMLESS),
    # what it says of itself
    Attack(
        "fault-of-control-characters", both(_all_fail, header(fault=ANSI), report(parts=[])), "all is well"
    ),
    Attack("fault-of-half-a-character", both(headers(fault="\ud800"), report(parts=[])), ""),
    Attack("fault-of-10-mb", both(headers(fault="x" * 10_000_000), report(parts=[])), ""),
    Attack("fault-empty", both(headers(fault=""), report(parts=[])), ""),
    Attack("keeps", headers(keeps=True), ends=HARMLESS),
    Attack("seconds-of-silos-huge", headers(seconds=1e300), "seconds", ends=HARMLESS),
    Attack("seconds-of-silos-negative", headers(seconds=-1e300), "seconds", ends=HARMLESS),
    Attack("seconds-of-silos-nan", headers(seconds=float("nan")), "seconds"),
    Attack("seconds-huge", report(seconds=1e300), "seconds", ends=HARMLESS),
    Attack("seconds-of-30-years", both(report(seconds=9e8), headers(seconds=9e8)), "seconds", ends=HARMLESS),
    Attack("seconds-negative", report(seconds=-1e300), "seconds", ends=HARMLESS),
    Attack("about-unasked", report(about={"host": "x" * 1_000_000}), "about", ends=HARMLESS),
    # how it scores
    Attack("score-weighs-a-million", headers(weight=1e6), "weigh", at="evaluate"),
    Attack("score-unreadable", raw(b"{"), "cannot be read", at="evaluate"),
    Attack("score-text", all_scalars(silo_accuracy="abc"), "silo_accuracy", at="evaluate"),
    Attack("score-1e308", all_scalars(silo_loss=1.7e308), "silo_loss", at="evaluate"),
    Attack("score-1e270", scalars(silo_loss=1e270), "silo_loss", at="evaluate"),
    Attack("score-twice", more(lambda rank: {}), "silo|header|twice", at="evaluate"),
    Attack(
        "score-with-a-vector",
        headers(vectors={"a": {"length": 4, "window": None}}),
        "vector|'a'",
        at="evaluate",
    ),
    # what it says of its shards and files
    Attack("starting-control-characters", raw(ANSI.encode() * 100), ends=HARMLESS, at="start", where=()),
    Attack("starting-unreadable", raw(b"\xff\xfe"), ends=HARMLESS, at="start", where=()),
    Attack("opening-nowhere", report(about={}), "where|about", at="open"),
    Attack("opening-unreadable", raw(b"{"), "cannot be read", at="open", where=(LEADER,)),
    Attack("opening-control-characters", _host_of(ANSI * 1000), ends=HARMLESS, at="open", where=()),
    Attack("saving-unreadable", raw(b"{"), "cannot be read", at="save", where=(LEADER,)),
    Attack("saving-text", headers(writing="abc"), ends=HARMLESS, at="save", where=(LEADER,)),
    Attack(
        "saving-for-others", more(lambda rank: {"silo": rank.foreign}), "silo", at="save", where=(LEADER,)
    ),
    Attack("saved-nothing", headers(sha256=None), "written", at="save_status", where=(LEADER,)),
    Attack("saving-for-ever", headers(writing=True, sha256=None), "wait", at="save_status", where=(LEADER,)),
    Attack("saved-with-a-number", headers(sha256=5), "sha256", at="save_status", where=(LEADER,)),
    Attack("saved-unreadable", raw(b""), "cannot be read", at="save_status", where=(LEADER,)),
    Attack("saved-with-a-path", headers(sha256="../" * 22), "sha256", at="save_status", where=(LEADER,)),
    Attack("saved-as-if-trained", _as_updates, "not asked", at="save_status", where=(LEADER,)),
    Attack("saved-for-others", more(lambda rank: {"silo": 99}), "silo", at="save_status", where=(LEADER,)),
    Attack("finishing-unreadable", raw(b"{"), ends=HARMLESS, at="finish"),
    Attack("finishing-with-a-number", headers(unwritten=5), ends=HARMLESS, at="finish", where=(LEADER,)),
    Attack(
        "finishing-control-characters", headers(unwritten=ANSI * 100), ends=HARMLESS, at="finish", where=()
    ),
    Attack("stopping-unreadable", raw(b"{"), ends=HARMLESS, at="stop"),
    Attack("stopping-often", _flood, ends=HARMLESS, at="stop", where=(LEADER,)),
]
ONCE = ("start", "open", "finish", "stop")
"""What is asked once in a training: one attack on each in a world."""
