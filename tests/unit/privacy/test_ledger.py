"""A ledger of lines of any kind: who may write when, and what a reader is told of."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
from pydantic import BaseModel

from mpifl.common import InputError
from mpifl.wings.site.site_ledger import SiteLedger


class Line(BaseModel):
    number: int


def test_no_other_process_can_write_while_a_line_is_made(tmp_path: Path):
    taken: list[Line] = []
    ledger = SiteLedger(tmp_path / "numbers.jsonl", Line, taken.append)

    def make() -> Line:
        with (tmp_path / "numbers.jsonl").open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        ledger.catch_up()  # which the holder of the lock may do
        return Line(number=len(ledger.kept))

    ledger.record(make)
    ledger.record(make)
    assert taken == ledger.kept == [Line(number=0), Line(number=1)]
    with (tmp_path / "numbers.jsonl").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_each_line_is_told_once_and_in_its_order(tmp_path: Path):
    told: list[int] = []
    reader = SiteLedger(tmp_path / "numbers.jsonl", Line, lambda line: told.append(line.number))
    writer = SiteLedger(tmp_path / "numbers.jsonl", Line, lambda line: None)
    reader.catch_up()
    assert not (tmp_path / "numbers.jsonl").exists(), "to read makes no file"
    for number in (3, 1, 2):
        writer.record(lambda: Line(number=number))  # noqa: B023
        reader.catch_up()
    writer.record(lambda: None)
    reader.catch_up()
    assert told == [3, 1, 2]


def test_lines_wait_for_one_sync_and_others_see_them_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, synced, sync = tmp_path / "numbers.jsonl", [], os.fsync

    def counted(file: int) -> None:
        if os.path.samestat(os.fstat(file), path.stat()):
            synced.append(len(path.read_text().splitlines()))
        sync(file)

    monkeypatch.setattr(os, "fsync", counted)
    ledger, other = (SiteLedger(path, Line, lambda line: None) for _ in range(2))
    for number in range(3):
        ledger.add(lambda: Line(number=number))  # noqa: B023
    other.catch_up()
    assert len(other.kept) == 3
    assert synced == []
    ledger.sync()
    ledger.sync()
    assert synced == [3]
    ledger.record(lambda: Line(number=3))
    other.add(lambda: None)  # who goes by a line of another process waits for it as well
    other.sync()
    assert synced == [3, 4, 4]


def test_what_a_disk_has_lost_is_never_taken_for_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After a failed sync the system forgets what it could not write, and the next one succeeds."""
    ledger = SiteLedger(tmp_path / "numbers.jsonl", Line, lambda line: None)
    ledger.record(lambda: Line(number=0))

    def fail(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(InputError, match="cannot be written"):
            ledger.record(lambda: Line(number=1))
    for again in (ledger.sync, lambda: ledger.add(lambda: None)):
        with pytest.raises(InputError, match=r"numbers\.jsonl: cannot be written \(Input/output error\)"):
            again()
