"""The program that parses HDF5 files: one for each rank, started by `hdf5_process`, imported by nobody.

One wrong byte can make HDF5 loop for ever or crash. A Python signal handler does not run in such a loop, and
a rank must not fork. So a rank starts this program, and HDF5 never opens a file in the rank itself. The
program gets requests over its standard input, a socket, each with a file. It has no threads and no MPI, so it
may fork. Each request is awaited and answered by a new child process, which no earlier file can have harmed.
The child sends its answer: records (8 bytes of length, JSON) and data. After them the program sends a record
with the signal that killed the child, or 0.

The child's limits (`setrlimit`) are for accidents. They do not stop an attacker who controls the child.
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
"""The most bytes in a request."""
PARSE_SECONDS = 3
"""Seconds of processor time for a file's structure, and again for each 16 MiB that are read."""
PARSE_BYTES = 256 << 20
"""Memory for a file's structure, beyond the program's own. Reading a piece may take four times its size more.
"""
OPEN_FILES = 5
"""The standard streams, the sent file, and the file as HDF5 opens it. No other file can be opened."""

_NOBODY_ASKS = 1 << 8
"""The exit status of a child when no more requests will come."""


def main() -> None:
    """Answer requests until the rank closes the socket."""
    os.setpgrp()  # so that a kill of this group also kills its children
    link = socket.socket(fileno=0)
    sys.path[:] = json.loads(sys.argv[1])
    try:
        import h5py  # noqa: F401 - here, since it may be missing, which is reported

        with contextlib.suppress(ImportError):
            import hdf5plugin  # noqa: F401 - its import makes lz4, zstd, ... known to HDF5
    except Exception as error:
        _send(link, {"error": f"{type(error).__name__}: {error}"})
        return
    gc.disable()
    gc.freeze()  # garbage collection would copy all pages after each fork
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
    """Limit this process: little memory, no writing, no other file, little time."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    for what, most in (
        (resource.RLIMIT_AS, _own_memory() + PARSE_BYTES + 4 * reading),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):  # above the limit that already holds
            resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
    _allow_time(reading)


def _allow_time(reading: int) -> None:
    """Limit this process's processor time from now on."""
    seconds = math.ceil(time.process_time()) + PARSE_SECONDS * (1 + (reading >> 24))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _act(request: dict[str, Any], file: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Carry out a request for an open file; yield the answer's records, each with the data that follow it."""
    import h5py

    with h5py.File(f"/dev/fd/{file}", "r", locking=False) as opened:
        if "set" not in request:
            yield _look(opened, request["attributes"], request["sets"]), b""
            return
        for piece in _pieces(h5py.Dataset(_find(opened, request["set"])), request["step"]):
            yield {}, piece
            _allow_time(request["bytes"])


def _look(file: Any, attributes: list[str], names: list[str]) -> dict[str, Any]:
    """Return a file's attributes, and the facts of those of the named data sets that it has."""
    found = {name: _find(file, name) for name in names}
    return {
        "attributes": {name: _plain(file.attrs[name]) for name in attributes if name in file.attrs},
        "sets": {name: _facts(name, one) for name, one in found.items() if one is not None},
    }


def _plain(value: Any) -> int | str | None:
    value = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    return value[:100] if isinstance(value, str) else value if isinstance(value, int) else None


def _find(file: Any, name: str) -> Any:
    """Open the object of a name in this file; None if there is none. Soft and external links are refused."""
    import h5py

    kinds = {h5py.h5l.TYPE_SOFT: "a soft link", h5py.h5l.TYPE_EXTERNAL: "an external link"}
    found, where = h5py.h5g.open(file.id, b"/"), ""
    for part in name.split("/"):
        if not isinstance(found, h5py.h5g.GroupID):
            raise ValueError(f"{where[1:]} is not a group")
        where = f"{where}/{part}"
        if not found.links.exists(part.encode()):
            return None
        if (kind := found.links.get_info(part.encode()).type) != h5py.h5l.TYPE_HARD:
            raise ValueError(f"{where[1:]} is {kinds.get(kind, 'a link')}; a shard holds its data itself")
        found = h5py.h5o.open(found, part.encode())
    return found


def _facts(name: str, found: Any) -> dict[str, Any]:
    """Return the form and the place of a data set whose data are in this file."""
    import h5py

    if not isinstance(found, h5py.h5d.DatasetID):
        raise ValueError(f"{name} is not a data set")
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
    """Yield the rows of a data set, `step` at a time, as native numbers. The next piece overwrites the last
    one."""
    import numpy as np

    buffer = np.empty((min(step, len(dataset)), *dataset.shape[1:]), dataset.dtype.newbyteorder("="))
    for first in range(0, len(dataset), step):
        piece = buffer[: min(step, len(dataset) - first)]
        dataset.read_direct(piece, np.s_[first : first + len(piece)])
        yield piece.data.cast("B")


def _own_memory() -> int:
    """Return the bytes of address space that this process uses now."""
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
