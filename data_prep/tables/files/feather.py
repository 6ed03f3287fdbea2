"""Files of Arrow, as Feather ones are: their batches of rows, unpacked only where they promise no flood."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_prep.tables.files import lines as limits
from data_prep.tables.files.arrow import library
from data_prep.tables.files.unpacking import check_unpacked

FILE = b"ARROW1"
"""What a file begins with; a stream has its first message there."""
RECORDS, DICTIONARY = 3, 2
"""Kinds of messages that have values (Arrow's Message.fbs)."""


@contextmanager
def opened_feather(path: Path) -> Iterator[Any]:
    """Lend a reader of a file or stream of Arrow; raise InputError if it would unpack to too much."""
    arrow = library()
    with arrow.memory_map(str(path)) as file:
        is_file = file.read(len(FILE)) == FILE
        file.seek(8 if is_file else 0)
        check_unpacked(path, "columns", _promised(file))
        file.seek(0)
        yield (arrow.ipc.open_file if is_file else arrow.ipc.open_stream)(file)


def batches_of(reader: Any, columns: list[str]) -> Iterator[Any]:
    """Yield the rows of some columns, some at a time; raise ArrowInvalid for what is not whole."""
    numbered = hasattr(reader, "get_batch")
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if numbered else reader:
        chosen = batch.select(columns)
        chosen.validate(full=True)  # a damaged file may point anywhere
        for first in range(0, len(chosen), limits.ROWS):
            yield chosen.slice(first, limits.ROWS)


def _promised(file: Any) -> int:
    """Return the bytes that all dictionaries and the largest batch of rows have when unpacked."""
    kept, most = 0, 0
    for message in library().ipc.MessageReader.open_stream(file):
        kind, size = _unpacked(message.metadata.to_pybytes(), message.body)
        kept += size * (kind == DICTIONARY)
        most = max(most, size * (kind == RECORDS))
    return kept + most


def _unpacked(head: bytes, body: Any) -> tuple[int, int]:
    """Return the kind of a message, and the bytes of its buffers: packed ones begin with theirs; raise
    ArrowInvalid if its head is damaged."""
    try:
        message = _ArrowTable(head, *struct.unpack_from("<I", head))
        kind, records = head[message.field(1)], message.below(2)
        if kind not in (RECORDS, DICTIONARY):
            return kind, 0
        records = records.below(1) if kind == DICTIONARY else records
        if not records.field(3):
            return kind, 0 if body is None else body.size
        at = records.below(2).at
        (count,) = struct.unpack_from("<I", head, at)
        places = struct.iter_unpack("<qq", head[at + 4 : at + 4 + 16 * count])
        return kind, sum(_size(body, start, length) for start, length in places if length)
    except (struct.error, IndexError) as error:
        raise library().ArrowInvalid(f"a damaged message: {error}") from None


def _size(body: Any, start: int, length: int) -> int:
    """Return the bytes that a packed buffer has when unpacked; -1 in front says that it is not packed."""
    (size,) = struct.unpack_from("<q", body, start)
    return int(length if size == -1 else size)


class _ArrowTable:
    """A table of a flatbuffer, as far as its fields are found."""

    def __init__(self, head: bytes, at: int) -> None:
        self._head, self.at = head, at

    def field(self, number: int) -> int:
        """Return where a field stands; 0 if it is not there."""
        (back,) = struct.unpack_from("<i", self._head, self.at)
        entries, entry = self.at - back, 4 + 2 * number
        (size,) = struct.unpack_from("<H", self._head, entries)
        (offset,) = struct.unpack_from("<H", self._head, entries + entry) if entry < size else (0,)
        return self.at + offset if offset else 0

    def below(self, number: int) -> _ArrowTable:
        """Return the table, or the vector, that a field leads to."""
        at = self.field(number)
        return _ArrowTable(self._head, at + struct.unpack_from("<I", self._head, at)[0])
