"""`metrics.jsonl` of a run folder: a line for each round."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

from mpifl.common import LARGEST_FIGURE, InputError, read_whole, write_needed


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the records of rounds in `metrics.jsonl`; skip torn lines and lines without a round.

    Raises:
        InputError: the file cannot be read.
    """
    path = folder / "metrics.jsonl"
    try:
        lines = read_whole(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return [record for line in lines if (record := _record(line)) is not None]


class GrowingMetrics:
    """`metrics.jsonl` of a running training: each look reads the lines since the last look.

    A line counts when it is complete. The file may appear later, and a resumed run rewrites it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._anew()

    def _anew(self) -> None:
        self._file, self._read, self._torn = (0, 0), 0, b""
        self._rounds: list[dict[str, Any]] = []

    def look(self) -> list[dict[str, Any]]:
        """Return the records of all rounds so far; skip lines without a round.

        Raises:
            InputError: the file cannot be read, and no round was read before.
        """
        path = self._folder / "metrics.jsonl"
        try:
            # opened anew each time, so that a network file system asks its server
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                self._read_on(file)
        except FileNotFoundError:
            self._anew()
        except OSError as error:  # the server of a network file system may be away for a moment
            if not self._rounds:
                raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        return list(self._rounds)

    def _read_on(self, file: BinaryIO) -> None:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        if (about.st_dev, about.st_ino) != self._file or about.st_size < self._read:
            self._anew()
            self._file = (about.st_dev, about.st_ino)
        file.seek(self._read)
        came = file.read()
        self._read += len(came)
        *lines, self._torn = (self._torn + came).split(b"\n")
        self._rounds += [record for line in lines if (record := _record(line)) is not None]


def _record(line: bytes) -> dict[str, Any] | None:
    with suppress(ValueError):
        record = from_json(line, allow_inf_nan=False)
        round = record.get("round") if isinstance(record, dict) else None
        return record if type(round) is int and 0 <= round <= LARGEST_FIGURE else None
    return None


def number(record: Mapping[str, Any], name: str) -> float | None:
    """Return a figure of a round; None if it is missing, no number, or too large, like a diverged loss."""
    value: Any = record.get(name)
    return float(value) if type(value) in (int, float) and abs(value) <= LARGEST_FIGURE else None


def trim_metrics(folder: Path, round: int, without: Collection[str] = ()) -> None:
    """Drop torn lines of `metrics.jsonl` and rounds after `round`, since these will be trained again.

    Args:
        folder: The run folder.
        round: The last round to keep.
        without: Figures that are dropped from all rounds.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    records = [record for record in read_metrics(folder) if record["round"] <= round]
    kept = ({key: of for key, of in record.items() if key not in without} for record in records)
    write_needed(folder / "metrics.jsonl", b"".join(map(encode_record, kept)))


def amend_metrics(folder: Path, record: Mapping[str, Any]) -> None:
    """Put a round's record in the place of the last one of `metrics.jsonl`, if that is of the same round.

    Raises:
        Unwritable: the disk is full, or fails.
    """
    records = read_metrics(folder)
    if records and records[-1]["round"] == record["round"]:
        lines = [encode_record(one) for one in (*records[:-1], record)]
        write_needed(folder / "metrics.jsonl", b"".join(lines))


def encode_record(record: Mapping[str, Any]) -> bytes:
    """Return one line of `metrics.jsonl`; a figure that is not finite or too large is null in it."""
    known = {k: None if _is_beyond(v) else v for k, v in record.items()}
    return json.dumps(known, allow_nan=False).encode() + b"\n"


def _is_beyond(value: Any) -> bool:
    return isinstance(value, int | float) and not abs(value) <= LARGEST_FIGURE
