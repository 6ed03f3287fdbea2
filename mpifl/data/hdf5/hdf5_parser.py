"""The program in which HDF5 files are parsed: one a rank, run by `hdf5_process`, imported by nobody.

HDF5 loops for ever on some files of one wrong byte, and dies of others. A signal's handler in Python does not
run in such a loop, and a rank may not fork; so a rank starts this, and never has HDF5 open a file itself. It
is sent requests over its standard input, a socket, each with a file. It has no threads and no MPI, so that it
may fork: each request is awaited and carried out by a process of its own, which no file before has harmed.
That sends its answer, records (8 bytes of length, JSON) and data; behind them comes a record of what that
process died of, 0 if of nothing.

What limits that process (`setrlimit`) is for accidents; it keeps no program out that has taken it over.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

MOST_REQUEST = 1 << 16
"""Bytes of a request."""
PARSE_SECONDS = 3
"""Processor time for a file's structure, and as much for each 16 MiB that are read."""
PARSE_BYTES = 256 << 20
"""Memory for a file's structure, beside what the program takes; to read a piece, four times the piece more.
"""
OPEN_FILES = 5
"""Standard streams, the file as it was sent and as HDF5 opens it; for another file there is no room."""

_NOBODY_ASKS = 1 << 8
"""Status of a process that was to answer a request, when no more will come."""


def main() -> None:
    """Have requests answered until nobody is left to ask."""
    os.setpgrp()  # whoever kills it kills with it what it has started
    link = socket.socket(fileno=0)
    sys.path[:] = json.loads(sys.argv[1])
    try:
        import h5py  # noqa: F401 - here, since it may be missing, and that is told

        with contextlib.suppress(ImportError):
            import hdf5plugin  # noqa: F401 - its import makes lz4, zstd, ... known to HDF5
    except Exception as error:
        _send(link, {"error": f"{type(error).__name__}: {error}"})
        return
    gc.disable()
    gc.freeze()  # a search for garbage would copy all pages after each fork
    _send(link, {})
    while (child := os.fork()) and (status := os.waitpid(child, 0)[1]) != _NOBODY_ASKS:
        _send(link, {"died": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})
    if not child:
        _answer(link)


def _answer(link: socket.socket) -> None:
    """Wait for a request, answer it and end."""
    message, files, _, _ = socket.recv_fds(link, MOST_REQUEST, 1)
    if not message:
        os._exit(os.waitstatus_to_exitcode(_NOBODY_ASKS))
    try:
        request = json.loads(message)
        _limit(request.get("bytes", 0))
        for answer, data in _act(request, files[0]):
            _send(link, answer, data)
    except Exception as error:
        _send(link, {"error": " ".join(str(error).split()) or type(error).__name__})
    finally:
        os._exit(0)


def _limit(reading: int) -> None:
    """Have this process take little memory, write nothing, open no other file and end soon."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    for what, most in (
        (resource.RLIMIT_AS, _own_memory() + PARSE_BYTES + 4 * reading),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):  # more than is allowed anyway
            resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
    _allow_time(reading)


def _allow_time(reading: int) -> None:
    """Have this process end by itself if it is busy for longer from now on."""
    seconds = math.ceil(time.process_time()) + PARSE_SECONDS * (1 + (reading >> 24))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _act(request: dict[str, Any], file: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Carry out a request for an open file; yield the records of the answer with what follows each."""
    import h5py

    with h5py.File(f"/dev/fd/{file}", "r", locking=False) as opened:
        if "set" not in request:
            yield _look(opened, request["attributes"], request["sets"]), b""
            return
        for piece in _pieces(h5py.Dataset(_find(opened, request["set"])), request["step"]):
            yield {}, piece
            _allow_time(request["bytes"])


def _look(file: Any, attributes: list[str], names: list[str]) -> dict[str, Any]:
    """Tell the attributes of a file and the data sets that it has of some."""
    found = {name: _find(file, name) for name in names}
    return {
        "attributes": {name: _plain(file.attrs[name]) for name in attributes if name in file.attrs},
        "sets": {name: _facts(name, one) for name, one in found.items() if one is not None},
    }


def _plain(value: Any) -> int | str | None:
    value = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    return value[:100] if isinstance(value, str) else value if isinstance(value, int) else None


def _find(file: Any, name: str) -> Any:
    """Open what lies under a name in this very file; None if nothing does.
    No link that is a name is followed."""
    import h5py

    kinds = {h5py.h5l.TYPE_SOFT: "a soft link", h5py.h5l.TYPE_EXTERNAL: "an external link"}
    found, where = h5py.h5g.open(file.id, b"/"), ""
    for part in name.split("/"):
        if not isinstance(found, h5py.h5g.GroupID):
            raise ValueError(f"{where[1:]} is no group")
        where = f"{where}/{part}"
        if not found.links.exists(part.encode()):
            return None
        if (kind := found.links.get_info(part.encode()).type) != h5py.h5l.TYPE_HARD:
            raise ValueError(f"{where[1:]} is {kinds.get(kind, 'a link')}; a shard holds its data itself")
        found = h5py.h5o.open(found, part.encode())
    return found


def _facts(name: str, found: Any) -> dict[str, Any]:
    """Tell form and place of a data set whose data lie in this very file."""
    import h5py

    if not isinstance(found, h5py.h5d.DatasetID):
        raise ValueError(f"{name} is no data set")
    made = found.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL:
        raise ValueError(f"{name} is a virtual data set; a shard holds its data itself")
    if made.get_external_count():
        raise ValueError(f"{name} has external storage; a shard holds its data itself")
    kind = found.get_type()
    if kind.dtype.kind not in "iuf" or not kind.equal(h5py.h5t.py_create(kind.dtype)):
        raise ValueError(f"{name} is of a type {kind.dtype}")
    chunked = made.get_layout() == h5py.h5d.CHUNKED
    return {
        "shape": found.shape,
        "dtype": kind.dtype.str,
        "offset": found.get_offset() if made.get_layout() == h5py.h5d.CONTIGUOUS else None,
        "chunk": made.get_chunk()[0] if chunked else 1,
        "readable": all(h5py.h5z.filter_avail(made.get_filter(i)[0]) for i in range(made.get_nfilters())),
    }


def _pieces(dataset: Any, step: int) -> Iterator[memoryview]:
    """Yield the rows of a data set, `step` at a time, as native numbers;
    each piece is gone with the next one."""
    import numpy as np

    buffer = np.empty((min(step, len(dataset)), *dataset.shape[1:]), dataset.dtype.newbyteorder("="))
    for first in range(0, len(dataset), step):
        piece = buffer[: min(step, len(dataset) - first)]
        dataset.read_direct(piece, np.s_[first : first + len(piece)])
        yield piece.data.cast("B")


def _own_memory() -> int:
    """Return the bytes of address space that this process has by now."""
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123 - no pathlib: it takes longer to import than this to run
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 1 << 40


def _send(link: socket.socket, answer: dict[str, Any], data: Any = b"") -> None:
    record = json.dumps(answer).encode()
    link.sendall(len(record).to_bytes(8, "little") + record)
    link.sendall(data)


if __name__ == "__main__":
    main()
