"""A record on the disk of what is done, so that an interrupted partition can continue."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.dataset import Beside
from data_prep.write.layout import Section
from data_prep.write.writing import sync_file
from mpifl.common import InputError
from mpifl.data import Ragged
from mpifl.data.shards import ShardEntry

FILE = "resume.jsonl"
EVERY = 5.0
"""Seconds between two records: before each, all that was written must have reached the disk."""


class Ledger:
    """The record of one partition: what it was asked for, which pieces are written and which shards are
    finished.

    It is a file of a JSON object a line in the folder that is kept; without that folder nothing is recorded.
    A last line that was cut short counts as not written.
    """

    def __init__(self, folder: Path | None, asked: dict[str, Any]) -> None:
        self.pieces: set[str] = set()
        self.shards: dict[str, ShardEntry] = {}
        self.laid_out = False
        self._pieces: list[str] = []
        self._finished: dict[str, Callable[[], None]] = {}
        self._folder, self._last = folder, time.monotonic()
        if folder:
            self._file = _opened(folder / FILE)
            try:
                self._lock(folder)
                self._read(folder, asked)
            except BaseException:
                self.close()
                raise

    def _lock(self, folder: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"--resume: {folder} is being written by another run; wait for it, or stop it"
            ) from None

    def _read(self, folder: Path, asked: dict[str, Any]) -> None:
        """Take over the records there are; the first one says what was asked for."""
        content = (folder / FILE).read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        os.ftruncate(self._file, len(whole))
        asked = json.loads(json.dumps(asked))
        for number, line in enumerate(whole.splitlines()):
            try:
                record = dict(json.loads(line))
                if number == 0:
                    _compare(folder, record, asked)
                self._take(record)
            except (ValueError, TypeError, RecursionError):
                what = f"{folder / FILE}: line {number + 1} is damaged"
                raise InputError(f"--resume: {what}; remove {folder}, and begin again") from None
        if not whole:
            self._append(asked)

    def _take(self, record: dict[str, Any]) -> None:
        self.laid_out |= "laid_out" in record
        self.pieces.update(record.get("pieces", ()))
        entries = map(ShardEntry.model_validate, record.get("entries", ()))
        self.shards.update({entry.file: entry for entry in entries})

    def note_laid_out(self) -> None:
        """Record that all files are there, to be filled."""
        self._append({"laid_out": True})

    def note_piece(self, name: str, sync: Callable[[], None]) -> None:
        """Record a written piece, some time soon; `sync` brings what was written to the disk first."""
        self._pieces.append(name)
        if time.monotonic() - self._last > EVERY:
            self.flush(sync)

    def note_shard(self, entry: ShardEntry, settle: Callable[[], None]) -> None:
        """Record a finished shard, some time soon; `settle` removes what it was made from,
        which is kept until then."""
        self.shards[entry.file] = entry
        self._finished[entry.file] = settle
        if not self._folder or time.monotonic() - self._last > EVERY:
            self.flush(lambda: None)

    def flush(self, sync: Callable[[], None]) -> None:
        """Record the pieces and shards that are not recorded yet."""
        if self._folder:
            if self._pieces:
                sync()
            for file in self._finished:
                sync_file(self._folder / file)
            entries = [self.shards[file].model_dump() for file in self._finished]
            self._append({"pieces": self._pieces, "entries": entries})
        for settle in self._finished.values():
            settle()
        self._pieces, self._finished, self._last = [], {}, time.monotonic()

    def _append(self, record: dict[str, Any]) -> None:
        if self._folder:
            os.write(self._file, json.dumps(record).encode() + b"\n")
            os.fsync(self._file)

    def close(self) -> None:
        """Let go of the file."""
        if self._folder:
            os.close(self._file)


def _opened(path: Path) -> int:
    """Open the record, to read it and to append; it must be no link, which might lead to another's file."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise InputError(
            f"--resume: {path} cannot be written ({error.strerror}); remove {path.parent}"
        ) from None


def digest_of(sections: Sequence[Section]) -> str:
    """Hash which examples go where, and their labels: what a partition is,
    whatever the arguments were called."""
    digest = hashlib.blake2b(digest_size=16)
    for section in sections:
        digest.update(f"{section.file} {section.split} {len(section)};".encode())
        if section.groups is not None:
            digest.update(section.groups.tobytes())
        for array in section.given.arrays.values() if section.given else ():
            digest.update(array.tobytes())
        for bucket in section.buckets:  # labels may lie in a mapped file, larger than memory
            ids = section.ids[bucket.start : bucket.stop].astype("int64", copy=False)
            digest.update(ids.tobytes())
            for labels in _arrays(section.labels[ids]):
                whole = labels.astype("int64", copy=False) if labels.dtype.kind in "iu" else labels
                digest.update(whole.tobytes())
    return digest.hexdigest()


def _arrays(labels: Any) -> Iterator[np.ndarray]:
    """Yield the arrays that targets lie in: of ragged ones the lengths, and the rows."""
    if isinstance(labels, Beside):
        for one in labels.arrays.values():
            yield from _arrays(one)
    elif isinstance(labels, Ragged):
        yield from (labels.lengths, labels.joined)
    else:
        yield labels


def _compare(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    for key in now:
        if before.get(key) != now[key]:
            changed = f"{folder} was begun with {key} {before.get(key)}, now it is {now[key]}"
            raise InputError(f"--resume: {changed}; repeat the first arguments, or remove that folder")
